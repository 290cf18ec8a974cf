"""What ranks do in the tests: steps, runs and checkpoints, also by a part of them."""

import math
import os
import signal
from dataclasses import replace

import torch
import torch._dynamo  # what an optimizer imports when it is built; takes seconds
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from stacklm.config import TrainConfig, toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.train import (
    World,
    checkpoint,
    muon_and_adamw,
    open_tokens,
    optimizer_step,
    pretrain,
    read_checkpoint,
    restore,
    validate,
    world_of,
)
from stacklm.train.data import Batch, first_row
from stacklm.train.feed import micro_batches
from stacklm.train.states import gather
from stacklm.train.validation import validation_batches
from stacklm.train.world import is_told
from tests.train.runs import CFG, MODEL, RUN

STEP = TrainConfig(
    warmup_steps=4,
    total_steps=20,
    micro_batch_size=8,
    seq_len=12,
    grad_accum_steps=1,
    qk_clip_tau=0.1,  # it fires in every step
)
PEAKS = (0.02, 3e-3)
FOUR = replace(CFG, grad_accum_steps=4)  # a micro-batch for each of four ranks


class Ragged:
    """Rows that are a function of their number; of each, another part has targets."""

    vocab_size, tokenizer = 256, None

    def __len__(self):
        return 10**6

    def batch(self, step, *, batch_size, seq_len, seed, micro=0, micros=1):
        first = first_row(step, batch_size, micro, micros)
        rows = []
        for i in range(first, first + batch_size):
            row = torch.randint(
                256, (seq_len + 1,), generator=torch.Generator().manual_seed(i)
            )
            targets = row[1:].clone()
            targets[: i * i % (seq_len + 1)] = -100
            rows.append((row[:-1], targets))
        x, targets = map(torch.stack, zip(*rows, strict=True))
        return Batch(x, targets, torch.zeros_like(x))


def make(world, dtype=torch.float64, **overrides):
    torch.manual_seed(0)
    model = Stack100M(toy_config(d_model=32, **overrides)).to(dtype)
    model = world.shard(model)
    return model, *muon_and_adamw(model, STEP)


def mesh_of(form):
    """A mesh of this form over all ranks, None for this process alone."""
    if form is None:
        return None
    return init_device_mesh(
        "cpu", form, mesh_dim_names=("replicate", "shard")[-len(form) :]
    )


def first_ranks(count):
    """A mesh of the first ranks, made by all; None on those that are not in it."""
    mesh = DeviceMesh("cpu", list(range(count)))
    return mesh if dist.get_rank() < count else None


def steps(form, cfg, **overrides):
    """The logs of three steps, and the end: names to whole tensors."""
    world = World() if form is None else world_of(mesh_of(form))
    trained = make(world, **overrides)
    logs = [
        optimizer_step(
            trained[0],
            micro_batches(Ragged(), cfg, step, world),
            *trained[1:],
            PEAKS,
            step,
            cfg,
            world=world,
        )
        for step in range(3)
    ]
    return [vars(log) for log in logs], gather(*trained, keep=world.rank == 0)


def collectives_of_a_step():
    """(name, entries sent) of what goes over the group of all ranks in one step."""
    world = world_of()
    trained = make(world)
    seen = []
    for name in ("all_reduce", "all_gather", "broadcast", "all_gather_object"):
        real = getattr(dist, name)

        def counted(*args, real=real, name=name, group=None, **kwargs):
            if group is world.group:
                seen.append((name, args[-1].numel()))
            return real(*args, group=group, **kwargs)

        setattr(dist, name, counted)
    try:
        for step in range(2):
            seen.clear()  # Muon makes a group of its own in its first step
            batches = micro_batches(Ragged(), STEP, step, world)
            optimizer_step(
                trained[0], batches, *trained[1:], PEAKS, step, STEP, world=world
            )
    finally:
        for name in ("all_reduce", "all_gather", "broadcast", "all_gather_object"):
            setattr(dist, name, getattr(dist.distributed_c10d, name))
    return seen


