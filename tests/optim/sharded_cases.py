"""Steps of Muon that several ranks take together, beside the same by one process."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from stacklm.optim import Muon

# 4 ranks hold 18 rows as 5, 5, 5, 3; 5 rows as 2, 2, 1, 0; 3 rows as 1, 1, 1, 0.
SHAPES = [(16, 16), (18, 40), (40, 18), (5, 32), (32, 5), (3, 16), (16, 16), (16, 16)]


def full(shapes, seed, dtype=torch.float32):
    """Tensors that are the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


def laid_out(mesh, tensors, placements):
    """Parameters: DTensors, or plain copies if there are no placements."""
    if placements is None:
        return [torch.nn.Parameter(t.clone()) for t in tensors]
    return [
        torch.nn.Parameter(
            distribute_tensor(t.clone(), mesh, placements, src_data_rank=None)
        )
        for t in tensors
    ]


def whole(t):
    t = t.detach()
    return t.full_tensor() if hasattr(t, "full_tensor") else t.clone()


def give(params, gradients, mesh, placements):
    for p, g in zip(params, gradients, strict=True):
        if g is None:
            p.grad = None
        elif placements is None:
            p.grad = g.clone()
        else:
            p.grad = distribute_tensor(g, mesh, placements, src_data_rank=None)


def placements_of(mesh, kind):
    shard = [Shard(0)] if mesh.ndim == 1 else [Replicate(), Shard(0)]
    return {"fsdp": shard, "copies": [Replicate()] * mesh.ndim, "plain": None}[kind]


def compare(
    form, shapes, kind="fsdp", dtype=torch.float32, steps=10, missing=(), **options
):
    """The largest differences in weights and momentum from one process."""
    names = ("replicate", "shard")[2 - len(form) :]
    mesh = init_device_mesh("cpu", form, mesh_dim_names=names)
    placements = placements_of(mesh, kind)
    start = full(shapes, 0, dtype)
    params = laid_out(mesh, start, placements)
    alone = [torch.nn.Parameter(t.clone()) for t in start]
    stacked = {"stacked": True} if len(shapes[0]) == 3 else {}
    ours = Muon([{"params": params, **stacked}], mesh=mesh, **options)
    one = Muon([{"params": alone, **stacked}], **options)
    for step in range(steps):
        gradients = full(shapes, 100 + step, dtype)
        gradients = [None if i in missing else g for i, g in enumerate(gradients)]
        give(params, gradients, mesh, placements)
        give(alone, gradients, mesh, None)
        ours.step()
        one.step()
    gaps = {"weights": 0.0, "momentum": 0.0}
    for p, q in zip(params, alone, strict=True):
        pairs = {"weights": (p, q)}
        if q in one.state:
            buffers = [m.state[x]["momentum_buffer"] for m, x in ((ours, p), (one, q))]
            pairs["momentum"] = buffers
            assert buffers[0].dtype == buffers[1].dtype
        for what, (a, b) in pairs.items():
            gap = (whole(a).double() - whole(b).double()).abs().max().item()
            gaps[what] = max(gaps[what], gap)
    return gaps
