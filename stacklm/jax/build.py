"""Muon and AdamW in one optax transformation, leaf by leaf or stacked.

    M <- mu*M + (1 - mu)*g                           momentum
    D  = mu*M/(1 - mu**(t+2)) + (1 - mu)*g/(1 - mu**(t+1))      look-ahead, as in optax
    W <- W - lr*(c*sqrt(max(m, n))*NewtonSchulz(D) + wd*W)

at step t, from 0. Both implementations compute this; they differ in where matrices are
while Newton–Schulz runs. The stacked one borrows optax's state, momentum, scales and
AdamW, and replaces the orthogonalization alone.

Legend: W, M, g, D are m x n, m inputs and n outputs. Sources: ``optax.contrib.muon``;
Liu et al. 2025, arXiv:2502.16982, for the scale. Taught in chapter 14.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from optax.contrib import MuonDimensionNumbers, MuonState

from stacklm.jax.config import MuonConfig
from stacklm.jax.newton_schulz import group_leaves, orthogonalize_group
from stacklm.jax.routing import audit, dotted, named_leaves
from stacklm.jax.sharding import check_mesh


def build_optimizers(
    config: MuonConfig,
    params,
    mesh: Mesh | None = None,
    *,
    route: Mapping[str, str] | None = None,
) -> optax.GradientTransformation:
    """Route every leaf and build both optimizers, as one transformation.

    Args:
        config: What to build.
        params: The tree of parameters, float32: arrays, or ``jax.ShapeDtypeStruct``.
            The stack follows their shardings, so pass them as they will be sharded.
        mesh: (shard,) or (replicate, shard), with Auto axes; None on one device.
        route: {name or glob: "muon" or "adamw"}, as in ``audit``.

    Returns:
        An optax transformation. Its state has the same tree for every ``impl`` and
        every mesh. Make it with ``init_state``, so that momentum is sharded as
        ``params`` are.

    Raises:
        TypeError: A leaf is no float32 array; ``mesh`` or ``config`` is none.
        ValueError: The audit finds an ambiguous leaf; no leaf is for Muon; the mesh
            has Explicit axes or more than two; parameters are on another mesh.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> params = {"mlp": {"w_up": jnp.ones((4, 16)), "bias": jnp.zeros(16)}}
        >>> optimizer = build_optimizers(MuonConfig(), params)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(params, state, params)
        >>> params = optax.apply_updates(params, updates)

    References:
        Liu et al. 2025, arXiv:2502.16982
    """
    if not isinstance(config, MuonConfig):
        raise TypeError(f"config must be a MuonConfig, got {config!r}")
    check_mesh(mesh)
    routes = audit(params, route)
    muon = {r.name: r.stacked for r in routes if r.optimizer == "muon"}
    if not muon:
        raise ValueError(
            "nothing in this tree is for Muon; use optax.adamw alone, or send a leaf "
            'there with route={"name": "muon"}'
        )
    if config.impl == "optax":
        return _optax_muon(config, _dimension_numbers(params, muon))
    named = {n: leaf for n, leaf in named_leaves(params).items() if n in muon}
    groups = group_leaves(named, mesh, config.max_stack_bytes)
    return _stacked_muon(config, params, muon, groups, mesh)


def init_state(optimizer: optax.GradientTransformation, params):
    """Make a state that is sharded as the parameters are.

    ``jax.jit(optimizer.init)`` would put all momentum on one device, because zeros
    depend on no input and nothing says where they belong.

    Args:
        optimizer: From ``build_optimizers``.
        params: The tree of arrays.

    Returns:
        The state: momentum and second moments where their leaves are, counters on
        every device of the mesh.
    """
    shardings = state_shardings(optimizer, params)
    return jax.jit(optimizer.init, out_shardings=shardings)(params)


def state_shardings(optimizer: optax.GradientTransformation, params):
    """Where every leaf of the state belongs.

    Args:
        optimizer: From ``build_optimizers``.
        params: Arrays or ``jax.ShapeDtypeStruct`` with shardings.

    Returns:
        A tree like the state; None where ``params`` say nothing.
    """
    shapes = jax.eval_shape(optimizer.init, params)
    pairs, _ = jax.tree_util.tree_flatten_with_path(params)
    places = {path: leaf.sharding for path, leaf in pairs}
    named = [s for s in places.values() if isinstance(s, NamedSharding)]
    other = NamedSharding(named[0].mesh, PartitionSpec()) if named else None

    def place(path, _):
        """Momentum lies in the state under the path of its parameter."""
        ends = (path[i:] for i in range(len(path)))
        return next((places[end] for end in ends if end in places), other)

    return jax.tree_util.tree_map_with_path(place, shapes)


def _dimension_numbers(params, muon: Mapping[str, bool]):
    """What optax wants to know: which axes make the matrix, None for AdamW."""

    def of(path, _):
        if dotted(path) not in muon:
            return None
        stacked = muon[dotted(path)]
        return MuonDimensionNumbers(1, 2) if stacked else MuonDimensionNumbers(0, 1)

    return jax.tree_util.tree_map_with_path(of, params)


def _optax_muon(config: MuonConfig, numbers) -> optax.GradientTransformation:
    """The stock implementation, and nothing else."""
    return optax.contrib.muon(
        config.learning_rate,
        ns_coeffs=config.coefficients,
        ns_steps=config.ns_steps,
        beta=config.momentum,
        eps=config.eps,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
        adam_b1=config.betas[0],
        adam_b2=config.betas[1],
        adam_weight_decay=config.adam_weight_decay,
        adam_learning_rate=config.adam_learning_rate,
        muon_weight_dimension_numbers=numbers,
        consistent_rms=config.consistent_rms,
    )


def _stacked_muon(config, params, muon, groups, mesh):
    """The same two chains as ``optax.contrib.muon``, but for the orthogonalization."""
    labels = jax.tree_util.tree_map_with_path(
        lambda path, _: "muon" if dotted(path) in muon else "adam", params
    )
    return optax.partition(
        {
            "muon": optax.chain(
                _scale_by_stacked_muon(config, groups, mesh),
                optax.stateless(partial(_scale, config.consistent_rms)),
                optax.add_decayed_weights(config.weight_decay),
                optax.scale_by_learning_rate(config.learning_rate),
            ),
            "adam": optax.adamw(
                config.adam_learning_rate,
                b1=config.betas[0],
                b2=config.betas[1],
                eps=config.eps,
                weight_decay=config.adam_weight_decay,
                nesterov=config.nesterov,
            ),
        },
        labels,
    )


def _scale_by_stacked_muon(config, groups, mesh) -> optax.GradientTransformation:
    """Momentum as in ``optax.contrib.scale_by_muon``, then one iteration per stack."""
    beta = config.momentum

    def init(params):
        zeros = optax.tree.zeros_like(params)
        return MuonState(jnp.zeros([], jnp.int32), zeros, _coefficients(config))

    def update(grads, state, params=None):
        count = optax.safe_increment(state.count)
        mu = optax.tree.update_moment(grads, state.mu, beta, 1)
        look = _direction(mu, grads, count, config)
        rows = jnp.broadcast_to(state.ns_coeffs, (config.ns_steps, 3))
        options = {
            "mesh": mesh,
            "eps": config.eps,
            "dtype": jnp.dtype(config.ns_dtype),
        }
        named = named_leaves(look)
        for group in groups:
            leaves = [named[name] for name in group.names]
            done = orthogonalize_group(leaves, group, rows, **options)
            named.update(zip(group.names, done, strict=True))
        treedef = jax.tree.structure(look)
        out = jax.tree.unflatten(treedef, list(named.values()))
        return out, MuonState(count, mu, state.ns_coeffs)

    return optax.GradientTransformation(init, update)


def _scale(consistent_rms: float | None, updates, params=None):
    """The step's size by its shape, as ``optax.contrib.muon`` scales it."""

    def scaled(D):
        m, n = D.shape[-2:]
        if consistent_rms is None:
            return math.sqrt(max(1, n / m)) * D
        return consistent_rms * math.sqrt(max(m, n)) * D

    return jax.tree.map(scaled, updates)


def _coefficients(config: MuonConfig):
    return jnp.asarray(config.coefficients, jnp.float32)  # (3,) or (steps, 3)


def _direction(mu, grads, count, config: MuonConfig):
    """What is orthogonalized; both terms are corrected for the steps so far."""
    beta, correct = config.momentum, optax.tree.bias_correction
    if not config.nesterov:
        return correct(mu, beta, count)
    later = correct(mu, beta, optax.safe_increment(count))
    now = correct(grads, beta, count)
    return jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, later, now)
