"""What the ranks of chapter 13 and of its exercises run.

Each function is called on every rank with the same arguments, as ``Ranks.run`` does
it; where no process group was made, one process holds everything.
Weights and gradients are known, so a step can be repeated over any number of ranks.

Legend: R replicas of S shards, W = R*S ranks; matrices of m x n. Taught in chapter 13.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from stacklm.bench import Traffic, count_collectives, mesh_of, step_traffic
from stacklm.bench.steps import Matrices, gaussian
from stacklm.config import toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.optim import Muon, qk_clip_
from stacklm.optim.layout import like_parameter, local_part

Shapes = Sequence[tuple[int, int]]


def build(
    shapes: Shapes, replicas: int = 1, **options
) -> tuple[Muon, dict[str, nn.Parameter]]:
    """Make weights, let FSDP2 cut them by rows over all ranks, and give them to Muon.

    Args:
        shapes: (m, n) of each weight.
        replicas: Replicas, R of them.
        options: Of ``Muon``.

    Returns:
        The optimizer, and its parameters by name.
    """
    module = Matrices(shapes)
    if dist.is_initialized():
        fully_shard(module, mesh=mesh_of(replicas))
    params = dict(module.named_parameters())
    return Muon(params.items(), **options), params


def give_gradients(params: dict[str, nn.Parameter], step: int) -> None:
    """Set the gradients of a step, the same whole matrices over any number of ranks.

    Args:
        params: Of ``build``.
        step: Which, from 0.
    """
    shapes = [tuple(p.shape) for p in params.values()]
    gradients = gaussian(shapes, seed=100 + step)
    for p, gradient in zip(params.values(), gradients, strict=True):
        p.grad = like_parameter(gradient, p)


def take_steps(muon: Muon, params: dict[str, nn.Parameter], steps: range) -> None:
    """Take these steps, each with its own gradients."""
    for step in steps:
        give_gradients(params, step)
        muon.step()


def tensors_of(muon: Muon, params: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Name the weights and their momentum; before the first step that is zero.

    Returns:
        {name: weight, name + ".momentum": B}, DTensors over several ranks. Writing to
        them writes to the optimizer's.
    """
    found = {}
    for name, p in params.items():
        B = muon.state[p].setdefault("momentum_buffer", torch.zeros_like(p.detach()))
        found |= {name: p.detach(), f"{name}.momentum": B}
    return found


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gather tensors on every rank; plain ones are copied. Collective."""
    return {
        name: t.full_tensor() if hasattr(t, "full_tensor") else t.clone()
        for name, t in tensors.items()
    }


def train(shapes: Shapes, steps: int, replicas: int = 1) -> dict[str, Tensor]:
    """Take steps of Muon from the beginning.

    Args:
        shapes: (m, n) of each weight.
        steps: How many.
        replicas: Replicas, R of them.

    Returns:
        Weights and momentum, whole.
    """
    muon, params = build(shapes, replicas)
    take_steps(muon, params, range(steps))
    return whole(tensors_of(muon, params))


def traffic(shapes: Shapes, replicas: int = 1, **options) -> Traffic:
    """Count what one step of Muon asks of other ranks.

    Args:
        shapes: (m, n) of each weight.
        replicas: Replicas, R of them.
        options: Of ``Muon``.

    Returns:
        Counts and bytes of the second step; the first also makes process groups.
    """
    muon, params = build(shapes, replicas, **options)
    take_steps(muon, params, range(1))
    return count_collectives(muon.step)


def unplanned(name: str, shapes: Shapes) -> Traffic:
    """Count what a step asks of other ranks if DTensor plans it.

    Args:
        name: One of ``stacklm.bench.steps.OPTIMIZERS``.
        shapes: (m, n) of each weight.

    Returns:
        Counts and bytes of the second step.
    """
    with quiet():  # that gloo does all-to-alls as gathers is said in the chapter
        return step_traffic(name, shapes)


def clip(tau: float, together: bool) -> tuple[float, Tensor]:
    """Clip replicas of the toy model, each of which saw other tokens.

    Args:
        tau: The largest logit that is left alone.
        together: Whether they take the largest logit of all ranks first.

    Returns:
        The largest logit that this rank saw, and the query weights after the clip.
    """
    torch.manual_seed(0)
    model = Stack100M(toy_config(qk_norm=False)).double()  # digits of no processor
    torch.manual_seed(1 + dist.get_rank())
    record = LogitRecord(model.cfg.n_layers, model.cfg.n_heads)
    with torch.no_grad():
        for block in model.blocks:  # logits that have grown by 25 * 25
            block.attn.wq.weight.mul_(25)
            block.attn.wk.weight.mul_(25)
        model(torch.randint(model.cfg.vocab_size, (2, 32)), record=record)
    group = dist.group.WORLD if together else None
    qk_clip_(model, record, tau, group=group)
    weights = [block.attn.wq.weight.detach().flatten() for block in model.blocks]
    return float(record.maxima.max()), torch.cat(weights)


def save_after(folder: str, shapes: Shapes, steps: int) -> None:
    """Train, then write a checkpoint together: each rank its own rows.

    Args:
        folder: Where, seen by all ranks.
        shapes: (m, n) of each weight.
        steps: How many.
    """
    muon, params = build(shapes)
    take_steps(muon, params, range(steps))
    dcp.save(tensors_of(muon, params), checkpoint_id=folder)


def go_on(folder: str, shapes: Shapes, steps: range) -> dict[str, Tensor]:
    """Load what any number of ranks wrote, and take the steps that follow.

    Args:
        folder: Of ``save_after``.
        shapes: The same.
        steps: Those that are left.

    Returns:
        Weights and momentum, whole.
    """
    muon, params = build(shapes)
    with warnings.catch_warnings():
        # That one process may read what several wrote is the point, no mistake.
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.load(tensors_of(muon, params), checkpoint_id=folder)  # into their memory
    take_steps(muon, params, steps)
    return whole(tensors_of(muon, params))


def go_on_from_rows(
    files: list[dict[str, Tensor]] | None, shapes: Shapes, steps: range
) -> dict[str, Tensor]:
    """Start from each rank's own file, take steps, and return the next such file.

    Args:
        files: Rows of every tensor, a dict per rank; None: from the beginning.
        shapes: (m, n) of each weight.
        steps: Which.

    Returns:
        This rank's rows of every tensor.
    """
    muon, params = build(shapes)
    tensors = tensors_of(muon, params)
    if files is not None:
        for name, rows in files[dist.get_rank()].items():
            local_part(tensors[name]).copy_(rows)
    take_steps(muon, params, steps)
    return {name: local_part(t).clone() for name, t in tensors.items()}


def step_without(shapes: Shapes, name: str, rank: int) -> tuple[str, bool]:
    """Try a step in which one rank lacks a gradient.

    Args:
        shapes: (m, n) of each weight.
        name: Of the parameter.
        rank: Who lacks it.

    Returns:
        What ``step`` raised, and whether weights are as before.
    """
    muon, params = build(shapes)
    give_gradients(params, 0)
    before = [local_part(p).clone() for p in params.values()]
    if dist.get_rank() == rank:
        params[name].grad = None
    try:
        muon.step()
        text = "no error"
    except ValueError as error:
        text = str(error)
    after = map(local_part, params.values())
    return text, all(map(torch.equal, before, after))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what libraries write to stderr off a page whose kernel started the ranks."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # goes to what stderr was when torch was imported
    try:
        yield
    finally:
        logging.disable(level)
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
