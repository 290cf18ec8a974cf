"""How long a sharded step of Muon takes, from what it has to do.

    seconds = FLOPs * s_F + bytes sent * s_B + messages * s_M + bytes touched * s_T

Each amount is that of the busiest rank, or, where W ranks share C cores, a core's part
of what all ranks do, if that is more:

    amount = max(of the busiest rank, of all ranks / C)

The four s are seconds per unit of a machine: found by least squares from a few measured
steps, or taken from data sheets. Nothing is assumed to overlap, although a class is
iterated on while others travel, so an ideal machine would be somewhat faster.

Legend: R replicas of S shards, W = R*S ranks on C cores; m x n matrices.
Units: FLOPs, bytes, messages (one rank to one other), seconds.
Sources: Hockney 1994 for latency and bandwidth; Williams et al. 2009 for FLOPs and
bytes touched. Taught in chapter 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations

import torch
from torch import Tensor

from stacklm.optim import choose_method, newton_schulz_flops
from stacklm.optim.layout import Matrix, chunks
from stacklm.optim.sharded import schedule

TERMS = ("products", "wire", "messages", "memory")
# How often an entry is read or written, in passes over whole tensors of a step:
# where its row lives (momentum 5, look-ahead 3, packing 2, scale and rate 4, decay 2,
# step 3), and where its matrix is orthogonalized (unpacking 2, stack 2, unit_norm 8,
# restoring 2, packing 2).
AT_HOME, AT_OWNER = 19, 16


@dataclass(frozen=True)
class Work:
    """What a step has to do; four amounts in the order of ``TERMS``."""

    ranks: int
    """W."""
    busiest: tuple[float, ...]
    """Of each, what the rank has that has most of it."""
    total: tuple[float, ...]
    """Of each, what all ranks have."""

    def amounts(self, cores: int | None) -> tuple[float, ...]:
        """What decides how long the step takes.

        Args:
            cores: C, shared by the ranks; None: a device for each.
        """
        if cores is None:
            return self.busiest
        pairs = zip(self.busiest, self.total, strict=True)
        return tuple(max(most, total / cores) for most, total in pairs)


@dataclass(frozen=True)
class Machine:
    """Seconds per unit; 0 for what was not found to cost anything."""

    per_flop: float
    per_wire_byte: float
    per_message: float
    per_memory_byte: float
    cores: int | None = None
    """That all ranks share; None: a device for each rank."""


def predict(work: Work, machine: Machine) -> dict[str, float]:
    """Seconds of a step, by term.

    Args:
        work: What it has to do.
        machine: Where.

    Returns:
        ``{term: seconds}``; the step takes their sum.
    """
    rates = astuple(machine)[: len(TERMS)]
    parts = zip(TERMS, work.amounts(machine.cores), rates, strict=True)
    return {term: amount * rate for term, amount, rate in parts}


def cpu_flops(m: int, n: int) -> int:
    """FLOPs of the form that "auto" picks for an fp32 matrix on a CPU."""
    r, c = min(m, n), max(m, n)
    form = choose_method(r, c, torch.float32, torch.device("cpu"))
    return newton_schulz_flops(m, n, method=form)


def work_of(
    shapes: Sequence[tuple[int, int]],
    shards: int,
    replicas: int = 1,
    *,
    flops: Callable[[int, int], int] = newton_schulz_flops,
    itemsize: int = 4,
    out_itemsize: int | None = None,
) -> Work:
    """What a step of ``Muon`` has to do, by its own schedule.

    Args:
        shapes: (m, n) of every matrix.
        shards: Shards, S of them.
        replicas: Replicas, R of them.
        flops: Of orthogonalizing an m x n matrix.
        itemsize: Bytes of an entry at home and on its way in.
        out_itemsize: Bytes of an entry on its way out; None: as on its way in.

    Returns:
        Its amounts.
    """
    matrices = tuple(Matrix(chunks(m, shards), n) for m, n in shapes)
    costs = tuple(flops(m, n) for m, n in shapes)
    back = itemsize if out_itemsize is None else out_itemsize
    tally = _Tally(replicas, shards, itemsize, back)
    for each in schedule(matrices, costs, replicas, shards):
        tally.exchanges(set(each.owners))
        for i, owner in zip(each.members, each.owners, strict=True):
            tally.matrix(matrices[i], owner, costs[i])
    return tally.work()


class _Tally:
    """What rank (r, s) does: FLOPs, messages, bytes touched; bytes sent, by phase."""

    def __init__(self, replicas: int, shards: int, itemsize: int, back: int):
        self.form = replicas, shards
        self.itemsize, self.back = itemsize, back
        self.done, self.told, self.touched = (_zeros(*self.form) for _ in range(3))
        self.gone, self.come = torch.zeros(2, 3, *self.form, dtype=torch.float64)

    def exchanges(self, owners: set[int]) -> None:
        """Count the messages of a class: in, out, and to the other replicas."""
        self.told += 2 * _peers(owners, *self.form)
        if self.form[0] > 1:
            self.told += _peers_across(owners, *self.form)

    def matrix(self, matrix: Matrix, owner: int, cost: int) -> None:
        """Count what a matrix costs its owner, and those that have its rows."""
        replicas, shards = self.form
        gone, come, back = self.gone, self.come, self.back
        r, s = divmod(owner, shards)
        entries = torch.tensor(matrix.rows, dtype=torch.float64) * matrix.cols
        self.done[r, s] += cost
        self.touched += AT_HOME * self.itemsize * entries
        self.touched[r, s] += AT_OWNER * self.itemsize * entries.sum()
        away = entries.clone()
        away[s] = 0
        gone[0, r] += away * self.itemsize  # in
        come[0, r, s] += away.sum() * self.itemsize
        gone[1, r, s] += away.sum() * back  # out
        come[1, r] += away * back
        gone[2, r] += (replicas - 1) * entries * back  # to the other replicas
        come[2] += entries * back
        come[2, r] -= entries * back

    def work(self) -> Work:
        """All of it."""
        world = self.done.numel()
        if world > 1:
            self.told += 2 * math.ceil(math.log2(world))  # the ranks agree first
        # Links send and receive at once, but a phase begins when the last has ended.
        wire = torch.maximum(self.gone, self.come).sum(0)
        most = (self.done, wire, self.told, self.touched)
        all_of_it = (self.done, self.gone, self.told, self.touched)
        return Work(
            world,
            tuple(each.max().item() for each in most),
            tuple(each.sum().item() for each in all_of_it),
        )


def _zeros(replicas: int, shards: int) -> Tensor:
    return torch.zeros(replicas, shards, dtype=torch.float64)


def _peers(owners: set[int], replicas: int, shards: int) -> Tensor:
    """Of each rank, with how many of its replica it exchanges rows of a class."""
    found = _zeros(replicas, shards)
    for r in range(replicas):
        here = {owner - r * shards for owner in owners if owner // shards == r}
        for s in range(shards):
            found[r, s] = shards - 1 if s in here else len(here)
    return found


def _peers_across(owners: set[int], replicas: int, shards: int) -> Tensor:
    """Of each rank, with how many other replicas it exchanges results of a class."""
    makers = {owner // shards for owner in owners}
    found = _zeros(replicas, shards)
    for r in range(replicas):
        found[r] = replicas - 1 if r in makers else len(makers)
    return found


def calibrate(
    observed: Sequence[tuple[Work, float]], cores: int | None = None
) -> Machine:
    """Find the machine that explains measured steps best.

    Least squares of the relative error, and no rate below zero. With four rates every
    set of terms can be tried, which is exact: the best whose rates are all positive.

    Args:
        observed: What each step had to do, and its seconds; at least four.
        cores: C, shared by the ranks; None: a device for each.

    Returns:
        The machine.

    Raises:
        ValueError: There are fewer steps than rates, or a time is not positive.
    """
    if len(observed) < len(TERMS):
        raise ValueError(
            f"calibrate finds {len(TERMS)} rates, so it takes at least as many steps, "
            f"got {len(observed)}; measure more sizes or numbers of ranks"
        )
    if any(seconds <= 0 for _, seconds in observed):
        raise ValueError(f"seconds must be positive, got {[s for _, s in observed]}")
    rows = [[a / s for a in work.amounts(cores)] for work, s in observed]
    A = torch.tensor(rows, dtype=torch.float64)
    unit = A.amax(0).clamp(min=1e-300)  # FLOPs and messages are far apart
    rates = _nonnegative_least_squares(A / unit) / unit
    return Machine(*rates.tolist(), cores=cores)


def _nonnegative_least_squares(A: Tensor) -> Tensor:
    """x >= 0 with the least ||A x - 1||, by trying every set of columns."""
    count = A.size(1)
    best, least = torch.zeros(count, dtype=A.dtype), math.inf
    for size in range(1, count + 1):
        for some in map(list, combinations(range(count), size)):
            part = A[:, some]
            x = torch.linalg.lstsq(part, torch.ones(len(A), 1, dtype=A.dtype)).solution
            error = (part @ x - 1).square().sum().item()
            if (x >= 0).all() and error < least:
                least, best = error, torch.zeros(count, dtype=A.dtype)
                best[some] = x[:, 0]
    return best
