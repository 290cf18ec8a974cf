"""QK-clip on all three forms: by hand, by measuring again, and when nothing fires."""

import doctest
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stacklm.optim.qk_clip
from stacklm.config import toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.optim import build_optimizers, clip_factors, qk_clip_

FORMS = {
    "shared": {},
    "per head": {"per_head_gains": True},
    "projections": {"qk_norm": False},
}
INF = math.inf

# Eight heads in two groups, tau = 100; the factors and results are typed, not computed.
LOGITS = [120.0, 90.0, 100.0, 80.0, 150.0, 60.0, 70.0, 200.0]
QUERY_FACTORS = [0.9129, 1, 1, 1, 0.8165, 1, 1, 0.7071]
KEY_FACTORS = [0.9129, 0.7071]
AFTER = [100, 82.16, 91.29, 73.03, 86.60, 42.43, 49.50, 100]


def build(n_layers=1, dtype=torch.float64, **overrides):
    """A model with weights that give logits of several units."""
    torch.manual_seed(0)
    model = Stack100M(toy_config(n_layers=n_layers, **overrides)).to(dtype)
    for block in model.blocks:
        for linear in (block.attn.wq, block.attn.wk):
            torch.nn.init.normal_(linear.weight, std=0.5)
    return model


def exact(model):
    """Measure all heads' largest logits on one fixed batch."""
    record = LogitRecord(model.cfg.n_layers, model.cfg.n_heads, dtype=torch.float64)
    tokens = torch.randint(256, (2, 48), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model(tokens, record=record, record_exact=True)
    return record.maxima


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def changed(model, before):
    return {
        name.removeprefix("blocks.")
        for name, p in model.named_parameters()
        if not torch.equal(p, before[name])
    }


def factors_by_rows(weight, before, heads):
    """By what every head's rows were multiplied; all entries must agree."""
    ratio = (weight / before).unflatten(0, (heads, -1)).flatten(1)
    low, high = ratio.aminmax(dim=1)
    torch.testing.assert_close(low, high, rtol=1e-9, atol=0)
    return low.tolist()


@pytest.mark.parametrize("form", ["projections", "per head"])
def test_eight_heads_in_two_groups_by_hand(form):
    model = build(n_heads=8, n_kv_heads=2, **FORMS[form])
    before = weights(model)
    assert qk_clip_(model, torch.tensor([LOGITS]), tau=100) == 1
    attn, names = model.blocks[0].attn, ("wq", "wk")
    if form == "per head":
        names = ("q_norm", "k_norm")
    scaled = []
    for name, heads in zip(names, (8, 2), strict=True):
        old = before[f"blocks.0.attn.{name}.weight"]
        scaled.append(factors_by_rows(getattr(attn, name).weight.detach(), old, heads))
    assert scaled[0] == pytest.approx(QUERY_FACTORS, abs=5e-5)
    assert scaled[1] == pytest.approx(KEY_FACTORS, abs=5e-5)
    after = [
        s * scaled[0][head] * scaled[1][head // 4] for head, s in enumerate(LOGITS)
    ]
    assert after == pytest.approx(AFTER, abs=5e-3)
    assert changed(model, before) == {f"0.attn.{name}.weight" for name in names}


def test_shared_gains_by_hand():
    model = build(n_layers=2)
    before = weights(model)
    logits = torch.tensor([[29.0, 30.0, -5.0, 12.0], [20.0, 45.0, 12.0, 31.0]])
    assert qk_clip_(model, logits, tau=30.0) == 1
    names = {"1.attn.q_norm.weight", "1.attn.k_norm.weight"}
    assert changed(model, before) == names
    gains = [model.blocks[1].attn.q_norm.weight, model.blocks[1].attn.k_norm.weight]
    for gain in gains:  # of 1 before
        assert gain.tolist() == pytest.approx([0.8165] * 16, abs=5e-5)
    assert 12 * gains[0][0].item() * gains[1][0].item() == pytest.approx(8)


def test_tau_may_be_below_one():
    model = build(n_layers=2)
    logits = torch.tensor([[0.5, 0.1, -5.0, 0.2], [0.1, 2.0, 0.1, 0.1]])
    assert qk_clip_(model, logits, tau=0.5) == 1
    gain = model.blocks[1].attn.q_norm.weight  # of 1 before
    assert gain.tolist() == pytest.approx([0.5] * 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_logits_measured_again_land_on_tau(form, dtype):
    model = build(dtype=dtype, **FORMS[form])
    logits = exact(model)[0]
    # Heads 0 and 1 share keys, so do 2 and 3. Some heads fire, some do not.
    tau = logits.sort().values[1:3].mean().item()
    assert qk_clip_(model, logits[None], tau=tau) == 1
    again = exact(model)[0]
    assert again.max().item() == pytest.approx(tau, rel=1e-5)
    if form == "shared":
        expected = logits * tau / logits.max()
    else:
        q, k = clip_factors(logits.tolist(), groups=2, tau=tau)
        assert 0 < sum(f < 1 for f in q) < 4
        expected = logits * torch.tensor(q) * torch.tensor(k).repeat_interleave(2)
        tops = again.unflatten(0, (2, 2)).amax(dim=1)
        fired = logits.unflatten(0, (2, 2)).amax(dim=1) > tau
        assert tops[fired].tolist() == pytest.approx([tau] * fired.sum(), rel=1e-5)
    torch.testing.assert_close(again, expected, rtol=1e-5, atol=0, check_dtype=False)
    # A second look finds nothing above tau, but for the rounding of the first clip.
    assert qk_clip_(model, again[None], tau=tau * (1 + 1e-5)) == 0


finite = st.floats(-1e6, 1e6)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(
    st.integers(1, 4).flatmap(
        lambda groups: st.lists(
            st.lists(
                st.one_of(finite, st.just(-INF)), min_size=groups, max_size=groups
            ),
            min_size=1,
            max_size=4,
        )
    ),
    st.floats(0.1, 200.0),
)
def test_factors_put_every_firing_group_on_tau(grouped, tau):
    maxima, groups = [s for members in grouped for s in members], len(grouped[0])
    q, k = clip_factors(maxima, groups=groups, tau=tau)
    assert len(q) == len(maxima)
    assert len(k) == len(grouped)
    assert all(0 < f <= 1 for f in q + k)
    for g, members in enumerate(grouped):
        after = [s * q[g * groups + i] * k[g] for i, s in enumerate(members)]
        if max(members) > tau:
            assert max(after) == pytest.approx(tau, rel=1e-12)
        else:
            assert after == members  # untouched, to the bit


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [100.0, 99.9, 0.0, -0.0, -5.0, -1e9, -INF])
def test_what_does_not_fire_keeps_every_bit(value, form):
    model = build(n_layers=2, **FORMS[form])
    before = weights(model)
    versions = [p._version for p in model.parameters()]
    assert qk_clip_(model, torch.full((2, 4), value)) == 0
    assert changed(model, before) == set()
    assert [p._version for p in model.parameters()] == versions  # not even written


@pytest.mark.parametrize("form", FORMS)
def test_maxima_up_to_zero_never_scale_beside_one_that_fires(form):
    model = build(n_layers=2, **FORMS[form])
    before = weights(model)
    rows = [[-INF, -150.0, 0.0, 400.0], [-400.0, -INF, 0.0, 0.0]]
    assert qk_clip_(model, torch.tensor(rows)) == 1
    assert all(name.startswith("0.attn") for name in changed(model, before))
    for p in model.parameters():
        assert p.isfinite().all()
    if form != "shared":
        name = "wq" if form == "projections" else "q_norm"
        after = getattr(model.blocks[0].attn, name).weight.detach()
        ratio = factors_by_rows(after, before[f"blocks.0.attn.{name}.weight"], 4)
        assert ratio == pytest.approx([1, 1, 1, 0.5])


def test_a_tensor_a_record_and_a_dict_do_the_same():
    logits = torch.tensor([[1.0, 120.0, 3.0, 4.0], [110.0, 2.0, -INF, 500.0]])
    record = LogitRecord(2, 4)
    for layer in (0, 1):
        record.keep(layer, logits[layer])
    results = []
    for given_ in (logits, record, {1: logits[1], 0: logits[0]}, logits.double()):
        model = build(n_layers=2, per_head_gains=True)
        assert qk_clip_(model, given_) == 2
        results.append(weights(model))
    for other in results[1:]:
        assert all(torch.equal(other[name], results[0][name]) for name in other)


def test_a_layer_that_a_dict_leaves_out_was_not_measured():
    model = build(n_layers=2)
    before = weights(model)
    assert qk_clip_(model, {}) == 0
    assert qk_clip_(model, {1: torch.tensor([1.0, 2.0, 3.0, 200.0])}) == 1
    assert all(name.startswith("1.") for name in changed(model, before))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_half_precision_weights_keep_their_dtype_and_round_once(form, dtype):
    model = build(dtype=dtype, **FORMS[form])
    wide = build(dtype=dtype, **FORMS[form]).double()
    for m in (model, wide):
        assert qk_clip_(m, torch.tensor([[130.0, 90.0, 240.0, 110.0]])) == 1
    for p, exact_p in zip(model.parameters(), wide.parameters(), strict=True):
        assert p.dtype == dtype
        assert torch.equal(p, exact_p.to(dtype)) or torch.allclose(
            p.double(), exact_p, rtol=torch.finfo(dtype).eps, atol=1e-7
        )


def test_optimizer_state_and_gradients_are_left_alone():
    model = build()
    muon, adamw = build_optimizers(model)
    tokens = torch.randint(256, (2, 9))
    model(tokens, tokens)[1].backward()
    muon.step()
    adamw.step()
    tensors = [
        value
        for optimizer in (muon, adamw)
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ] + [p.grad for p in model.parameters()]
    copies = [tensor.clone() for tensor in tensors]
    assert qk_clip_(model, torch.full((1, 4), 400.0)) == 1
    assert len(tensors) > 20
    assert all(map(torch.equal, tensors, copies))


def test_training_goes_on_after_a_clip():
    model = build()
    tokens = torch.randint(256, (2, 9))
    qk_clip_(model, torch.full((1, 4), 400.0))
    assert all(p.requires_grad and p.is_leaf for p in model.parameters())
    model(tokens, tokens)[1].backward()
    assert model.blocks[0].attn.q_norm.weight.grad.abs().max() > 0


def test_examples_run():
    result = doctest.testmod(stacklm.optim.qk_clip)
    assert result.attempted > 0
    assert result.failed == 0
