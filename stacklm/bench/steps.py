"""Whole steps of Muon by several ranks, each optimizer on FSDP2's own parameters.

    with Ranks(4) as ranks:
        ranks.run(step_traffic, "per leaf", [(128, 128)] * 4)   # a Traffic per rank

All begin with the same weights and get the same gradients. Functions here are what
``Ranks.run`` can be given: importable by name, with results that pickle.

Legend: m x n matrices; R replicas of S shards. Taught in chapter 13.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.optim import Optimizer

from stacklm.bench.collectives import Traffic, count_collectives
from stacklm.bench.per_leaf import PerLeafMuon
from stacklm.optim import Muon

OURS = "stacklm"
PER_LEAF = "per leaf"
TORCH = "torch.optim.Muon"
ALONE = "one process"
LR, WEIGHT_DECAY = 0.02, 0.1
# {name: parameters -> optimizer}; all take the same step up to their precision.
OPTIMIZERS: dict[str, Callable[[list], Optimizer]] = {
    OURS: lambda params: Muon(params, lr=LR, weight_decay=WEIGHT_DECAY),
    PER_LEAF: lambda params: PerLeafMuon(params, lr=LR, weight_decay=WEIGHT_DECAY),
    TORCH: lambda params: torch.optim.Muon(
        params, lr=LR, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
    ),
}


class Matrices(nn.Module):
    """Gaussian matrices and no forward pass: something for ``fully_shard`` to shard.

    Args:
        shapes: (m, n) of every matrix.
        seed: Of the numbers, the same on every rank.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], seed: int = 0):
        super().__init__()
        self.matrices = nn.ParameterList(gaussian(shapes, seed))


def gaussian(shapes: Sequence[tuple[int, int]], seed: int) -> list[Tensor]:
    """Matrices (m_i, n_i) in fp32, the same for the same seed."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng) for shape in shapes]


def prepare_step(
    name: str,
    shapes: Sequence[tuple[int, int]],
    mesh: DeviceMesh | None = None,
    *,
    seed: int = 0,
) -> tuple[Callable[[], object], list[nn.Parameter]]:
    """Build an optimizer and its parameters, with gradients in place.

    Args:
        name: One of ``OPTIMIZERS``.
        shapes: (m, n) of every matrix.
        mesh: Of ``fully_shard``, (S,) or (R, S); None: one process has all.
        seed: Of the weights; the gradients have the next one.

    Returns:
        The function that takes a step, and the parameters.

    Raises:
        ValueError: The name is unknown.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"name must be one of {list(OPTIMIZERS)}, got {name!r}")
    module = Matrices(shapes, seed)
    if mesh is not None:
        fully_shard(module, mesh=mesh)
    params = list(module.parameters())
    for p, g in zip(params, gaussian(shapes, seed + 1), strict=True):
        if mesh is not None:  # every rank cuts its own part: nothing is sent
            g = distribute_tensor(g, mesh, p.placements, src_data_rank=None)
        p.grad = g
    return OPTIMIZERS[name](params).step, params


def mesh_of(replicas: int = 1, device: str = "cpu") -> DeviceMesh:
    """All ranks as one row of shards, or as replicas of shards.

    Args:
        replicas: R; 1 for FSDP, above 1 for HSDP.
        device: Type of device that the collectives run on.

    Returns:
        A mesh (W,) or (R, W/R).

    Raises:
        ValueError: The ranks cannot be divided among so many replicas.
    """
    world = dist.get_world_size()
    if world % replicas:
        raise ValueError(
            f"replicas must divide the number of ranks, got {replicas} of {world}"
        )
    if replicas == 1:
        return init_device_mesh(device, (world,), mesh_dim_names=("shard",))
    names = ("replicate", "shard")
    return init_device_mesh(device, (replicas, world // replicas), mesh_dim_names=names)


def step_traffic(
    name: str, shapes: Sequence[tuple[int, int]], replicas: int = 1
) -> Traffic:
    """What one step asks of other ranks. Collective; for ``Ranks.run``.

    Args:
        name: One of ``OPTIMIZERS``.
        shapes: (m, n) of every matrix.
        replicas: Replicas, R of them.

    Returns:
        Counts and bytes of the second step: the first also makes groups.
    """
    step, _ = prepare_step(name, shapes, mesh_of(replicas))
    step()
    return count_collectives(step)


# What this rank has prepared: {(name, shapes, replicas): step}.
_READY: dict[tuple, Callable[[], object]] = {}


def make_ready(
    name: str, shapes: tuple[tuple[int, int], ...], replicas: int = 1
) -> None:
    """Prepare a step and take it once, which also makes groups. For ``Ranks.run``.

    Args:
        name: One of ``OPTIMIZERS``, or ``ALONE``: ours, whole, in this process.
        shapes: (m, n) of every matrix.
        replicas: Replicas, R of them.
    """
    alone = name == ALONE
    mesh = None if alone else mesh_of(replicas)
    step, _ = prepare_step(OURS if alone else name, shapes, mesh)
    step()
    _READY[name, shapes, replicas] = step


def timed_step(
    name: str,
    shapes: tuple[tuple[int, int], ...],
    replicas: int = 1,
    threads: int = 1,
) -> tuple[float, float]:
    """Take a prepared step. For ``Ranks.run``; a step lasts until the last rank ends.

    What other programs do on this machine adds to the first of the two times it
    returns, and hardly to the second.

    Args:
        name: As for ``make_ready``, which must have been called.
        shapes: (m, n) of every matrix.
        replicas: Replicas, R of them.
        threads: Of this rank.

    Returns:
        Seconds from when all ranks were there until this one was done, and seconds
        that its threads spent on a processor meanwhile.
    """
    step = _READY[name, shapes, replicas]
    torch.set_num_threads(threads)
    if dist.get_world_size() > 1:
        dist.barrier()
    start, spent = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - start, time.process_time() - spent


def forget_steps() -> None:
    """Free what was prepared. For ``Ranks.run``."""
    _READY.clear()
