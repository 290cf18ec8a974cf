"""The fixed validation set, and the loss on it.

Legend: B sequences of T tokens in a micro-batch. Units: nats per token. Taught in
chapter 11.
"""

from __future__ import annotations

import torch
from torch import nn

from stacklm.config import TrainConfig
from stacklm.model import IGNORE_INDEX
from stacklm.train.feed import plain
from stacklm.train.step import count_targets, forward_loss, to_device
from stacklm.train.world import World, settled_parameters

VALIDATION_SEED = 0
"""Of the validation batches: the same in every run, whatever its own seed."""


def validation_batches(
    val, cfg: TrainConfig, count: int, world: World | None = None
) -> list[tuple]:
    """The validation set: the same `count` micro-batches whenever it is asked for.

    Args:
        val: ``Tokens`` that are not trained on.
        cfg: The shape of a micro-batch.
        count: How many of them.
        world: Gives this rank's part only; None means one process.

    Returns:
        A list of (x, targets, seq_ids), as `micro_batches` yields them, of the same
        length on every rank: where they do not come out even, the last one has no
        target that counts.
    """
    world, seed = world or World(), VALIDATION_SEED
    found = []
    for first in range(0, count, world.size):
        i = first + world.rank
        shape = {"batch_size": cfg.micro_batch_size, "seq_len": cfg.seq_len}
        at = i if i < count else first  # ranks go through the model together
        x, targets, seq_ids = plain(val.batch(at, **shape, seed=seed))
        if i >= count:
            targets = torch.full_like(targets, IGNORE_INDEX)
        found.append((x, targets, seq_ids))
    return found


def validate(model: nn.Module, batches: list, world: World | None = None) -> float:
    """The loss on a fixed set, without gradients.

    Args:
        model: As for ``optimizer_step``; comes back in the mode it was in.
        batches: Micro-batches (x, targets, seq_ids) on any device; on each rank, as
            many.
        world: The ranks that share the set; None means one process.

    Returns:
        The mean over all targets that count, of all ranks (nats per token).
    """
    world = world or World()
    device = world.parameters(model)[0].device
    training = model.training
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for batch in batches:
            batch = to_device(batch, device)
            targets = count_targets(batch)
            total = total + forward_loss(model, batch).double() * targets
            count = count + targets
    settled_parameters(model)
    model.train(training)
    total, count = world.sum(torch.stack([total, count.double()]))
    return float(total / count)
