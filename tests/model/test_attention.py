"""Attention against a loop over heads, its masks, and the bound on its logits."""

import cmath
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stacklm.config import StackConfig, toy_config
from stacklm.model import Attention, attend, document_mask, rope_tables

FORMS = {
    "shared gains": {},
    "per-head gains": {"per_head_gains": True},
    "no qk-norm": {"qk_norm": False},
    "soft cap": {"attn_soft_cap": 2.0},
    "one kv head": {"n_kv_heads": 1},
    "a kv head each": {"n_kv_heads": 4},
}


def tables(cfg, length):
    return rope_tables(length, cfg.head_dim, theta=cfg.rope_theta, dtype=torch.float64)


def one_head(x, weight, norm, head, cfg):
    """Project, normalize and turn one head of one sequence, in plain arithmetic."""
    rows = weight[head * cfg.head_dim : (head + 1) * cfg.head_dim]
    y = x @ rows.T
    if cfg.qk_norm:
        gain = norm.weight[head, 0] if cfg.per_head_gains else norm.weight
        y = gain * y / (y.pow(2).mean(dim=1, keepdim=True) + cfg.norm_eps).sqrt()
    half = cfg.head_dim // 2
    turned = y.clone()
    for t in range(len(y)):
        for i in range(half):
            turn = cmath.exp(1j * t * cfg.rope_theta ** (-2 * i / cfg.head_dim))
            pair = complex(y[t, i], y[t, i + half]) * turn
            turned[t, i], turned[t, i + half] = pair.real, pair.imag
    return turned


def slow_attention(attn, cfg, x, seq_ids):
    """Compute one sequence, (T, d), head by head and position by position."""
    heads = []
    for head in range(cfg.n_heads):
        kv = math.floor(head * cfg.n_kv_heads / cfg.n_heads)
        q = one_head(x, attn.wq.weight, attn.q_norm, head, cfg)
        k = one_head(x, attn.wk.weight, attn.k_norm, kv, cfg)
        v = x @ attn.wv.weight[kv * cfg.head_dim : (kv + 1) * cfg.head_dim].T
        rows = []
        for i in range(len(x)):
            seen = [j for j in range(i + 1) if seq_ids[j] == seq_ids[i]]
            scores = k[seen] @ q[i] / math.sqrt(cfg.head_dim)
            if cfg.attn_soft_cap:
                scores = cfg.attn_soft_cap * torch.tanh(scores / cfg.attn_soft_cap)
            share = scores.exp() / scores.exp().sum()
            rows.append(share @ v[seen])
        heads.append(torch.stack(rows))
    return torch.cat(heads, dim=1) @ attn.wo.weight.T


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_attention_equals_a_loop_over_heads(form, packed, make_model):
    cfg = toy_config(**FORMS[form])
    attn = make_model(**FORMS[form]).blocks[0].attn
    x = torch.randn(1, 9, cfg.d_model, dtype=torch.float64)
    seq_ids = torch.tensor([[3, 3, 3, 3, 0, 0, 7, 7, 7]])
    mask = document_mask(seq_ids) if packed else None
    ours = attn(x, tables(cfg, 9), mask)
    ids = seq_ids[0] if packed else torch.zeros(9)
    slow = slow_attention(attn, cfg, x[0], ids)
    # Both run in float64; 1e-12 is a hundred times the rounding seen.
    torch.testing.assert_close(ours[0], slow, rtol=0, atol=1e-12)


def test_fixed_attribute_names():
    attn = Attention(StackConfig(), layer_idx=5)
    assert (attn.n_heads, attn.n_kv_heads, attn.groups) == (8, 2, 4)
    assert (attn.head_dim, attn.layer_idx, attn.record_exact) == (64, 5, False)
    assert attn.wq.weight.shape == attn.wo.weight.shape == (512, 512)
    assert attn.wk.weight.shape == attn.wv.weight.shape == (128, 512)


def test_gain_shapes():
    shared = Attention(StackConfig())
    assert shared.q_norm.weight.shape == shared.k_norm.weight.shape == (64,)
    own = Attention(StackConfig(per_head_gains=True))
    assert own.q_norm.weight.shape == (8, 1, 64)
    assert own.k_norm.weight.shape == (2, 1, 64)
    without = Attention(StackConfig(qk_norm=False))
    assert isinstance(without.q_norm, torch.nn.Identity)
    assert isinstance(without.k_norm, torch.nn.Identity)


