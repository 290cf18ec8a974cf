"""Both implementations on one device: same numbers, same state; what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers

from stacklm.jax import MuonConfig, build_optimizers, compile_update, init_state
from stacklm.optim import COEFFICIENTS
from tests.jax.steps import compiled, optimizer_for, run
from tests.jax.trees import MIXED, apart, arrays

OPTIONS = [
    {},
    {"nesterov": False, "consistent_rms": None, "coefficients": (COEFFICIENTS,) * 5},
    {"ns_steps": 3, "weight_decay": 0.0, "adam_weight_decay": 0.2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ", ".join(o) or "defaults")
def test_two_steps_stacked_are_two_steps_of_optax(options):
    (ours, state), (theirs, reference) = (
        run(MuonConfig(impl, **options)) for impl in ("stacked", "optax")
    )
    start = arrays(MIXED)
    for a, b, s in zip(*map(jax.tree.leaves, (ours, theirs, start)), strict=True):
        np.testing.assert_allclose(a - s, b - s, rtol=1e-4, atol=1e-6)
    assert jax.tree.structure(state) == jax.tree.structure(reference)
    assert apart(state, reference) < 1e-6


def test_every_leaf_moves():
    params, _ = run()
    moved = jax.tree.map(lambda a, b: float(abs(a - b).max()), params, arrays(MIXED))
    assert min(jax.tree.leaves(moved)) > 1e-4


def test_optax_is_optax_itself_on_the_leaves_that_the_audit_chose():
    params = arrays(MIXED)
    ours = optimizer_for(MuonConfig("optax"), params)
    numbers = jax.tree.map(lambda _: None, params)
    two, three = (MuonDimensionNumbers(i, i + 1) for i in (0, 1))
    for layer in numbers["layers"]:
        layer.update(wq=two, w_up=two, w_down=two)
    numbers["odd"].update(w_up=two, wk=two)
    numbers["experts"]["w_up"] = three
    theirs = optax.contrib.muon(
        0.02,
        weight_decay=0.1,
        adam_b2=0.95,
        adam_learning_rate=3e-3,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=numbers,
    )
    grads = arrays(MIXED, 100)
    one, other = (
        jax.jit(o.update)(grads, o.init(params), params)[0] for o in (ours, theirs)
    )
    assert apart(one, other) == 0


def test_a_bf16_iteration_is_near_and_state_stays_float32():
    low, state = run(MuonConfig(ns_dtype="bfloat16"))
    high, reference = run()
    assert 1e-5 < apart(low, high) < 2e-2
    dtypes = {x.dtype for x in jax.tree.leaves(state)}
    assert dtypes == {jnp.dtype("float32"), jnp.dtype("int32")}
    assert apart(state, reference) < 1e-6  # momentum does not see the iteration


def test_gradients_in_bf16_leave_masters_and_momentum_float32():
    params = arrays(MIXED)
    optimizer, _ = compiled(MuonConfig(), None)
    grads = jax.tree.map(lambda x: x.astype(jnp.bfloat16), arrays(MIXED, 100))
    update = jax.jit(optimizer.update)
    updates, state = update(grads, optimizer.init(params), params)
    new = optax.apply_updates(params, updates)
    floats = [x for x in jax.tree.leaves((new, state)) if x.dtype != jnp.int32]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}


def test_rates_may_be_schedules_and_each_has_its_own():
    params, grads = arrays(MIXED), arrays(MIXED, 100)
    config = MuonConfig(
        learning_rate=lambda step: 0.02 * (step > 0),
        adam_learning_rate=lambda step: 3e-3 * (step < 1),
    )
    optimizer = optimizer_for(config, params)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    sizes = []
    for _ in range(2):
        updates, state = update(grads, state, params)
        moved = jax.tree.map(lambda u: float(abs(u).max()), updates)
        sizes.append((moved["odd"]["wk"], moved["tok_emb"]))
    assert sizes[0][0] == sizes[1][1] == 0
    assert min(sizes[0][1], sizes[1][0]) > 1e-4


def test_init_state_is_init_on_one_device():
    params = arrays(MIXED)
    optimizer, _ = compiled(MuonConfig(), None)
    plain, ours = optimizer.init(params), init_state(optimizer, params)
    assert jax.tree.structure(plain) == jax.tree.structure(ours)
    assert apart(ours, plain) == 0


def test_the_compiled_update_is_a_step():
    params, grads = arrays(MIXED), arrays(MIXED, 100)
    optimizer, _ = compiled(MuonConfig(), None)
    step = compile_update(optimizer, params)
    new, _ = step(grads, init_state(optimizer, params), params)
    assert apart(new, run(steps=1)[0]) < 1e-6


def test_what_cannot_be_built_is_refused():
    matrix = {"mlp": {"w_up": jnp.ones((4, 4))}}
    with pytest.raises(TypeError, match="config must be a MuonConfig, got 'optax'"):
        build_optimizers("optax", matrix)
    with pytest.raises(TypeError, match="mesh must be a jax"):
        build_optimizers(MuonConfig(), matrix, "fsdp")
    with pytest.raises(ValueError, match="nothing in this tree is for Muon; use optax"):
        build_optimizers(MuonConfig(), {"bias": jnp.ones(4)})
