"""Every public function: the right result, or an error that names rule and value.

"Right" is checked by a second method where there is one. Other exceptions, results
that are silently wrong, and inputs that change are failures.
"""

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stacklm.config import StackConfig, TrainConfig, toy_config
from stacklm.model import Stack100M
from stacklm.optim import (
    Muon,
    audit,
    clip_factors,
    convert_muon_lr,
    orthogonalize_bucketed,
    qk_clip_,
    unit_norm,
    wsd_lr,
    wsd_lr_branch,
    zeropower_batched,
    zeropower_via_newtonschulz5,
)
from stacklm.train import open_tokens
from tests.properties.strategies import ANYTHING, FLOATS, mostly, tensors

DOCUMENTED = (TypeError, ValueError)
many = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def tried(call, *args, **kwargs):
    """The result, or None after a documented error that says something."""
    try:
        return call(*args, **kwargs)
    except DOCUMENTED as error:
        said = str(error)
    assert len(said) > 20, f"says too little: {said!r}"
    return None


def check_direction(G, X, tolerance):
    """X is the orthogonalized G: NaN where G is not finite, else as float64 has it."""
    assert X.shape == G.shape
    assert X.dtype == G.dtype
    pairs = (T.reshape(-1, *G.shape[-2:]) for T in (G, X))
    for g, x in zip(*pairs, strict=True):
        if not g.isfinite().all():
            assert x.isnan().all()
            continue
        exact = zeropower_via_newtonschulz5(g.double())
        assert (x.double() - exact).abs().max() <= tolerance
        if not g.any():
            assert not x.any()


@many
@given(G=tensors())
def test_newton_schulz_is_right_or_refuses(G):
    before = G.clone()
    call = {2: zeropower_via_newtonschulz5, 3: zeropower_batched}.get(
        G.ndim, zeropower_via_newtonschulz5
    )
    X = tried(call, G)
    assert torch.equal(G, before) or not G.isfinite().all()
    allowed = G.dtype in FLOATS and G.ndim in (2, 3)
    assert (X is not None) == allowed
    if X is not None and G.numel():
        # Results have at most 1.2; halves round to 8 or 11 bits.
        half = G.dtype in (torch.float16, torch.bfloat16)
        check_direction(G, X, 1.3 * 2**-8 if half else 1e-5)


@many
@given(dirs=st.lists(tensors(ndims=(2,), dtypes=FLOATS), max_size=5))
def test_buckets_of_anything_equal_one_at_a_time(dirs):
    out = orthogonalize_bucketed(dirs)
    assert len(out) == len(dirs)
    for G, X in zip(dirs, out, strict=True):
        alone = zeropower_via_newtonschulz5(G)
        atol = 1e-5 if G.dtype in (torch.float32, torch.float64) else 2**-7
        torch.testing.assert_close(X, alone, atol=atol, rtol=0, equal_nan=True)


@many
@given(G=tensors(ndims=(2, 3), dtypes=[torch.float32, torch.float64], least=1))
def test_unit_norm_is_one_or_zero_whatever_the_scale(G):
    X = unit_norm(G)
    norms = torch.linalg.vector_norm(X.double(), dim=(-2, -1))
    zero = (G == 0).flatten(-2).all(-1)
    broken = ~G.isfinite().flatten(-2).all(-1)
    expected = torch.where(zero, 0.0, 1.0).double()
    expected = torch.where(broken, torch.nan, expected)
    torch.testing.assert_close(norms, expected, atol=1e-5, rtol=0, equal_nan=True)


@many
@given(
    p=st.one_of(tensors(), tensors(ndims=(2,), dtypes=FLOATS, least=2)),
    lr=mostly(st.sampled_from([-0.02, 0.0, 0.02, 1])),
    wd=mostly(st.sampled_from([-0.1, 0.0, 0.1, 1])),
    mu=mostly(st.sampled_from([-0.5, 0.0, 0.95, 1])),
    steps=mostly(st.integers(0, 6)),
)
def test_muon_refuses_before_it_changes_anything_or_takes_a_finite_step(
    p, lr, wd, mu, steps
):
    if not (p.dtype.is_floating_point or p.dtype.is_complex):
        return  # such tensors take no gradient, so none can be a parameter
    p = torch.nn.Parameter(p)
    muon = tried(Muon, [p], lr=lr, weight_decay=wd, momentum=mu, ns_steps=steps)
    if muon is None:
        return
    assert p.ndim == 2
    assert all(0 <= value < math.inf for value in (lr, wd))
    assert 0 <= mu < 1 <= steps
    start, p.grad = p.detach().clone(), torch.ones_like(p)
    muon.step()
    assert p.shape == start.shape
    if start.isfinite().all() and lr * wd < 1 and lr * max(p.shape) < 100:
        assert p.isfinite().all()


