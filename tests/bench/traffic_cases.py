"""What ranks run: communication of known size, and steps to compare."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from stacklm.bench import count_collectives, mesh_of, prepare_step
from stacklm.bench.steps import gaussian


def uneven():
    """Rank s sends 8-byte rows of three: s+1 to rank 0, and one to each other."""
    me, size = dist.get_rank(), dist.get_world_size()
    go = [me + 1, *[1] * (size - 1)]
    come = [s + 1 for s in range(size)] if me == 0 else [1] * size
    source = torch.zeros(sum(go), 3, dtype=torch.float64)
    output = torch.empty(sum(come), 3, dtype=torch.float64)
    dist.all_to_all_single(output, source, come, go)
    functional.all_to_all_single(source, come, go, dist.group.WORLD).clone()


def even():
    dist.all_to_all_single(torch.empty(8), torch.zeros(8))


def gathers():
    pieces = [torch.empty(5) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, torch.zeros(5))
    functional.all_gather_tensor(torch.zeros(5), 0, dist.group.WORLD).clone()


def reductions():
    dist.all_reduce(torch.zeros(6))
    functional.all_reduce(torch.zeros(6), "sum", dist.group.WORLD).clone()
    functional.reduce_scatter_tensor(torch.zeros(8), "sum", 0, dist.group.WORLD).clone()


def from_one():
    dist.broadcast(torch.zeros(7), src=2)
    source = [torch.zeros(2)] * dist.get_world_size() if dist.get_rank() == 1 else None
    dist.scatter(torch.empty(2), source, src=1)


def messages():
    """Around the ring, batched; then one message from rank 0 to rank 1; a barrier."""
    me, size = dist.get_rank(), dist.get_world_size()
    right, left = (me + 1) % size, (me - 1) % size
    ops = [
        dist.P2POp(dist.isend, torch.zeros(4), right),
        dist.P2POp(dist.irecv, torch.empty(4), left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if me == 0:
        dist.send(torch.zeros(3, dtype=torch.bfloat16), 1)
    if me == 1:
        dist.recv(torch.empty(3, dtype=torch.bfloat16))
    dist.barrier()


def to_one():
    pieces = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.gather(torch.zeros(1), pieces if dist.get_rank() == 0 else None)


def counted(run):
    return count_collectives(run)


def by_comm_debug_mode(run):
    with CommDebugMode() as mode:
        run()
    return mode.get_total_counts()


def distance(name, shapes, steps=3):
    """From where our Muon in one process arrives, relative to the way there."""
    step, params = prepare_step(name, shapes, mesh_of())
    alone, same = prepare_step("stacklm", shapes)
    start = [q.detach().clone() for q in same]
    for number in range(steps):
        # New gradients for every step, or momentum would only repeat them.
        for p, q, g in zip(params, same, gaussian(shapes, 100 + number), strict=True):
            q.grad = g
            p.grad = distribute_tensor(
                g, p.device_mesh, p.placements, src_data_rank=None
            )
        step()
        alone()
    worst = 0.0
    for p, q, begin in zip(params, same, start, strict=True):
        gap, way = (p.full_tensor() - q).norm(), (q - begin).norm()
        worst = max(worst, (gap / way).item())
    return worst
