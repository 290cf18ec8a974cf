"""What the failure gallery needs: a call that must fail, and what its two ranks run.

The wrong ways stand in the chapter, for they belong into no package. Functions for
ranks are called on every rank by ``stacklm.bench.Ranks``, with the same arguments.

Legend: matrices of m x n; E matrices in a stack. Used by chapter 15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from stacklm.bench.steps import Matrices, gaussian, mesh_of
from stacklm.notebook.clipping import loud_toy
from stacklm.optim import Muon, qk_clip_
from stacklm.optim.layout import is_dtensor, like_parameter

SHAPES = ((16, 24), (3, 20), (16, 16))
"""Matrices of the checkpoint; the second has rows for one and a half ranks."""


def complaint(function: Callable, *args: Any, **options: Any) -> str:
    """Call a function that must fail, and return what it says.

    Args:
        function: Anything callable.
        args: Its arguments.
        options: Its keyword arguments.

    Returns:
        ``"ValueError: the rule, the value and the remedy"``, on one line; where the
        message has several, a semicolon stands between them.

    Raises:
        AssertionError: It did not fail.

    Example:
        >>> complaint(int, "ten")
        "ValueError: invalid literal for int() with base 10: 'ten'"
    """
    try:
        function(*args, **options)
    except Exception as error:
        text = re.sub(r":\s*\n\s*", ": ", f"{type(error).__name__}: {error}")
        return re.sub(r"\s*\n\s*", "; ", text)
    raise AssertionError(f"{function!r} was expected to fail and did not")


@contextmanager
def float64() -> Iterator[None]:
    """New tensors are float64, here and on ranks, whatever ran there before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def muon_of(params: list[nn.Parameter], steps: int) -> Muon:
    """Give parameters to Muon and take steps with known gradients.

    Args:
        params: Matrices, DTensors or not.
        steps: How many.

    Returns:
        The optimizer after its last step.
    """
    muon = Muon(params, lr=0.02)
    for step in range(steps):
        give_gradients(params, step)
        muon.step()
    return muon


def give_gradients(params: list[nn.Parameter], step: int) -> None:
    """Set the gradients of a step, the same whole matrices over any number of ranks."""
    whole = gaussian([tuple(p.shape) for p in params], seed=100 + step)
    for p, g in zip(params, whole, strict=True):
        p.grad = like_parameter(g, p)


@float64()
def alone(steps: int) -> tuple[list[Tensor], list[Tensor]]:
    """Take the steps of :func:`sharded_checkpoint` in this process.

    Returns:
        (weights, momentum), of ``SHAPES``.
    """
    params = list(Matrices(SHAPES).parameters())
    return _whole(params, muon_of(params, steps))


@float64()
def sharded_checkpoint(steps: int) -> tuple[list[Tensor], list[Tensor]]:
    """Take steps on weights that FSDP2 cut by rows over all ranks. Collective.

    Args:
        steps: How many.

    Returns:
        (weights, momentum), whole matrices of ``SHAPES`` on every rank: what a
        checkpoint has to hold.
    """
    module = Matrices(SHAPES)
    fully_shard(module, mesh=mesh_of())
    params = list(module.parameters())
    return _whole(params, muon_of(params, steps))


def _whole(params: list, muon: Muon) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and momentum as plain tensors, gathered where they are cut."""
    momentum = [muon.state[p]["momentum_buffer"] for p in params]
    weights = [p.detach() for p in params]
    return _gathered(weights), _gathered(momentum)


def _gathered(tensors: list[Tensor]) -> list[Tensor]:
    return [t.full_tensor() if is_dtensor(t) else t for t in tensors]


@float64()
def rows_held(shape: tuple[int, ...]) -> tuple[int, Tensor]:
    """Take a step on one parameter that is cut over all ranks. Collective.

    Args:
        shape: (m, n), cut by rows, or (E, m, n), a stack whose matrices are dealt.

    Returns:
        How many rows or matrices this rank holds, and the whole parameter after the
        step.
    """
    module = Matrices([shape])
    fully_shard(module, mesh=mesh_of())
    (p,) = module.parameters()
    _take_step(p)
    return p.to_local().shape[0], p.detach().full_tensor()


@float64()
def one_step(shape: tuple[int, ...]) -> Tensor:
    """Take the step of :func:`rows_held` in this process; return the parameter."""
    (p,) = Matrices([shape]).parameters()
    _take_step(p)
    return p.detach()


def _take_step(p: nn.Parameter) -> None:
    give_gradients([p], step=0)
    Muon([{"params": [p], "stacked": p.ndim == 3}], lr=0.02).step()


@float64()
def step_with_a_gap(missing: int) -> str:
    """Take a step for which one rank has no gradient of the second matrix. Collective.

    Args:
        missing: The rank without that gradient.

    Returns:
        What ``Muon.step`` says on this rank.
    """
    params = list(Matrices(SHAPES).parameters())
    muon = Muon(zip(("first", "second", "third"), params, strict=True), mesh=mesh_of())
    give_gradients(params, step=0)
    if dist.get_rank() == missing:
        params[1].grad = None
    return complaint(muon.step)


@float64()
def clipped_gains(maxima: tuple[float, ...]) -> list[float]:
    """Clip a toy by the largest logit of all ranks. Collective.

    Args:
        maxima: The largest logit that each rank has seen (logit units).

    Returns:
        The query gains of this rank's copy after the clip.
    """
    model = loud_toy()
    own = torch.full((1, model.cfg.n_heads), maxima[dist.get_rank()])
    qk_clip_(model, own, group=dist.group.WORLD)
    return model.blocks[0].attn.q_norm.weight.tolist()
