"""Records of attention logits: each tier against loops, and the order of the three."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.config import toy_config
from stacklm.model import (
    LogitRecord,
    RMSNorm,
    Stack100M,
    document_mask,
    exact_maxima,
    logit_bound,
    norm_bound,
)

FORMS = {
    "shared gains": {},
    "per-head gains": {"per_head_gains": True},
    "no qk-norm": {"qk_norm": False},
    "soft cap": {"attn_soft_cap": 0.5},
    "one kv head": {"n_kv_heads": 1},
    "a kv head each": {"n_kv_heads": 4},
}
PACKED = torch.tensor([[3, 3, 3, 3, 0, 0, 7, 7, 7], [0, 0, 0, 0, 0, 0, 0, 1, 1]])


def queries_and_keys(model, tokens, seq_ids):
    """What every layer of one pass multiplies: [(q, k)]."""
    inputs = []
    handles = [
        block.attn.register_forward_pre_hook(lambda _, args: inputs.append(args[:2]))
        for block in model.blocks
    ]
    model(tokens, seq_ids=seq_ids)
    for handle in handles:
        handle.remove()
    layers = zip(model.blocks, inputs, strict=True)
    return [block.attn.queries_keys(*args) for block, args in layers]


def by_loops(q, k, seq_ids):
    """Tiers 1 and 2 of one layer, pair by pair."""
    groups, width = q.shape[1] // k.shape[1], q.shape[-1]
    bounds, maxima = [], []
    for head in range(q.shape[1]):
        mine, theirs = q[:, head], k[:, head // groups]
        bounds.append(mine.norm(dim=-1).max() * theirs.norm(dim=-1).max())
        maxima.append(
            max(
                mine[b, i] @ theirs[b, j]
                for b in range(len(q))
                for i in range(q.shape[2])
                for j in range(i + 1)
                if seq_ids[b, i] == seq_ids[b, j]
            )
        )
    return [torch.stack(rows) / math.sqrt(width) for rows in (bounds, maxima)]


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_both_tiers_equal_loops_over_pairs(form, packed, make_model, make_tokens):
    model, tokens = make_model(**FORMS[form]), make_tokens(2, 9)
    seq_ids = PACKED if packed else None
    bounds, exact = {}, {}
    model(tokens, seq_ids=seq_ids, record=bounds)
    model(tokens, seq_ids=seq_ids, record=exact, record_exact=True)
    ids = PACKED if packed else torch.zeros_like(PACKED)
    for layer, (q, k) in enumerate(queries_and_keys(model, tokens, seq_ids)):
        slow = by_loops(q, k, ids)
        # Both run in float64; 1e-12 is far above the rounding of 16 products.
        torch.testing.assert_close(bounds[layer], slow[0], rtol=1e-12, atol=0)
        torch.testing.assert_close(exact[layer], slow[1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_exact_maxima_over_several_blocks_of_queries():
    torch.manual_seed(0)
    length = 600  # two blocks of 256 queries and a shorter one
    q = torch.randn(2, 4, length, 8, dtype=torch.float64)
    k = torch.randn(2, 2, length, 8, dtype=torch.float64)
    seq_ids = (torch.arange(length) // 70).expand(2, length)
    scores = q @ k.repeat_interleave(2, dim=1).mT / math.sqrt(8)
    for mask in (None, document_mask(seq_ids)):
        seen = torch.ones(length, length).tril().bool() if mask is None else mask
        whole = scores.masked_fill(~seen, -math.inf).amax(dim=(0, 2, 3))
        torch.testing.assert_close(exact_maxima(q, k, mask), whole, rtol=0, atol=1e-12)
    # One planted pair across the border of two blocks, and one that may not look.
    q[1, 3, 400], k[1, 1, 10], k[1, 1, 590] = 9.0, 9.0, 99.0
    assert exact_maxima(q, k)[3] == pytest.approx(8 * 81 / math.sqrt(8))


@st.composite
def models(draw):
    """A random model with large gains, a batch of tokens, and documents."""
    gains = draw(st.sampled_from([{}, {"per_head_gains": True}, {"qk_norm": False}]))
    kv_heads, seed = draw(st.sampled_from([1, 2, 4])), draw(st.integers(0, 999))
    size, packed = draw(st.integers(1, 24)), draw(st.booleans())
    std = draw(st.sampled_from([0.01, 0.3, 3.0]))
    torch.manual_seed(seed)
    model = Stack100M(toy_config(n_kv_heads=kv_heads, **gains)).double()
    for module in model.modules():
        if isinstance(module, RMSNorm):
            torch.nn.init.normal_(module.weight, std=2.0)  # of both signs
        elif isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=std)
    seq_ids = torch.randint(3, (2, size)).sort(dim=1).values if packed else None
    return model, torch.randint(256, (2, size)), seq_ids


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(models())
@torch.no_grad()
def test_exact_is_at_most_tier_1_is_at_most_tier_0(drawn):
    model, tokens, seq_ids = drawn
    shape = (2, 4)
    tiers = [LogitRecord(*shape, dtype=torch.float64) for _ in range(2)]
    for record, exact in zip(tiers, (False, True), strict=True):
        model(tokens, seq_ids=seq_ids, record=record, record_exact=exact)
    bounds, maxima = (record.maxima for record in tiers)
    slack = 1e-12 * bounds.abs()  # float64 rounds
    assert (maxima <= bounds + slack).all()
    assert maxima.isfinite().all()
    if model.cfg.qk_norm:
        assert (bounds <= logit_bound(model) * (1 + 1e-12)).all()
    else:
        with pytest.raises(ValueError, match="needs QK-norm, got none in layer 0"):
            logit_bound(model)


@torch.no_grad()
def test_logit_bound_by_hand():
    model = Stack100M(toy_config(per_head_gains=True))
    attn = model.blocks[1].attn
    attn.q_norm.weight[2, 0, 5] = -3.0  # the largest in size counts
    attn.k_norm.weight[1, 0, 7] = 0.5
    attn.k_norm.weight[0].fill_(0.25)
    bound = logit_bound(model)
    assert bound.tolist() == [[4.0] * 4, [1.0, 1.0, 12.0, 4.0]]
    half = logit_bound(model.bfloat16())
    assert half.dtype == torch.float32
    assert half.tolist() == bound.tolist()
    shared = Stack100M(toy_config())
    shared.blocks[0].attn.q_norm.weight[3] = -2.0
    assert logit_bound(shared).tolist() == [[8.0] * 4, [4.0] * 4]
    assert not logit_bound(shared).requires_grad


@torch.no_grad()
def test_the_attribute_chooses_and_the_argument_overrules(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(2, 9)
    bounds, exact, mixed, forced = {}, {}, {}, {}
    model(tokens, record=bounds, record_exact=False)
    model(tokens, record=exact, record_exact=True)
    model.blocks[1].attn.record_exact = True
    model(tokens, record=mixed)
    model(tokens, record=forced, record_exact=False)
    assert torch.equal(mixed[0], bounds[0])
    assert torch.equal(mixed[1], exact[1])
    assert torch.equal(forced[1], bounds[1])
    assert (exact[1] < bounds[1]).all()


@torch.no_grad()
@pytest.mark.parametrize("exact", [False, True])
def test_records_are_taken_before_soft_capping(exact, make_model, make_tokens):
    open_, capped = make_model(), make_model(attn_soft_cap=0.5)
    records = {}, {}
    for model, record in zip((open_, capped), records, strict=True):
        model(make_tokens(2, 9), record=record, record_exact=exact)
    # Layer 0 sees the same input in both; layer 1 does not.
    assert torch.equal(records[0][0], records[1][0])
    assert records[1][0].max() > 0.5
    assert not torch.equal(records[0][1], records[1][1])


@torch.no_grad()
def test_maxima_run_over_micro_batches_until_reset(make_model, make_tokens):
    model = make_model()
    batches = [make_tokens(2, 9, seed) for seed in range(3)]
    alone = []
    for tokens in batches:
        alone.append(LogitRecord(2, 4, dtype=torch.float64))
        model(tokens, record=alone[-1], record_exact=True)
    together, kept = LogitRecord(2, 4, dtype=torch.float64), {}
    place = together.maxima.data_ptr()
    for tokens in batches:
        model(tokens, record=together, record_exact=True)
        model(tokens, record=kept, record_exact=True)
    largest = torch.stack([record.maxima for record in alone]).amax(dim=0)
    assert torch.equal(together.maxima, largest)
    assert torch.equal(torch.stack([kept[0], kept[1]]), largest)
    # The maximum is not that of any one batch, so the running one was needed.
    assert all(not torch.equal(record.maxima, largest) for record in alone)
    together.reset()
    assert (together.maxima == -math.inf).all()
    model(batches[1], record=together, record_exact=True)
    assert torch.equal(together.maxima, alone[1].maxima)
    assert together.maxima.data_ptr() == place


def test_nan_is_never_forgotten():
    record, bad = LogitRecord(1, 2), torch.tensor([math.nan, 1.0])
    record.keep(0, bad)
    record.keep(0, torch.tensor([5.0, 5.0]))
    assert record.maxima[0].isnan().tolist() == [True, False]
    q = torch.ones(1, 2, 3, 4)
    k = torch.ones(1, 1, 3, 4)
    q[0, 1, 2, 0] = math.nan
    for found in (norm_bound(q, k), exact_maxima(q, k)):
        assert found.isnan().tolist() == [False, True]


WRONG = [
    ([], TypeError, "a dict or a LogitRecord, got list; start with"),
    (LogitRecord(3, 4), ValueError, r"record.maxima must have shape \(2, 4\), got"),
    ({0: torch.zeros(8)}, ValueError, r"record\[0\] must have shape \(4,\), got"),
    ({1: 0.5}, ValueError, r"record\[1\] must have shape \(4,\), got float"),
    (LogitRecord(2, 4, "meta"), ValueError, "on the model's device, cpu, got meta"),
]


@pytest.mark.parametrize(("record", "error", "message"), WRONG)
def test_records_that_do_not_fit_are_refused(record, error, message, make_tokens):
    with pytest.raises(error, match=message):
        Stack100M(toy_config())(make_tokens(1, 4), record=record)


def test_bounds_need_a_model_with_attention():
    with pytest.raises(TypeError, match=r"logit_bound takes a model .* got Linear"):
        logit_bound(torch.nn.Linear(2, 2))
