"""The model's functions on hard values: float64 by a second method says what is right.

Shapes are those that a model makes; ids and records that are not are refused.
"""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.config import StackConfig, count_params, flops_per_token, toy_config
from stacklm.model import (
    IGNORE_INDEX,
    LogitRecord,
    RMSNorm,
    Stack100M,
    apply_rope,
    attend,
    causal_mask,
    document_mask,
    exact_maxima,
    norm_bound,
    rope_tables,
    token_loss,
)
from tests.properties.strategies import ANYTHING, FLOATS, OTHERS, restrided, tensors
from tests.properties.test_bad_input import many, tried

RELATIVE = {torch.float16: 2**-9, torch.bfloat16: 2**-6}
few = settings(many, max_examples=50)
LAYOUTS = st.sampled_from(["plain", "turned", "skipping"])


@st.composite
def heads(draw, exponents=(-15, 15)):
    """Queries (B, H, T, d), keys and values (B, K, T, d), and documents or None."""
    B, K, groups, T = (draw(st.integers(1, most)) for most in (2, 2, 3, 7))
    width, dtype = 2 * draw(st.integers(1, 4)), draw(st.sampled_from(FLOATS[1:]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    scale = 10.0 ** draw(st.integers(*exponents))

    def made(count):
        values = scale * torch.randn(B, count, T, width, generator=generator).double()
        return restrided(draw(LAYOUTS), values.to(dtype))

    documents = torch.randint(0, 3, (B, T), generator=generator)
    return (*map(made, (K * groups, K, K)), draw(st.sampled_from([None, documents])))


def wide(q, k, documents):
    """Scores (B, H, T, T) in float64, -inf where a query may not look."""
    k = k.double().repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q.double() @ k.mT / math.sqrt(q.shape[-1])
    mask = causal_mask(q.shape[2]) if documents is None else document_mask(documents)
    return scores.masked_fill(~mask, -math.inf)


@many
@given(some=heads(exponents=(-15, 1)), cap=st.sampled_from([0.0, 0.0, 5.0]))
def test_attention_is_the_mean_of_values_that_softmax_weighs(some, cap):
    q, k, v, documents = some
    mask = None if documents is None else document_mask(documents)
    out = attend(q, k, v, mask, cap)
    scores = wide(q, k, documents)
    if cap:
        scores = (cap * (scores / cap).tanh()).where(scores.isfinite(), scores)
    values = v.double().repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    right = scores.softmax(-1) @ values
    # Weights move as scores do, and these are rounded to the dtype.
    part = RELATIVE.get(q.dtype, 1e-5) * (1 + scores[scores.isfinite()].abs().max())
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    assert (out.double() - right).abs().max() <= part * values.abs().max()


@many
@given(some=heads(), spoil=st.sampled_from([None, math.nan, math.inf]))
def test_tiers_are_in_order_and_what_is_not_finite_stays_in_its_head(some, spoil):
    q, k, _, documents = some
    if spoil is not None:
        q = q.clone()
        q[0, 0, 0, 0] = spoil
    mask = None if documents is None else document_mask(documents)
    exact, bound = exact_maxima(q, k, mask), norm_bound(q, k)
    right = wide(q, k, documents).amax((0, 2, 3))
    clean = slice(0 if spoil is None else 1, None)
    gap = (exact.double() - right).abs()[clean]
    assert (gap <= 1e-5 * bound.double()[clean]).all()
    assert (exact <= bound * (1 + 1e-5))[clean].all()
    if spoil is not None:
        assert not bound[0].isfinite()


@many
@given(
    x=tensors(ndims=(2, 3, 4), dtypes=FLOATS, least=1),
    eps=st.sampled_from([0.0, 1e-5]),
)
def test_a_norm_has_the_length_of_its_gains(x, eps):
    y = RMSNorm((x.shape[-1],), eps)(x)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    rows, found = (t.double().flatten(0, -2) for t in (x, y))
    square = rows.square().mean(-1, keepdim=True)
    # In float32 squares are numbers from about 1e-18 squared to 1e18 squared.
    inside = (square > 1e-32) & (square < 1e36)
    right = rows / (square + eps).sqrt()
    gap = (found - right).abs().amax(-1, keepdim=True)
    allowed = RELATIVE.get(x.dtype, 1e-5) * x.shape[-1] ** 0.5
    assert (gap[inside.squeeze(-1)] <= allowed).all()
    spoiled = rows.isnan().any(-1)
    assert found[spoiled].isnan().all()


@many
@given(some=heads(exponents=(-30, 30)), theta=st.sampled_from([1e2, 1e4, 1e6]))
def test_a_rotation_keeps_lengths_and_sees_differences_of_positions_only(some, theta):
    q, k, _, _ = some
    T, width = q.shape[2:]
    tables = rope_tables(T, width, theta=theta)
    turned = apply_rope(q, *tables)
    part = RELATIVE.get(q.dtype, 1e-5)
    before, after = (t.double().norm(dim=-1) for t in (q, turned))
    assert turned.dtype == q.dtype
    assert ((after - before).abs() <= part * before).all()
    ahead = rope_tables(T + 3, width, theta=theta)
    late = [t[3:] for t in ahead]
    here, there = (
        (apply_rope(q, *way).double() * apply_rope(k[:, :1], *way).double()).sum(-1)
        for way in (tables, late)
    )
    lengths = before * k[:, :1].double().norm(dim=-1)
    assert ((here - there).abs() <= 4 * part * lengths).all()


@many
@given(width=st.integers(1, 12), length=st.integers(0, 9))
def test_tables_have_a_column_per_pair_or_are_refused(width, length):
    found = tried(rope_tables, length, width, theta=1e4)
    assert (found is None) == bool(width % 2)
    if found is not None:
        assert all(table.shape == (length, width // 2) for table in found)


@many
@given(ids=tensors(ndims=(2,), dtypes=[torch.int64], least=1))
def test_documents_are_seen_by_their_own_tokens_looking_back(ids):
    mask = document_mask(ids)
    B, T = ids.shape
    for b in range(B):
        for i in range(T):
            seen = [j <= i and bool(ids[b, i] == ids[b, j]) for j in range(T)]
            assert mask[b, 0, i].tolist() == seen


@many
@given(
    logits=tensors(ndims=(3,), dtypes=FLOATS, least=1),
    ignored=st.sampled_from(["none", "some", "all"]),
)
def test_the_loss_is_the_mean_over_targets_that_count(logits, ignored):
    B, T, V = logits.shape
    targets = torch.arange(B * T).view(B, T) % V
    keep = {"none": 1, "some": 2, "all": B * T + 1}[ignored]
    targets[torch.arange(B * T).view(B, T) % keep != 0] = IGNORE_INDEX
    if ignored == "all":
        targets[:] = IGNORE_INDEX
    loss = token_loss(logits, targets)
    assert loss.dtype == torch.promote_types(logits.dtype, torch.float32)
    chosen = targets != IGNORE_INDEX
    if not chosen.any():
        assert loss == 0
        return
    each = -logits.double().log_softmax(-1)
    picked = each.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    right = picked[chosen].mean()
    torch.testing.assert_close(
        loss.double(), right, rtol=1e-5, atol=1e-5, equal_nan=True
    )


@many
@given(
    ids=st.one_of(
        tensors(dtypes=(*FLOATS, *OTHERS)),
        tensors(ndims=(2,), dtypes=[torch.int64], least=1),
    ),
    shift=st.integers(-2, 260),
    longest=st.sampled_from([4, 16]),
)
def test_a_model_predicts_every_token_or_refuses_its_ids(ids, shift, longest):
    torch.manual_seed(0)
    model = Stack100M(toy_config(n_layers=1, max_seq_len=longest))
    if ids.dtype == torch.int64:
        ids = ids + shift
    found = tried(model, ids, ids)
    sound = ids.dtype == torch.int64 and ids.ndim == 2 and ids.numel() > 0
    sound = sound and ids.min() >= 0 and ids.max() < 256 and ids.shape[1] <= longest
    assert (found is not None) == sound
    if found is not None:
        assert found[0].shape == (*ids.shape, 256)
        assert found[1].isfinite()


@many
@given(rows=st.lists(tensors(ndims=(1,), dtypes=[torch.float32]), max_size=4))
def test_a_record_keeps_the_largest_in_any_order_and_nan(rows):
    rows = [torch.nn.functional.pad(row[:4], (0, 4 - len(row[:4]))) for row in rows]
    orders = (rows, rows[::-1])
    records = [LogitRecord(2, 4) for _ in orders]
    for record, some in zip(records, orders, strict=True):
        for row in some:
            record.keep(1, row)
    assert (records[0].maxima[0] == -math.inf).all()
    right = torch.stack([torch.full((4,), -math.inf), *rows]).amax(0)  # keeps NaN
    for record in records:
        torch.testing.assert_close(
            record.maxima[1], right, rtol=0, atol=0, equal_nan=True
        )


SIZES = {
    "vocab_size": st.integers(2, 40),
    "n_layers": st.integers(1, 3),
    "intermediate": st.integers(2, 24),
    "head_dim": st.sampled_from([2, 4, 6]),
    "tie_embeddings": st.booleans(),
    "qk_norm": st.booleans(),
}


@few
@given(
    values=st.fixed_dictionaries(SIZES),
    kv=st.integers(1, 3),
    groups=st.integers(1, 3),
    length=ANYTHING,
)
def test_parameters_are_counted_as_a_model_has_them(values, kv, groups, length):
    cfg = StackConfig(d_model=8, n_heads=kv * groups, n_kv_heads=kv, **values)
    with torch.device("meta"):
        model = Stack100M(cfg)
    assert count_params(cfg).total == sum(p.numel() for p in model.parameters())
    flops = tried(flops_per_token, cfg, length)
    assert (flops is None) == (type(length) is not int or length < 1)
