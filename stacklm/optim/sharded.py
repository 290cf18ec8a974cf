"""Orthogonalize whole matrices whose rows lie on many ranks.

    1. in       every rank sends its rows of a matrix to the rank that owns it
    2. iterate  the owner orthogonalizes its matrices, as one process would
    3. out      the owner sends every rank its rows of the result
    4. spread   replicas, if there are several, tell each other what they made

One exchange per step and shape class, whatever the number of matrices and iterations:
the stack of a class is sharded over all ranks. Pieces are sent in their own sizes, so
that nothing is padded. Owners share the work evenly: by FLOPs over all classes, no rank
has more than another by more than one matrix.

Legend: R replicas of S shards, W = R*S ranks; K matrices of m x n in a class. Per
rank and class, 1 and 3 move K*m*n/W*(S-1)/S entries each, and 4 receives
K*m*n/S*(R-1)/R: what must move if matrices are to be whole somewhere, and no more.
Source: Liu et al. 2025, arXiv:2502.16982, section 2.3 gathers, orthogonalizes and cuts
again matrix by matrix; sharding the stack instead is this package's. Taught in
chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
import torch.distributed as dist
from torch import Tensor

from stacklm.optim.layout import Layout, Matrix


@dataclass(frozen=True)
class ShapeClass:
    """Matrices of one shape, once laid wide, and who owns each."""

    members: tuple[int, ...]
    """Their positions among all matrices."""
    matrices: tuple[Matrix, ...]
    """The same, in pieces."""
    owners: tuple[int, ...]
    """Who orthogonalizes each: number r*S + s."""

    def owned(self, rank: int) -> list[tuple[int, Matrix]]:
        """(position, matrix) of those that a rank owns."""
        return self._by_owner.get(rank, [])

    @cached_property
    def _by_owner(self) -> dict[int, list[tuple[int, Matrix]]]:
        found: dict[int, list[tuple[int, Matrix]]] = {}
        parts = (self.owners, self.members, self.matrices)
        for owner, i, matrix in zip(*parts, strict=True):
            found.setdefault(owner, []).append((i, matrix))
        return found


@lru_cache(maxsize=64)
def schedule(
    matrices: tuple[Matrix, ...], costs: tuple[int, ...], replicas: int, shards: int
) -> tuple[ShapeClass, ...]:
    """Sort matrices into classes and give each an owner; the same on every rank.

    Each rank gets the same number of a class, what is left over goes to those that
    have the least to do. Among those with room, a matrix goes to a rank that already
    has most of it.

    Args:
        matrices: All of them, in the same order everywhere.
        costs: FLOPs to orthogonalize each.
        replicas: Replicas, R of them.
        shards: Shards, S of them.

    Returns:
        The classes, the most expensive matrices first.
    """
    classes: dict[tuple[int, int], list[int]] = {}
    for i, matrix in enumerate(matrices):
        classes.setdefault(tuple(sorted((matrix.m, matrix.cols))), []).append(i)
    work = [0] * (replicas * shards)
    found = []
    for members in sorted(classes.values(), key=lambda some: -costs[some[0]]):
        owners = _owners([matrices[i] for i in members], work, shards)
        for i, owner in zip(members, owners, strict=True):
            work[owner] += costs[i]
        own = tuple(matrices[i] for i in members)
        found.append(ShapeClass(tuple(members), own, tuple(owners)))
    return tuple(found)


def _owners(matrices: list[Matrix], work: list[int], shards: int) -> list[int]:
    each, more = divmod(len(matrices), len(work))
    room = [each] * len(work)
    for rank in sorted(range(len(work)), key=lambda rank: (work[rank], rank))[:more]:
        room[rank] += 1
    owners = []
    for matrix in matrices:
        owner = max(
            (rank for rank in range(len(work)) if room[rank]),
            key=lambda rank: (matrix.rows[rank % shards], room[rank], -rank),
        )
        room[owner] -= 1
        owners.append(owner)
    return owners


def orthogonalize_sharded(
    pieces: Sequence[Tensor],
    matrices: Sequence[Matrix],
    costs: Sequence[int],
    layout: Layout,
    orthogonalize: Callable[[list[Tensor]], list[Tensor]],
    *,
    wire: torch.dtype | None = None,
) -> list[Tensor]:
    """Orthogonalize matrices of which this process holds rows. Collective.

    The exchanges of all classes are under way at once, so one class is iterated on
    while others travel. Beside ``pieces``, a rank holds the matrices that it owns, once
    on their way in and once on their way out.

    Args:
        pieces: This rank's rows (rows[s], n) of every matrix, of one dtype and device.
        matrices: All the matrices, the same on every rank.
        costs: FLOPs to orthogonalize each.
        layout: How they lie over ranks.
        orthogonalize: From whole matrices to as many of the same shapes.
        wire: Dtype of the way out, if the results fit it without loss; None: that of
            ``pieces``.

    Returns:
        This rank's rows of the results, in the order, shapes and dtype of ``pieces``.
    """
    plan = schedule(tuple(matrices), tuple(costs), layout.replicas, layout.shards)
    empty = pieces[0].new_empty(0)
    back = empty.to(wire or empty.dtype)
    arriving = [_bring_in(each, pieces, layout, empty) for each in plan]
    leaving = []
    for each, arrived in zip(plan, arriving, strict=True):
        whole = arrived()
        done = [d.to(back.dtype) for d in orthogonalize(whole)] if whole else []
        leaving.append(_send_out(each, done, layout, back))
    spreading = [
        _spread(each, left(), layout, back)
        for each, left in zip(plan, leaving, strict=True)
    ]
    out: list[Tensor] = [empty] * len(pieces)
    for spread in spreading:
        for i, piece in spread():
            out[i] = piece.to(empty.dtype)
    return out


def _bring_in(each: ShapeClass, pieces: Sequence[Tensor], layout: Layout, empty):
    """Start 1; the function returned gives the matrices that this rank owns, whole."""
    ranks = _replica(layout)
    mine = [m for _, m in each.owned(layout.rank)]
    to = [[pieces[i] for i, _ in each.owned(rank)] for rank in ranks]
    sizes = [[m.rows[t] * m.cols for m in mine] for t in range(layout.shards)]
    wait = _exchange(layout.shard_group, to, sizes, empty)

    def arrived() -> list[Tensor]:
        by_matrix = zip(*wait(), strict=True)  # S parts of each
        return [
            torch.cat([part.view(-1, m.cols) for part in parts if part.numel()])
            if m.m and m.cols
            else empty.view(m.m, m.cols)
            for m, parts in zip(mine, by_matrix, strict=True)
        ]

    return arrived


def _send_out(each: ShapeClass, done: list[Tensor], layout: Layout, empty):
    """Start 3; the function returned gives this rank's rows of its replica's share."""
    mine = [m for _, m in each.owned(layout.rank)]
    cut = [d.split(list(m.rows)) for d, m in zip(done, mine, strict=True)]
    to = [[parts[t] for parts in cut] for t in range(layout.shards)]
    sources = [[rank] for rank in _replica(layout)]
    return _exchange_rows(each, layout, layout.shard_group, to, sources, empty)


def _spread(each: ShapeClass, own: list, layout: Layout, empty):
    """Start 4; the function returned gives this rank's rows of the whole class."""
    R, S = layout.replicas, layout.shards
    if R == 1:
        return lambda: own
    to = [[piece for _, piece in own]] * R
    sources = [list(range(q * S, (q + 1) * S)) for q in range(R)]
    return _exchange_rows(each, layout, layout.replica_group, to, sources, empty)


