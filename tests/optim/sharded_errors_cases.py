"""Ranks that differ in what they are about to do, and what they say then."""

import os
import signal

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from stacklm.optim import Muon
from tests.optim.sharded_cases import (
    full,
    laid_out,
    mesh_of,
    prepared,
    whole,
)

SHAPES = [(16, 16), (18, 24), (24, 18)]


def said(call, *args, **kwargs):
    """The error that a call raises, or an empty text."""
    try:
        call(*args, **kwargs)
    except (TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def missing_gradient(kind):
    muon, params = prepared((4,), kind, SHAPES)
    if dist.get_rank() == 2:
        params[1].grad = None
    return said(muon.step)


def differ(case):
    """One rank has another shape, rate, option or number of parameters."""
    rank = dist.get_rank()
    shapes, options = list(SHAPES), {}
    if case == "shape" and rank == 3:
        shapes[0] = (16, 24)
    if case == "count" and rank != 2:
        shapes.append((16, 16))
    if case == "lr":
        options = {"lr": 0.01 if rank == 1 else 0.02}
    if case == "ns_steps":
        options = {"ns_steps": 6 if rank == 1 else 5}
    muon, _ = prepared((4,), "plain", shapes, **options)
    return said(muon.step)


def sparse_on_one():
    muon, params = prepared((4,), "plain", SHAPES)
    if dist.get_rank() == 1:
        params[0].grad = params[0].grad.to_sparse()
    return said(muon.step)


def goes_on_after_an_error():
    muon, params = prepared((4,), "fsdp", SHAPES)
    before = [whole(p) for p in params]
    kept = params[1].grad
    if dist.get_rank() == 2:
        params[1].grad = None
    failed = said(muon.step)
    same = all(torch.equal(whole(p), b) for p, b in zip(params, before, strict=True))
    params[1].grad = kept
    muon.step()
    moved = [not torch.equal(whole(p), b) for p, b in zip(params, before, strict=True)]
    return bool(failed) and same and all(moved) and muon.state[params[0]] != {}


def refused():
    """Errors by what is wrong."""
    one, two = mesh_of((4,)), mesh_of((2, 2))
    square = full([(16, 16)], 0)

    def with_placements(mesh, *placements):
        if placements == (Partial(),):
            p = DTensor.from_local(square[0], mesh, placements)
            return said(Muon, [torch.nn.Parameter(p)])
        return said(Muon, laid_out(mesh, square, placements))

    descending = DeviceMesh("cpu", [3, 2, 1, 0])
    muon, params = prepared((4,), "fsdp", SHAPES)
    params[0].grad = params[0].grad.redistribute(placements=[Replicate()])
    return {
        "columns": with_placements(one, Shard(1)),
        "partial": with_placements(one, Partial()),
        "twice": with_placements(two, Shard(0), Shard(0)),
        "order": with_placements(two, Shard(0), Replicate()),
        "descending": with_placements(descending, Shard(0)),
        "mesh": said(Muon, laid_out(one, square, None), mesh=4),
        "gradient": said(muon.step),
    }


def one_stays_away():
    muon, _ = prepared((3,), "fsdp", SHAPES)
    muon.step()
    return "" if dist.get_rank() == 1 else said(muon.step)


def one_is_killed():
    muon, _ = prepared((3,), "fsdp", SHAPES)
    muon.step()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return said(muon.step)


def step_beside_other_groups():
    """A step on ranks of which one is in a group that the others are not in."""
    dist.new_group([0])
    muon, _ = prepared((3,), "fsdp", SHAPES)
    return said(muon.step)
