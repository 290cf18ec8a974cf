"""How a parameter lies over ranks: replicas of shards, cut by rows.

    rank (r, s) of R x S ranks holds rows[s] of every matrix, whatever r is

R = 1 is FSDP, S = 1 is data parallelism with whole weights, both above 1 is hybrid
sharding (HSDP). Rows are cut as ``torch.chunk`` does it, so the last shards may be
shorter or empty: 18 rows over 8 ranks are 3, 3, 3, 3, 3, 3, 0, 0. Of a declared stack
(E, m, n), whole matrices are dealt instead.

Legend: m x n matrices; R replicas, S shards. Source: the layout of FSDP2,
``torch.distributed.fsdp.fully_shard``. Taught in chapter 13.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Matrix:
    """A matrix in pieces, one per shard."""

    rows: tuple[int, ...]
    """Rows of each shard; they add up to m."""
    cols: int
    """n."""

    @property
    def m(self) -> int:
        """All the rows."""
        return sum(self.rows)


@dataclass(frozen=True, eq=False)
class Layout:
    """R replicas of S shards, and where this process stands among them."""

    ranks: tuple[int, ...]
    """Of the default group, ascending; rank (r, s) is number r*S + s."""
    replicas: int
    """R."""
    shards: int
    """S."""
    place: tuple[int, int]
    """(r, s) of this process."""
    device: str
    """Type of device that the collectives run on."""
    shard_group: dist.ProcessGroup | None
    """The S ranks of this replica; None if S is 1."""
    replica_group: dist.ProcessGroup | None
    """The R ranks that hold the same rows; None if R is 1."""

    @property
    def rank(self) -> int:
        """r*S + s of this process."""
        return self.place[0] * self.shards + self.place[1]

    def matrices(self, shape: torch.Size, stacked: bool) -> list[Matrix]:
        """The matrices of a parameter of this global shape.

        Args:
            shape: (m, n), or (E, m, n) if ``stacked``.
            stacked: Whether it is a stack.

        Returns:
            One ``Matrix``, or E of them, the same list on every rank.
        """
        sizes = chunks(shape[0], self.shards)
        if not stacked:
            return [Matrix(sizes, shape[1])]
        _, m, n = shape
        holders = [s for s, size in enumerate(sizes) for _ in range(size)]
        return [
            Matrix(tuple(m if s == holder else 0 for s in range(self.shards)), n)
            for holder in holders
        ]

    def pieces(self, local: Tensor, stacked: bool, count: int) -> list[Tensor]:
        """Views of the local tensor, one for each of ``matrices``, empty for some.

        Args:
            local: (rows, n), or (E_local, m, n) if ``stacked``.
            stacked: Whether it is a stack.
            count: E, or 1.

        Returns:
            ``count`` views (rows, n).
        """
        if not stacked:
            return [local]
        first = sum(chunks(count, self.shards)[: self.place[1]])
        nothing = local.new_empty((0, local.size(-1)))
        views = [nothing] * count
        views[first : first + local.size(0)] = local.unbind()
        return views


def chunks(length: int, parts: int) -> tuple[int, ...]:
    """Cut a length as ``torch.chunk`` and DTensor do.

    Args:
        length: Rows.
        parts: Number of shards.

    Returns:
        ``parts`` sizes, the last of which may be smaller or 0.

    Example:
        >>> chunks(18, 8)
        (3, 3, 3, 3, 3, 3, 0, 0)
    """
    size = -(-length // parts)
    return tuple(max(0, min(size, length - i * size)) for i in range(parts))


def is_dtensor(tensor) -> bool:
    """Whether it is a DTensor; loads nothing, for without it there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, detached; writing to it writes to both."""
    tensor = tensor.detach()
    return tensor.to_local() if is_dtensor(tensor) else tensor


def like_parameter(value: Tensor, p: Tensor) -> Tensor:
    """Lay a full or distributed tensor out as a parameter is.

    Collective if ``value`` is distributed otherwise than ``p``.

    Args:
        value: A tensor of the global shape of ``p``; every rank has the same.
        p: The parameter.

    Returns:
        ``value`` with the placements of ``p``; its memory may be shared.
    """
    if not is_dtensor(p):
        return value.full_tensor() if is_dtensor(value) else value
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = p.device_mesh, p.placements
    if is_dtensor(value):
        if value.device_mesh == mesh:
            return value.redistribute(placements=placements)
        value = value.full_tensor()
    value = value.to(p.device)
    # Every rank cuts its own part out of its own copy: nothing is sent.
    return distribute_tensor(value, mesh, placements, src_data_rank=None)


def layout_of(name: str, p: Tensor, mesh=None) -> Layout | None:
    """How a parameter lies over ranks.

    Args:
        name: For errors.
        p: A DTensor, or a plain tensor, of which every rank of ``mesh`` has a copy.
        mesh: The DeviceMesh of plain parameters; a DTensor brings its own.

    Returns:
        Its layout, or None if only this process has it.

    Raises:
        ValueError: Its placements, or its mesh, are not among those above.
    """
    if not is_dtensor(p):
        return None if mesh is None else _replicated(mesh)
    mesh = p.device_mesh
    check_mesh(mesh)
    rows = [i for i, each in enumerate(p.placements) if each.is_shard(0)]
    copies = [i for i, each in enumerate(p.placements) if each.is_replicate()]
    plain = all(type(each).__name__ in ("Shard", "Replicate") for each in p.placements)
    if len(rows) + len(copies) < mesh.ndim or len(rows) > 1 or not plain:
        raise ValueError(
            f"Muon takes parameters that are replicated or sharded by rows, at most "
            f"once: Shard(0), or (Replicate(), Shard(0)) on a replicate x shard mesh; "
            f"got {name} with {tuple(p.placements)}; use fully_shard's default "
            "placement, or route it to another optimizer"
        )
    if not rows:
        return _replicated(mesh)
    if len(copies) > 1 or copies > rows:
        raise ValueError(
            f"Muon takes one dimension of replicas, before that of shards, got {name} "
            f"with {tuple(p.placements)}; build a two-dimensional mesh, "
            "(replicate, shard), with init_device_mesh"
        )
    place = mesh.get_coordinate()
    return Layout(
        ranks=tuple(mesh.mesh.flatten().tolist()),
        replicas=mesh.size(copies[0]) if copies else 1,
        shards=mesh.size(rows[0]),
        place=(place[copies[0]] if copies else 0, place[rows[0]]),
        device=mesh.device_type,
        shard_group=_group_along(mesh, rows[0]),
        replica_group=_group_along(mesh, copies[0]) if copies else None,
    )


def control_timeout(device: str):
    """The timeout that the default group was given."""
    backend = dist.group.WORLD._get_backend(torch.device(device))
    return backend.options._timeout


def _group_along(mesh, dim: int):
    return mesh.get_group(dim) if mesh.size(dim) > 1 else None


def _replicated(mesh) -> Layout:
    """Copies on all ranks of a mesh, whatever its form."""
    check_mesh(mesh)
    ranks = tuple(mesh.mesh.flatten().tolist())
    group = None
    if len(ranks) > 1:
        group = mesh.get_group(0) if mesh.ndim == 1 else _group_of(ranks, mesh)
    place = (ranks.index(dist.get_rank()), 0)
    return Layout(ranks, len(ranks), 1, place, mesh.device_type, None, group)


def _group_of(ranks: tuple[int, ...], mesh):
    if len(ranks) == dist.get_world_size():
        return dist.group.WORLD
    return dist.new_group(
        list(ranks),
        timeout=control_timeout(mesh.device_type),
        use_local_synchronization=True,
    )


def check_mesh(mesh) -> None:
    """Refuse a mesh that Muon cannot use.

    Raises:
        TypeError: It is no DeviceMesh.
        ValueError: Its ranks do not ascend, or this process is not among them.
    """
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            f"mesh must be a DeviceMesh, got {type(mesh).__name__}; make one with "
            'init_device_mesh("cpu", (4,))'
        )
    ranks = mesh.mesh.flatten().tolist()
    if ranks != sorted(ranks):
        raise ValueError(
            f"Muon takes a mesh whose ranks ascend, got {ranks}; build it with "
            "init_device_mesh"
        )
    if dist.get_rank() not in ranks:
        raise ValueError(
            f"rank {dist.get_rank()} is not in the mesh of ranks {ranks}; build Muon "
            "only on the ranks that hold its parameters"
        )
