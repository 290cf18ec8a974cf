"""What torchrun started: a device for each rank, and process groups of all of them.

    torchrun --nproc-per-node 4 -m stacklm.train --config toy

torchrun tells each process its place by variables of the environment: RANK of
WORLD_SIZE, LOCAL_RANK of LOCAL_WORLD_SIZE on its machine. Tensors on GPUs travel by
nccl, those on the CPU by gloo, so that both run alike. Taught in chapter 13.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from stacklm.train.lost import company
from stacklm.train.world import World, world_of

TIMEOUT = 300.0
"""How long a rank waits for another; longer than any checkpoint takes (seconds)."""


def launched_rank() -> int:
    """The rank of this process; 0 without torchrun, and where it started only one."""
    return int(os.environ.get("RANK", "0")) if _size() > 1 else 0


def leave(status: int) -> NoReturn:
    """End the process; a rank ends at once, without Python's own last steps.

    gloo's threads outlive ``destroy_process_group``, since DTensor's caches keep the
    group. If one lets go of a tensor while Python takes itself apart, the process ends
    by SIGABRT, "terminate called without an active exception", after a whole run.
    Source: pytorch/pytorch 179291, 190489.

    Args:
        status: What the process reports, 0 for done.
    """
    if _size() == 1:
        sys.exit(status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def launched(
    device: str | None, timeout: float, replicas: int, out: str | os.PathLike
) -> Iterator[World]:
    """Join the other ranks, and leave them at the end; as a context manager.

    Without torchrun, and with a single rank, there is no process group. After an error
    the groups are left to end with the process: others may still be waiting in one.

    Args:
        device: "cpu", "cuda", … or None for a GPU if there is one.
        timeout: Of every collective, in every group (seconds).
        replicas: R, copies of the model, each cut over WORLD_SIZE / R ranks.
        out: Folder of the run, for errors.

    Raises:
        LostRankError: A rank did not come within the timeout.
        ValueError: An argument that does not fit the ranks or the GPUs.
    """
    size = _size()
    _check(timeout, replicas, size)
    if size == 1:
        yield world_of(device=device)
        return
    place = _device(device)
    wait = timedelta(seconds=timeout)
    with company(World(rank=launched_rank(), size=size), out):
        backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=wait)
        yield world_of(_mesh(place.type, replicas, wait), place)
        dist.destroy_process_group()


def _check(timeout: float, replicas: int, size: int) -> None:
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(
            f"--timeout must be finite and above 0 seconds, got {timeout}; leave it "
            f"out for {TIMEOUT:.0f}"
        )
    if replicas < 1 or size % replicas:
        raise ValueError(
            f"--replicas must divide the {size} ranks evenly, got {replicas}; leave it "
            f"out for one copy over all of them"
        )


def _device(device: str | None) -> torch.device:
    """The CPU, or the GPU of this rank's number on its machine."""
    found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if found.type != "cuda":
        return found
    here, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if found.index is not None:
        raise ValueError(
            f"under torchrun each rank takes the GPU of its own number, got --device "
            f"{device}; say --device cuda, and choose GPUs with CUDA_VISIBLE_DEVICES"
        )
    if here > gpus:
        raise ValueError(
            f"each rank needs a GPU of its own, got {here} ranks and {gpus} GPUs on "
            f"this machine; lower --nproc-per-node, or say --device cpu"
        )
    found = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(found)
    return found


def _mesh(kind: str, replicas: int, timeout: timedelta):
    """(shard,), or (replicate, shard) with groups that have the same timeout."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    ranks = torch.arange(dist.get_world_size()).view(replicas, -1)
    if replicas == 1:
        return init_device_mesh(kind, tuple(ranks.flatten().shape))
    groups = [
        dist.new_subgroups_by_enumeration(lines.tolist(), timeout=timeout)[0]
        for lines in (ranks.T, ranks)
    ]
    names = ("replicate", "shard")
    return DeviceMesh.from_group(groups, kind, mesh=ranks, mesh_dim_names=names)
