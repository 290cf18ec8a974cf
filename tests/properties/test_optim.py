"""The optimizer's plain functions: formulas by a second method, plans, conversions."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from stacklm.optim import (
    Muon,
    build_optimizers,
    from_torch_muon_state,
    groups_by_columns,
    muon_scale,
    newton_schulz_flops,
    newton_schulz_step,
    plan_newton_schulz,
    quintic,
    to_torch_muon_state,
    wsd_lr,
    wsd_multiplier,
)
from stacklm.optim.checks import NS_METHODS
from tests.properties.strategies import ANYTHING, FLOATS, mostly, tensors
from tests.properties.test_bad_input import many, tried

SIDES = st.integers(1, 12)


@many
@given(m=SIDES, n=SIDES, seed=st.integers(0, 99), stacked=st.booleans())
def test_a_step_is_the_quintic_on_every_singular_value(m, n, seed, stacked):
    generator = torch.Generator().manual_seed(seed)
    r, c = sorted((m, n))
    X = torch.randn(2, r, c, generator=generator, dtype=torch.float64)
    X = X / torch.linalg.matrix_norm(X)[:, None, None]
    U, sigma, Vh = torch.linalg.svd(X, full_matrices=False)
    right = U @ torch.diag_embed(quintic(sigma)) @ Vh
    found = (
        newton_schulz_step(X) if stacked else torch.stack([*map(newton_schulz_step, X)])
    )
    torch.testing.assert_close(found, right, atol=1e-12, rtol=0)


@many
@given(
    m=SIDES, n=SIDES, steps=st.integers(0, 9), method=st.sampled_from(NS_METHODS[1:])
)
def test_scale_and_flops_know_no_rows_from_columns(m, n, steps, method):
    assert muon_scale(m, n) == muon_scale(n, m)
    assert math.isclose(muon_scale(m, n) ** 2, 0.04 * max(m, n))
    flops = newton_schulz_flops(m, n, steps, method)
    assert flops == newton_schulz_flops(n, m, steps, method)
    assert (flops > 0) == (steps > 0)
    assert flops < newton_schulz_flops(m, n, steps + 1, method)


@many
@given(
    dirs=st.lists(tensors(dtypes=(*FLOATS, torch.int64)), max_size=5),
    steps=mostly(st.integers(0, 7)),
    method=mostly(st.sampled_from(NS_METHODS)),
    dtype=mostly(st.sampled_from([None, *FLOATS])),
    most=st.sampled_from([0, 100, 2**20]),
)
def test_a_plan_has_every_matrix_once_in_stacks_that_fit(
    dirs, steps, method, dtype, most
):
    options = {"ns_dtype": dtype, "ns_method": method, "max_stack_bytes": most}
    plans = tried(plan_newton_schulz, dirs, steps, **options)
    sound = all(G.ndim == 2 and G.dtype in FLOATS for G in dirs)
    assert plans is None or sound
    for plan in plans or ():
        assert plan.method in NS_METHODS[1:]
        assert [i for some in plan.stacks() for i in some] == list(plan.members)
        for some in plan.stacks():
            size = len(some) * plan.rows * plan.cols * plan.dtype.itemsize
            assert size <= most or len(some) == 1
        for i in plan.members:
            assert sorted(dirs[i].shape) == [plan.rows, plan.cols]
    if plans is not None:
        members = [i for plan in plans for i in plan.members]
        assert sorted(members) == list(range(len(dirs)))


@many
@given(
    shapes=st.lists(
        st.tuples(st.integers(2, 5), st.integers(2, 4)), min_size=1, max_size=4
    ),
    rate=st.floats(1e-4, 1.0),
    momentum=st.floats(0.0, 0.99),
    rule=st.sampled_from(["original", "match_rms_adamw"]),
    exponent=st.integers(-30, 30),
)
def test_a_state_goes_to_torch_and_back(shapes, rate, momentum, rule, exponent):
    generator = torch.Generator().manual_seed(len(shapes))
    params = [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in shapes]
    groups = groups_by_columns((str(i), p) for i, p in enumerate(params))
    assert [len({p.shape[1] for _, p in g["params"]}) for g in groups] == [1] * len(
        groups
    )
    muon = Muon(groups, lr=rate, momentum=momentum)
    for p in params:
        p.grad = 10.0**exponent * torch.randn(p.shape, generator=generator)
    muon.step()
    before = muon.state_dict()
    there = to_torch_muon_state(before, adjust_lr_fn=rule)
    back = from_torch_muon_state(there)
    for was, now in zip(before["param_groups"], back["param_groups"], strict=True):
        assert math.isclose(was["lr"], now["lr"])
        assert math.isclose(
            was["lr"] * was["weight_decay"], now["lr"] * now["weight_decay"]
        )
    for key, entry in before["state"].items():
        torch.testing.assert_close(
            back["state"][key]["momentum_buffer"],
            entry["momentum_buffer"],
            atol=0,
            rtol=1e-5,
        )


@many
@given(
    step=st.integers(0, 90),
    peak=st.floats(1e-6, 2),
    warmup=mostly(st.integers(0, 20)),
    total=mostly(st.integers(1, 60)),
    frac=mostly(st.floats(0, 1)),
    shape=mostly(st.sampled_from(["1-sqrt", "linear", "cosine"])),
)
def test_the_multiplier_is_the_schedule_without_its_peak(
    step, peak, warmup, total, frac, shape
):
    run = {
        "warmup_steps": warmup,
        "total_steps": total,
        "decay_frac": frac,
        "shape": shape,
    }
    multiplier = tried(wsd_multiplier, **run)
    rate = tried(wsd_lr, step, peak_lr=peak, **run)
    assert (multiplier is None) == (rate is None)
    if multiplier is not None:
        assert rate == peak * multiplier(step)


@many
@given(
    route=st.dictionaries(
        st.sampled_from(["0.weight", "1.weight", "*", "2.*", "none", ""]),
        st.sampled_from(["muon", "adamw", "sgd", None]),
        max_size=3,
    ),
    rates=st.tuples(mostly(st.floats(0, 1)), mostly(st.floats(0, 1))),
    betas=mostly(st.tuples(st.floats(0, 0.99), st.floats(0, 0.99))),
    decay=mostly(st.floats(0, 1)),
    extra=ANYTHING,
)
def test_optimizers_take_every_parameter_once_or_say_why_not(
    route, rates, betas, decay, extra
):
    torch.manual_seed(0)
    layers = (torch.nn.Embedding(5, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 5))
    model = torch.nn.Sequential(*layers)
    options = {"weight_decay": decay, "betas": betas, "ns_method": "auto"}
    if not isinstance(extra, float):
        options["batched"] = extra if isinstance(extra, bool) else None
    pair = tried(build_optimizers, model, *rates, route=route, **options)
    if pair is None:
        return
    held = [
        id(p) for each in pair for group in each.param_groups for p in group["params"]
    ]
    assert sorted(held) == sorted(map(id, model.parameters()))
    assert all(p.ndim == 2 for group in pair[0].param_groups for p in group["params"])
