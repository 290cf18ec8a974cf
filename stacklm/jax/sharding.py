"""Where a stack of matrices lives: the three stages of one exchange.

Leaves that are sharded alike make a stack whose matrices are cut the same way. The
iteration needs whole matrices, so the cut moves from the rows to the stack axis:

    P(None, "fsdp", None)  ->  P("replicate", "fsdp", None)
                           ->  P(("replicate", "fsdp"), None, None)

The first step copies nothing, each replica keeps its share of the stack; the second
is one all-to-all among the devices of a replica. Spelled out, because the partitioner
finds the path by itself on one axis only. Afterwards the same way back.

Legend: K matrices of m x n on a mesh (shard,) or (replicate, shard). Source: GSPMD, Xu
et al. 2021, arXiv:2105.04663, for constraints. Taught in chapter 14.
"""

from __future__ import annotations

import math

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def check_mesh(mesh: Mesh | None) -> None:
    """Refuse a mesh that the stages above are not written for.

    Args:
        mesh: One axis (shard,), two (replicate, shard), or None for no sharding.

    Raises:
        TypeError: It is no mesh.
        ValueError: It has more than two axes, or axes that are not of type Auto.
    """
    if mesh is None:
        return
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh or None, got {mesh!r}")
    names = mesh.axis_names
    if len(names) > 2:
        raise ValueError(
            f"a mesh has one axis (shard,) or two (replicate, shard) here, got {names};"
            " shard parameters over one or two axes"
        )
    wrong = [
        f"{name}: {kind.name}"
        for name, kind in zip(names, mesh.axis_types, strict=True)
        if kind is not AxisType.Auto
    ]
    if wrong:
        raise ValueError(
            f"mesh axes must be Auto, so that constraints can place the stack, got "
            f"{', '.join(wrong)}; make it with jax.make_mesh(..., "
            f"axis_types=(jax.sharding.AxisType.Auto,) * {len(names)})"
        )


def spec_of(leaf, mesh: Mesh | None) -> tuple:
    """How a leaf is cut: one entry per dimension, None where it is whole.

    Args:
        leaf: An array or a ``jax.ShapeDtypeStruct``; without a sharding on ``mesh``
            it counts as whole on every device.
        mesh: The optimizer's mesh.

    Returns:
        A tuple of axis names (or tuples of them) and None, one per dimension.

    Raises:
        ValueError: The leaf is sharded over another mesh.
    """
    whole = (None,) * len(leaf.shape)
    sharding = getattr(leaf, "sharding", None)
    if mesh is None or not isinstance(sharding, NamedSharding):
        return whole
    if sharding.mesh != mesh and not sharding.is_fully_replicated:
        raise ValueError(
            f"parameters must be sharded over the optimizer's mesh {mesh}, got one "
            f"over {sharding.mesh}; build both with the same mesh"
        )
    return (tuple(sharding.spec) + whole)[: len(whole)]


def stages(mesh: Mesh, spec: tuple) -> list[NamedSharding]:
    """The three places of a stack, in the order of the way in.

    Args:
        mesh: (shard,) or (replicate, shard).
        spec: How each of its leaves is cut, as ``spec_of`` says: the last two entries
            are those of the matrix; a third in front is a leaf's own stack axis.

    Returns:
        Shardings of a (K, m, n) stack. The first is as the leaves come, the last
        spreads whole matrices over all devices. Axes that cut nothing are moved to the
        stack axis first, then those that cut rows, then those that cut columns.
    """
    cut, moved = list(spec[-2:]), _axes(spec[0] if len(spec) > 2 else None)
    path = [(moved, *cut)]
    busy = {*moved, *_axes(cut[0]), *_axes(cut[1])}
    free = tuple(axis for axis in mesh.axis_names if axis not in busy)
    if free:
        moved += free
        path.append((moved, *cut))
    for side in (0, 1):  # one at a time; both at once would be gathered first
        if cut[side]:
            moved += _axes(cut[side])
            cut[side] = None
            path.append((moved, *cut))
    return [NamedSharding(mesh, PartitionSpec(*entries)) for entries in path]


def _axes(entry) -> tuple:
    """An entry of a spec as a tuple of axes."""
    return entry if isinstance(entry, tuple) else (entry,) if entry else ()


def constrain(X: jax.Array, path: list[NamedSharding]) -> jax.Array:
    """Take a stack along a path of places, and let it rest at the last.

    Args:
        X: (K, m, n).
        path: From ``stages``, or reversed.

    Returns:
        X, with one constraint after another.
    """
    for place in path:
        X = jax.lax.with_sharding_constraint(X, place)
    return X


def padded(count: int, mesh: Mesh | None) -> int:
    """The smallest multiple of the number of devices that holds ``count`` matrices."""
    devices = math.prod(mesh.shape.values()) if mesh is not None else 1
    return -(-count // devices) * devices
