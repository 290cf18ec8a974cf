"""Compile the real update for given shapes and shardings, without data.

What is counted is what would run: the whole update with both optimizers, its state and
gradients sharded as the parameters are. Taught in chapter 14.
"""

from __future__ import annotations

import jax
import optax

from stacklm.jax.build import state_shardings
from stacklm.jax.hlo import Exchanges, count_exchanges


def compile_update(optimizer: optax.GradientTransformation, params):
    """Compile ``optimizer.update`` and ``optax.apply_updates`` as one program.

    Args:
        optimizer: Any optax transformation.
        params: Arrays or ``jax.ShapeDtypeStruct``; nothing is allocated. Gradients
            and state are taken to be sharded alike.

    Returns:
        A compiled function (grads, state, params) -> (params, state).

    Example:
        >>> import jax.numpy as jnp, optax
        >>> params = {"w": jnp.ones((4, 4))}
        >>> step = compile_update(optax.sgd(0.5), params)
        >>> params, state = step(params, optax.sgd(0.5).init(params), params)
        >>> float(params["w"][0, 0])
        0.5
    """
    places = state_shardings(optimizer, params)
    shapes = jax.eval_shape(optimizer.init, params)
    state = jax.tree.map(_struct, shapes, places)
    params = jax.tree.map(lambda p: _struct(p, p.sharding), params)
    homes = jax.tree.map(lambda p: p.sharding, params)

    def update(grads, state, params):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    program = jax.jit(update, out_shardings=(homes, places))
    return program.lower(params, state, params).compile()


def count_update(optimizer: optax.GradientTransformation, params) -> Exchanges:
    """Count what one update exchanges and multiplies on each device.

    Args:
        optimizer: Any optax transformation.
        params: As for ``compile_update``.

    Returns:
        The counts, of collectives by kind, in loops and executed, bytes and FLOPs.
    """
    return count_exchanges(compile_update(optimizer, params).as_text())


def _struct(leaf, sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