def poisoned(kind):
    """A step in which one rank has something that is not finite, and one after it."""
    world = world_of()
    trained = make(world)
    model, keep = trained[0], LogitRecord.keep
    before = gather(*trained, keep=True)

    def spoiled(record, layer, found):
        keep(record, layer, found)
        record.maxima[layer, 1] = math.nan

    def overflow(_module, _inputs, out):
        return out[0], out[1] + (math.inf - out[1].detach())

    def explode(_module, _inputs, out):
        out.register_hook(lambda grad: grad * math.nan)

    handle = None
    if world.rank == 2:
        if kind == "logit":
            LogitRecord.keep = spoiled
        elif kind == "loss":
            handle = model.register_forward_hook(overflow)
        else:
            handle = model.blocks[0].register_forward_hook(explode)
    logs = []
    for step in range(2):
        batches = micro_batches(Ragged(), STEP, step, world)
        logs.append(
            optimizer_step(model, batches, *trained[1:], PEAKS, 0, STEP, world=world)
        )
        if step == 0:
            after = gather(*trained, keep=True)
            LogitRecord.keep = keep
            if handle is not None:
                handle.remove()
    same = before.keys() == after.keys() and all(
        torch.equal(before[name], after[name]) for name in before
    )
    return [log.skipped for log in logs], same


class Asked:
    """Tokens that send one rank a signal when it asks for the batch of a step."""

    def __init__(self, tokens, rank, step):
        self.tokens, self.rank, self.step = tokens, rank, step
        self.vocab_size, self.tokenizer = tokens.vocab_size, tokens.tokenizer

    def __len__(self):
        return len(self.tokens)

    def batch(self, step, **place):
        if step == self.step and dist.get_rank() == self.rank:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.tokens.batch(step, **place)


def train(out, *, ranks=4, stop=None, cfg=FOUR, model=MODEL, run_cfg=RUN, build=None):
    """A run by the first ranks; None on the others."""
    mesh = first_ranks(ranks)
    if mesh is None:
        return None
    data, val = (open_tokens("moby-dick", split) for split in ("train", "val"))
    if stop is not None:
        data = Asked(data, *stop)
    args = {"val": val, "out": out, "run_cfg": run_cfg, "device": "cpu", "mesh": mesh}
    run = pretrain(model, cfg, data, optimizers=build, **args)
    return run.step, run.interrupted, run.checkpoint, run.records


def error_of(function, *args, **kwargs):
    """What a call raises: its kind, its words, and whether rank 0 reports it."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error), is_told(error)
    return None


def train_on_full_disk(out):
    real = checkpoint.write_atomically

    def full(path, payload):
        if "00000012" in path.name:
            raise OSError(28, "No space left on device")
        real(path, payload)

    checkpoint.write_atomically = full  # only rank 0 writes
    try:
        return error_of(train, out)
    finally:
        checkpoint.write_atomically = real


def taken_up(path, ranks, looped=False):
    """Restore on some ranks; the names of tensors that differ from the file's."""
    mesh = first_ranks(ranks)
    if mesh is None:
        return None
    world = world_of(mesh)
    found = read_checkpoint(path)
    torch.manual_seed(99)
    model = world.shard(Stack100M(MODEL))
    muon, adamw = muon_and_adamw(model, FOUR)
    for group in muon.param_groups:
        group["batched"] = False if looped else None
    mine = found if world.rank == 0 else found.outline()
    restore(mine, model, muon, adamw, world=world)
    tensors = gather(model, muon, adamw, keep=True)
    assert tensors.keys() == found.tensors.keys()
    return [n for n, t in tensors.items() if not torch.equal(t, found.tensors[n])]


def looped(model, cfg):
    muon, adamw = muon_and_adamw(model, cfg)
    for group in muon.param_groups:
        group["batched"] = False
    return muon, adamw


def validated(form, count):
    """The loss on `count` micro-batches, and how many passes this rank made of it."""
    world = World() if form is None else world_of(mesh_of(form))
    model = make(world)[0]
    batches = validation_batches(Ragged(), STEP, count, world)
    loss = validate(model, batches, world)
    names = [
        name for name, p in model.named_parameters() if not hasattr(p, "placements")
    ]
    return loss, len(batches), names
