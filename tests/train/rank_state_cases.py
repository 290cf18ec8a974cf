"""What ranks do in the tests with weights in parts: QK-clip, DCP, mistakes."""

import math
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from stacklm.config import toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.optim import qk_clip_
from stacklm.train import (
    Checkpoint,
    World,
    launch,
    optimizer_step,
    restore,
    save_checkpoint,
    validate,
    world_of,
)
from stacklm.train.feed import micro_batches
from stacklm.train.states import gather
from tests.train.rank_cases import (
    PEAKS,
    STEP,
    Ragged,
    error_of,
    first_ranks,
    make,
    mesh_of,
)

# Over 4 ranks: gains of 10 as 3, 3, 3, 1; of 3 heads as 1, 1, 1, 0 and of 6 as 2, 2,
# 2, 0; the 30 rows of W_k, in heads of 10, as 8, 8, 8, 6.
HEADS = {"n_heads": 6, "n_kv_heads": 3, "head_dim": 10, "d_model": 24}
FORMS = {
    "shared": {},
    "per head": {"per_head_gains": True},
    "projections": {"qk_norm": False},
}


def maxima():
    """(layers, heads) of all ranks together; about half of them are above 2."""
    generator = torch.Generator().manual_seed(0)
    found = 2 * torch.randn(2, 6, generator=generator).exp()
    found[1, :4] = -math.inf  # not measured
    return found


def own_maxima(world):
    """What a rank saw: the largest logit of every head was seen by one rank only."""
    seen = torch.arange(12).view(2, 6) % world.size == world.rank
    return torch.where(seen, maxima(), 0.3 * maxima())


def to_clip(world, kind):
    torch.manual_seed(0)
    return world.shard(Stack100M(toy_config(**HEADS, **FORMS[kind])))


def whole(model):
    return {
        name: p.full_tensor() if hasattr(p, "full_tensor") else p
        for name, p in model.state_dict().items()
    }


def clipped(form, kind, given="tensor"):
    """How many layers fired, the end, and what went over the group."""
    world = World() if form is None else world_of(mesh_of(form))
    model, own = to_clip(world, kind), own_maxima(world)
    if given == "record":
        record = LogitRecord(2, 6)
        record.maxima.copy_(own)
    else:
        record = own if given == "tensor" else dict(enumerate(own))
    sent, real = [], dist.all_reduce

    def counted(tensor, *args, **kwargs):
        sent.append(tensor.numel())
        return real(tensor, *args, **kwargs)

    dist.all_reduce = counted
    try:
        fired = qk_clip_(model, record, 2.0, group=world.group)
    finally:
        dist.all_reduce = real
    return fired, whole(model), sent


def clipped_in_pairs():
    """Each pair of ranks saw a large logit in one layer; which layers shrank."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair, second = divmod(dist.get_rank(), 2)
    own = torch.zeros(2, 6)
    own[pair, 0] = 400.0 * second
    model = to_clip(World(), "shared")
    gains = [f"blocks.{layer}.attn.q_norm.weight" for layer in (0, 1)]
    before = [whole(model)[name].clone() for name in gains]
    fired = qk_clip_(model, own, group=pairs[pair])
    after = [whole(model)[name] for name in gains]
    return fired, [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]


def clipped_with_nan(kind):
    """NaN on rank 1: the error, and whether anything changed."""
    world = world_of()
    model, own = to_clip(world, kind), own_maxima(world)
    before = whole(model)
    if world.rank == 1:
        own[0, 3] = math.nan
    error = error_of(qk_clip_, model, own, 2.0, group=world.group)
    after = whole(model)
    return error, all(torch.equal(before[name], after[name]) for name in before)


def clip_columns():
    """Weights whose pieces are no rows."""
    from torch.distributed.tensor import DTensor, Partial

    world = world_of()
    model = Stack100M(toy_config(qk_norm=False))
    for block in model.blocks:
        weight = block.attn.wq.weight.detach()
        part = DTensor.from_local(weight, world.mesh, [Partial()])
        block.attn.wq.weight = torch.nn.Parameter(part)
    return error_of(qk_clip_, model, torch.full((2, 4), 9.0), 2.0)


def by_dcp(folder):
    """Written by 4 ranks, read by 2, written by them, read by 1.

    Returns:
        For each number of ranks that this rank is among: names of tensors that differ
        from those that 4 ranks had, and the loss of the step after.
    """
    found, wanted = {}, None
    for ranks, before in ((4, None), (2, 4), (1, 2)):
        mesh = first_ranks(ranks)  # made by all
        if mesh is not None:
            world = world_of(mesh)
            trained = make(world, torch.float32)
            group = {"process_group": world.group} if ranks > 1 else {"no_dist": True}
            if before is None:
                for step in range(2):
                    take(trained, step, world)
            else:
                take(trained, 5, world)  # another state, to be replaced
                load(folder / str(before), trained, group)
            states = {n: t.clone() for n, t in gather(*trained, keep=True).items()}
            wanted = wanted or states
            differing = [
                name
                for name, tensor in wanted.items()
                if not torch.equal(tensor, states.get(name, torch.empty(0)))
            ]
            dcp.save(dict_of(trained), checkpoint_id=folder / str(ranks), **group)
            found[ranks] = differing, take(trained, 2, world)
        dist.barrier()
    return found


def take(trained, step, world):
    model, *pair = trained
    batches = micro_batches(Ragged(), STEP, step, world)
    log = optimizer_step(model, batches, *pair, PEAKS, step, STEP, world=world)
    return log.loss


def dict_of(trained):
    model, *pair = trained
    weights, states = get_state_dict(model, pair)
    return {"model": weights, "optimizers": states}


def load(folder, trained, group):
    model, *pair = trained
    state = dict_of(trained)
    dcp.load(state, checkpoint_id=folder, **group)
    set_state_dict(
        model,
        pair,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizers"],
    )


def refused_meshes():
    names = ("host", "replicate", "shard")
    three = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=names)
    return {
        "outside": error_of(world_of, DeviceMesh("cpu", [3])),
        "three": error_of(world_of, three),
        "part": error_of(world_of, three["replicate", "shard"]),
        "kind": error_of(world_of, init_device_mesh("cpu", (4,)), "cuda"),
    }


def alone_with_a_model_of_many():
    """What each call says that was not told of the other ranks."""
    trained = make(world_of())
    batch = Ragged().batch(0, batch_size=2, seq_len=8, seed=0)
    step = (trained[0], [batch], *trained[1:], PEAKS, 0, STEP)
    nowhere = Path("nowhere")
    empty = Checkpoint(nowhere, 0, {}, {})
    return [
        error_of(optimizer_step, *step),
        error_of(validate, trained[0], [batch]),
        error_of(save_checkpoint, nowhere, 0, *trained, state={}),
        error_of(restore, empty, *trained),
    ]


def timeouts_of_replicas():
    """Of the groups that --replicas makes, in seconds, and the form of the mesh."""
    mesh = launch._mesh("cpu", 2, timedelta(seconds=17))
    groups = [mesh.get_group(name) for name in ("replicate", "shard")]
    backends = [group._get_backend(torch.device("cpu")) for group in groups]
    waits = [backend.options._timeout.total_seconds() for backend in backends]
    return waits, [dist.get_process_group_ranks(group) for group in groups]