def _replica(layout: Layout) -> range:
    """The numbers of the ranks that share a copy with this one."""
    first = layout.place[0] * layout.shards
    return range(first, first + layout.shards)


def _exchange_rows(each: ShapeClass, layout: Layout, group, to, sources, empty):
    """Exchange; what comes are this rank's rows of the matrices that each source made.

    The function returned waits, and gives (position, (rows, n)) of each matrix.
    """
    _, s = layout.place
    coming = [
        [pair for rank in ranks for pair in each.owned(rank)] for ranks in sources
    ]
    sizes = [[m.rows[s] * m.cols for _, m in some] for some in coming]
    wait = _exchange(group, to, sizes, empty)

    def arrived() -> list[tuple[int, Tensor]]:
        return [
            (i, part.view(m.rows[s], m.cols))
            for some, parts in zip(coming, wait(), strict=True)
            for (i, m), part in zip(some, parts, strict=True)
        ]

    return arrived


def _exchange(group, to: list[list[Tensor]], sizes: list[list[int]], empty: Tensor):
    """Start one all-to-all of unequal pieces.

    Args:
        group: Its ranks, or None for one rank.
        to: What goes to each rank.
        sizes: Entries of each piece that comes from each rank.
        empty: Of the dtype and device of all pieces.

    Returns:
        A function that waits and gives what came, flat, by rank and piece. It keeps
        the buffers alive until then.
    """
    flat = [piece.reshape(-1) for pieces in to for piece in pieces]
    if group is None:
        return lambda: [flat]
    sent = torch.cat([empty, *flat])
    counts = [sum(piece.numel() for piece in pieces) for pieces in to]
    expected = [sum(some) for some in sizes]
    received = empty.new_empty(sum(expected))
    work = dist.all_to_all_single(
        received, sent, expected, counts, group=group, async_op=True
    )

    alive = [sent]  # what is being sent must outlive this call

    def wait() -> list[list[Tensor]]:
        work.wait()
        alive.clear()
        parts = iter(received.split([size for some in sizes for size in some]))
        return [[next(parts) for _ in some] for some in sizes]

    return wait
