"""A few steps of an optimizer on given gradients."""

from functools import cache

import jax
import optax

from stacklm.jax import MuonConfig, build_optimizers, init_state
from tests.jax.trees import MIXED, ROUTE, arrays


def optimizer_for(config, params, on=None):
    return build_optimizers(config, params, on, route=ROUTE)


@cache
def compiled(config, on):
    """An optimizer of the mixed tree and its jitted step, compiled once."""
    optimizer = optimizer_for(config, arrays(MIXED, 0, on), on)

    @jax.jit
    def one(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return optimizer, one


def advance(config, params, state, steps, on=None):
    """Step on gradients that depend on the step alone."""
    for step in steps:
        grads = arrays(MIXED, 100 + step, on)
        params, state = compiled(config, on)[1](params, state, grads)
    return params, state


def run(config=None, steps=2, on=None):
    """From the start: parameters and state after some steps on the mixed tree."""
    config, params = config or MuonConfig(), arrays(MIXED, 0, on)
    state = init_state(compiled(config, on)[0], params)
    return advance(config, params, state, range(steps), on)