def logits_of(attn, cfg, x):
    """All logits of a layer, (B, H, T, T), before any mask."""
    q, k = attn.queries_keys(x, tables(cfg, x.shape[1]))
    return q @ k.repeat_interleave(attn.groups, dim=1).mT / math.sqrt(cfg.head_dim)


@torch.no_grad()
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_qk_norm_bounds_the_logits_whatever_the_weights(seed, per_head, make_model):
    cfg = toy_config(per_head_gains=per_head)
    attn = make_model(seed, per_head_gains=per_head).blocks[1].attn
    attn.wq.weight.mul_(1e4)
    x = 100 * torch.randn(2, 32, cfg.d_model, dtype=torch.float64)
    gains = attn.q_norm.weight.abs().max() * attn.k_norm.weight.abs().max()
    largest = logits_of(attn, cfg, x).abs().max()
    assert largest <= math.sqrt(cfg.head_dim) * gains
    assert largest > 0.3 * math.sqrt(cfg.head_dim) * gains


@torch.no_grad()
@pytest.mark.parametrize(("cfg", "bound"), [(toy_config(), 4), (StackConfig(), 8)])
def test_bound_at_initialization_is_reached_by_equal_queries_and_keys(cfg, bound):
    torch.manual_seed(0)
    attn = Attention(cfg).double()
    attn.wk.weight.copy_(attn.wq.weight[: attn.wk.out_features])
    x = torch.randn(1, 8, cfg.d_model, dtype=torch.float64)
    diagonal = logits_of(attn, cfg, x)[0, 0].diagonal()
    # The norm's eps of 1e-5 takes a little off; it never adds.
    assert diagonal.max() <= bound
    torch.testing.assert_close(
        diagonal, torch.full_like(diagonal, bound), rtol=1e-3, atol=0
    )


@torch.no_grad()
def test_scaling_weights_does_nothing_and_scaling_gains_is_exact(make_model):
    cfg = toy_config()
    attn = make_model().blocks[0].attn
    x = torch.randn(1, 16, cfg.d_model, dtype=torch.float64)
    before = logits_of(attn, cfg, x).max()
    attn.wq.weight.mul_(0.3)
    attn.wk.weight.mul_(0.3)
    scaled = logits_of(attn, cfg, x).max()
    assert abs(scaled / before - 1) < 0.01
    attn.q_norm.weight.mul_(0.5)
    attn.k_norm.weight.mul_(0.5)
    assert logits_of(attn, cfg, x).max() == 0.25 * scaled


@torch.no_grad()
def test_soft_cap_limits_what_one_key_can_win():
    q = torch.full((1, 1, 2, 4), 50.0)
    k = torch.stack([torch.full((4,), 50.0), torch.full((4,), -50.0)])[None, None]
    v = torch.tensor([1.0, 0.0]).view(1, 1, 2, 1).expand(1, 1, 2, 4)
    open_, capped = attend(q, k, v), attend(q, k, v, soft_cap=1.0)
    # Two logits of +1 and -1 remain, so the first key's share is a sigmoid of 2.
    assert open_[0, 0, 1, 0] == 1
    torch.testing.assert_close(capped[0, 0, 1, 0], torch.sigmoid(torch.tensor(2.0)))


@torch.no_grad()
def test_a_very_high_soft_cap_changes_nothing():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 16, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, 8, 16, dtype=torch.float64)
    # tanh(s / c) differs from s / c by (s / c)^3 / 3: below 1e-11 at c = 1e6.
    torch.testing.assert_close(
        attend(q, k, v, soft_cap=1e6), attend(q, k, v), rtol=0, atol=1e-11
    )


class LargestTensor(TorchDispatchMode):
    """Remember the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, torch.Tensor):
                self.numel = max(self.numel, part.numel())
        return result


@torch.no_grad()
@pytest.mark.parametrize(("soft_cap", "materializes"), [(0.0, False), (5.0, True)])
def test_only_the_soft_cap_materializes_the_scores(soft_cap, materializes):
    cfg = toy_config(attn_soft_cap=soft_cap, max_seq_len=512)
    attn = Attention(cfg)
    length = 512
    x = torch.randn(1, length, cfg.d_model)
    rope = rope_tables(length, cfg.head_dim, theta=cfg.rope_theta)
    with LargestTensor() as seen:
        attn(x, rope)
    assert (seen.numel >= cfg.n_heads * length**2) == materializes