@many
@given(
    step=mostly(st.integers(-2, 90)),
    peak=mostly(st.floats(0, 2)),
    warmup=mostly(st.integers(-1, 40)),
    total=mostly(st.integers(0, 60)),
    decay=mostly(st.integers(-1, 40)),
    final=mostly(st.floats(0, 1)),
    shape=mostly(st.sampled_from(["1-sqrt", "linear", "cosine", "exponential"])),
)
def test_schedules_stay_between_zero_and_the_peak(
    step, peak, warmup, total, decay, final, shape
):
    common = {"peak_lr": peak, "warmup_steps": warmup, "final_frac": final}
    lr = tried(
        wsd_lr, step, **common, total_steps=total, decay_steps=decay, shape=shape
    )
    branch = tried(wsd_lr_branch, step, **common, stable_steps=total, decay_steps=decay)
    for found in (lr, branch):
        assert found is None or 0 <= found <= peak < math.inf
    if lr is not None:
        assert warmup + (int(0.2 * total) if decay is None else decay) <= total


@many
@given(
    maxima=st.lists(st.floats(-200, 400), min_size=1, max_size=8),
    groups=st.sampled_from([1, 2, 4]),
    tau=st.floats(1, 150),
)
def test_clip_factors_bring_every_group_to_tau_and_enlarge_nothing(maxima, groups, tau):
    if len(maxima) % groups:
        maxima = maxima[: len(maxima) // groups * groups] or [1.0] * groups
    queries, keys = clip_factors(maxima, groups=groups, tau=tau)
    assert all(0 < factor <= 1 for factor in (*queries, *keys))
    for h, s in enumerate(maxima):
        after = s * queries[h] * keys[h // groups]
        assert after <= max(tau, s if s <= 0 else 0) * (1 + 1e-12)


def _records():
    """Maxima of the right shape, now and then not finite."""
    values = st.one_of(st.floats(-200, 400), st.sampled_from([math.nan, -math.inf]))
    rows = st.lists(values, min_size=8, max_size=8)
    return rows.map(lambda row: torch.tensor(row).view(2, 4))


@many
@given(
    maxima=st.one_of(tensors(ndims=(1, 2, 3)), _records()),
    tau=mostly(st.floats(0.1, 300)),
)
def test_qk_clip_changes_nothing_when_it_refuses(maxima, tau):
    model = _model()
    before = copy.deepcopy(model.state_dict())
    fired = tried(qk_clip_, model, maxima, tau=tau)
    if not fired:
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])
    if fired is not None:
        assert maxima.shape == (2, 4)
        assert not (maxima.isnan() | (maxima == math.inf)).any()
        assert fired == sum(row.max().item() > tau for row in maxima)
    model.load_state_dict(before)


def _model(kept=[]):  # noqa: B006 (made once)
    if not kept:
        kept.append(Stack100M(toy_config()))
    return kept[0]


@many
@given(values=st.dictionaries(st.sampled_from(list(vars(StackConfig()))), ANYTHING))
def test_a_stack_config_counts_or_refuses(values):
    cfg = tried(StackConfig, **values)
    assert cfg is None or cfg.n_heads == cfg.groups * cfg.n_kv_heads


@many
@given(values=st.dictionaries(st.sampled_from(list(vars(TrainConfig()))), ANYTHING))
@example(values={"warmup_steps": 60, "total_steps": 60, "decay_frac": 0.5})
def test_a_train_config_has_phases_that_fit_or_refuses(values):
    cfg = tried(TrainConfig, **values)
    if cfg is not None:
        phases = (cfg.warmup_steps, cfg.stable_steps, cfg.decay_steps)
        assert min(phases) >= 0
        assert sum(phases) == cfg.total_steps


@pytest.fixture(scope="module")
def book():
    return open_tokens("moby-dick", "val")


@many
@given(
    step=mostly(st.integers(0, 10**6)),
    rows=mostly(st.integers(0, 5)),
    length=mostly(st.integers(0, 40)),
    seed=mostly(st.integers(0, 9)),
    micro=mostly(st.integers(0, 2)),
)
def test_batches_have_their_shape_or_are_refused(book, step, rows, length, seed, micro):
    sizes = {"batch_size": rows, "seq_len": length}
    batch = tried(book.batch, step, **sizes, seed=seed, micro=micro, micros=2)
    if batch is not None:
        assert batch.x.shape == batch.targets.shape == (rows, length)
        assert torch.equal(batch.x[:, 1:], batch.targets[:, :-1])


@many
@given(lr=ANYTHING, shape=st.lists(st.integers(-1, 9), max_size=4))
def test_learning_rates_convert_there_and_back_or_are_refused(lr, shape):
    if isinstance(lr, str | bool) or lr is None:
        return
    there = {"source": "original", "target": "match_rms_adamw"}
    back = {"source": "match_rms_adamw", "target": "original"}
    found = tried(convert_muon_lr, lr, shape, **there)
    if found is not None and math.isfinite(lr) and abs(lr) < 1e200:
        assert convert_muon_lr(found, shape, **back) == pytest.approx(lr)


@many
@given(p=tensors(dtypes=FLOATS), name=st.sampled_from(["weight", "table", "bias"]))
def test_an_audit_routes_a_bare_parameter_or_lists_it(p, name):
    model = torch.nn.Module()
    setattr(model, name, torch.nn.Parameter(p))
    routes = tried(audit, model)
    if routes is not None:
        assert [route.optimizer for route in routes] == ["adamw"]
