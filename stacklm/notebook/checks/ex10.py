"""Exercise 10: collectives of a sharded step, matrix by matrix and in stacks."""

from functools import lru_cache

import torch

from stacklm.notebook.checking import Check, Mistake

RANKS = 4


@lru_cache(maxsize=64)
def count_alone(m: int, n: int, steps: int) -> int:
    """Count what torch.optim.Muon asks of others for one matrix cut by rows.

    A process group that only pretends to have other ranks is enough to count: it
    answers at once, and DTensor plans the same collectives as for real ones.

    Args:
        m: Rows, at least as many as ranks.
        n: Columns.
        steps: Newton–Schulz steps.

    Returns:
        Collectives of one optimizer step.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        mesh = init_device_mesh("cpu", (RANKS,))
        W, G = (
            distribute_tensor(torch.ones(m, n), mesh, [Shard(0)], src_data_rank=None)
            for _ in range(2)
        )
        W = torch.nn.Parameter(W)
        W.grad = G
        muon = torch.optim.Muon([W], ns_steps=steps)
        with CommDebugMode() as seen:
            muon.step()
    finally:
        dist.destroy_process_group()
    return seen.get_total_counts()


def _alone(m, n, steps, wide=3, tall=2, norm=1, is_tall=lambda m, n: m > n):
    return norm + steps * (tall if is_tall(m, n) else wide)


ALONE = Check(
    key="10a",
    task="leaf_collectives(m, n, steps)",
    cases=lambda: [(16, 16, 5), (8, 16, 5), (16, 8, 5), (8, 16, 3), (24, 8, 1)],
    expected=count_alone,
    verified="A step of torch.optim.Muon, counted, asks for as many.",
    mistakes=(
        Mistake(
            "norm forgotten",
            lambda m, n, steps: _alone(m, n, steps, norm=0),
            "You count the iteration only. Before it the matrix is divided by its "
            "norm, of which each rank has a part.",
        ),
        Mistake(
            "one a step",
            lambda m, n, steps: _alone(m, n, steps, wide=1, tall=1),
            "One collective a step would do if what was gathered were kept. DTensor "
            "keeps nothing: each product asks again.",
        ),
        Mistake(
            "tall as wide",
            lambda m, n, steps: _alone(m, n, steps, tall=3),
            "You treat tall matrices like wide ones. A tall one is transposed first, "
            "so its columns are cut; then X times its transpose is a sum over ranks.",
        ),
        Mistake(
            "tall and wide exchanged",
            lambda m, n, steps: _alone(m, n, steps, wide=2, tall=3),
            "You have the two cases exchanged: the wide matrix needs more.",
        ),
        Mistake(
            "square as tall",
            lambda m, n, steps: _alone(m, n, steps, is_tall=lambda m, n: m >= n),
            "A square matrix is not transposed; count it as a wide one.",
        ),
    ),
)

# Stack-100M with every side divided by eight: DTensor plans large matrices otherwise.
BLOCK = [(64, 64), (16, 64), (16, 64), (64, 64), (176, 64), (176, 64), (64, 176)]
NARROW = BLOCK * 30


def _small():
    return [(16, 16), (16, 8), (8, 16), (16, 8), (16, 16)]


def _sum(shapes, steps, of=_alone):
    return sum(of(m, n, steps) for m, n in shapes)


BEFORE = Check(
    key="10b",
    task="before(shapes, steps)",
    cases=lambda: [(_small(), 5), (_small(), 2), (list(NARROW), 5)],
    expected=lambda shapes, steps: _sum(shapes, steps, count_alone),
    verified="Steps of torch.optim.Muon, counted for each form, add up to your sum.",
    mistakes=(
        Mistake(
            "once per shape",
            lambda shapes, steps: _sum(set(shapes), steps),
            "You count each shape once. Nothing is shared between matrices here, so "
            "each of them pays.",
        ),
        Mistake(
            "all as wide",
            lambda shapes, steps: len(shapes) * _alone(1, 1, steps),
            "You count every matrix as a wide one; tall ones ask for fewer.",
        ),
        Mistake(
            "norms forgotten",
            lambda shapes, steps: _sum(shapes, steps) - len(shapes),
            "The norm of each matrix is missing.",
        ),
        Mistake(
            "five steps",
            lambda shapes, steps: _sum(shapes, 5),
            "You always count five steps. Pass the number on.",
        ),
    ),
)


def _pieces_that_move(shapes, replicas, shards):
    """Walk over all matrices and list (class, stage, from, to) of what must move.

    One exchange serves all pieces of a class and a stage. Every matrix has rows on each
    shard here, and each rank makes some matrices of a class.
    """
    moves = set()
    for m, n in shapes:
        kind = frozenset((m, n))
        for maker in range(replicas * shards):
            r, s = divmod(maker, shards)
            for other in range(shards):
                if other != s:
                    moves.add((kind, "in", (r, other), (r, s)))
                    moves.add((kind, "out", (r, s), (r, other)))
            for q in range(replicas):
                if q != r:
                    moves.add((kind, "spread", (r, s), (q, s)))
    return len({(kind, stage) for kind, stage, _, _ in moves})


def _after(shapes, replicas, shards, key=lambda m, n: (min(m, n), max(m, n))):
    classes = len({key(m, n) for m, n in shapes})
    return classes * (2 * (shards > 1) + (replicas > 1))


AFTER = Check(
    key="10c",
    task="after(shapes, replicas, shards)",
    cases=lambda: [
        (_small(), 1, 4),
        (_small(), 2, 4),
        (_small() * 3, 4, 1),
        (list(NARROW), 1, 8),
        (list(NARROW), 2, 4),
        (_small(), 1, 1),
    ],
    expected=_pieces_that_move,
    verified=(
        "A list of all pieces that move, rank by rank, falls into as many exchanges."
    ),
    mistakes=(
        Mistake(
            "one per matrix",
            lambda shapes, replicas, shards: (
                len(shapes) * (2 * (shards > 1) + (replicas > 1))
            ),
            "You count an exchange for every matrix. One exchange carries the whole "
            "class.",
        ),
        Mistake(
            "tall and wide apart",
            lambda shapes, replicas, shards: _after(
                shapes, replicas, shards, key=lambda m, n: (m, n)
            ),
            "You count tall and wide matrices of the same sides as two classes. Laid "
            "wide they are one.",
        ),
        Mistake(
            "way out forgotten",
            lambda shapes, replicas, shards: (
                _after(shapes, replicas, shards) - _after(shapes, 1, shards) // 2
            ),
            "You bring the matrices together and leave them there. The rows of the "
            "result must go back.",
        ),
        Mistake(
            "replicas forgotten",
            lambda shapes, replicas, shards: _after(shapes, 1, shards),
            "Replicas share the work, so each must hear what the others made: one more "
            "exchange per class where there are several.",
        ),
        Mistake(
            "one rank exchanges",
            lambda shapes, replicas, shards: _after(shapes, replicas, 2),
            "You count exchanges among one shard. If every rank has whole matrices, "
            "nothing goes in or out.",
        ),
    ),
)

CHECKS = (ALONE, BEFORE, AFTER)
