"""The soft cap by FlexAttention and by its reference: the same numbers."""

import importlib.util
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

from stacklm.model import attend, causal_mask, document_mask, scores


@pytest.fixture
def by_flex(monkeypatch):
    """Send attend to FlexAttention, uncompiled, as a CPU can run it; count calls."""
    calls = []
    torch.compiler.reset()  # sizes that a test before had are no reason to generalize

    def flex(*args, **options):
        calls.append(options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # uncompiled, it warns of its memory
            return flex_attention(*args, **options)

    monkeypatch.setattr(scores, "_flex_compiles_for", lambda q: True)
    monkeypatch.setattr(scores, "_compiled_flex", lambda: flex)
    return calls


@torch.no_grad()
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("length", [1, 37, 200])
def test_flex_equals_the_reference(length, packed, kv_heads, by_flex, monkeypatch):
    torch.manual_seed(0)
    q = 3 * torch.randn(2, 4, length, 16, dtype=torch.float64)
    k, v = torch.randn(2, 2, kv_heads, length, 16, dtype=torch.float64)
    mask = None
    if packed:
        mask = document_mask(torch.randint(3, (2, length)).sort(dim=1).values)
    flex = attend(q, k, v, mask, soft_cap=2.0)
    assert len(by_flex) == 1
    monkeypatch.setattr(scores, "_flex_compiles_for", lambda q: False)
    # float64 on both sides, different order of sums.
    torch.testing.assert_close(
        flex, attend(q, k, v, mask, soft_cap=2.0), rtol=0, atol=1e-12
    )
    assert len(by_flex) == 1


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
def test_blocks_that_the_kernel_skips_hold_no_pair(packed, by_flex):
    length, block = 300, 128
    seq_ids = torch.tensor([[0] * 300, [0] * 140 + [1] * 160])
    mask = document_mask(seq_ids) if packed else None
    q = torch.randn(2, 4, length, 16)
    attend(q, q, q, mask, soft_cap=2.0)
    # Uncompiled, FlexAttention does not use the blocks, so look at them.
    computed = by_flex[0]["block_mask"].to_dense().bool()  # (B or 1, 1, 3, 3)
    pairs = causal_mask(length)[None, None] if mask is None else mask
    pairs = F.pad(pairs, (0, 84, 0, 84))  # to whole blocks
    needed = pairs.unflatten(3, (-1, block)).unflatten(2, (-1, block)).any(5).any(3)
    assert torch.equal(computed, needed)
    assert needed.sum() == (6 + 5 if packed else 6)


@torch.no_grad()
def test_a_model_gives_the_same_logits(by_flex, make_model, make_tokens, monkeypatch):
    model, tokens = make_model(attn_soft_cap=1.0), make_tokens(2, 20)
    seq_ids = (torch.arange(20) // 7).expand(2, 20)
    flex, _ = model(tokens, seq_ids=seq_ids)
    assert len(by_flex) == 2  # once per layer
    monkeypatch.setattr(scores, "_flex_compiles_for", lambda q: False)
    torch.testing.assert_close(
        flex, model(tokens, seq_ids=seq_ids)[0], rtol=0, atol=1e-10
    )


@torch.no_grad()
def test_without_a_cap_flex_is_not_asked(by_flex):
    q = torch.randn(1, 2, 5, 16)
    attend(q, q, q)
    assert by_flex == []


@pytest.mark.parametrize(
    ("device", "dtype", "width", "triton", "fits"),
    [
        ("cuda", torch.bfloat16, 64, True, True),
        ("cuda", torch.float32, 16, True, True),
        ("cuda", torch.float64, 64, True, False),
        ("cuda", torch.bfloat16, 8, True, False),
        ("cuda", torch.bfloat16, 64, False, False),
        ("cpu", torch.float32, 64, True, False),
    ],
)
def test_where_flex_is_chosen(device, dtype, width, triton, fits, monkeypatch):
    found = object() if triton else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    shape = torch.Size([2, 4, 8, width])
    q = SimpleNamespace(device=torch.device(device), dtype=dtype, shape=shape)
    assert scores._flex_compiles_for(q) == fits
