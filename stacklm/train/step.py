"""One optimizer step, complete: from micro-batches to clipped logits.

    g  = sum_i (n_i / n) * grad loss_i          accumulation over micro-batches
    c  = min(1, grad_clip / |g|)                one factor for all gradients
    lr = multiplier(step) * peak                both optimizers, one multiplier

Legend: micro-batch i has n_i targets that count, n of them in all; B sequences of T
tokens in a micro-batch; L layers, H heads. The sums go over all micro-batches of all
ranks. Units: loss in nats per token, norms are L2, learning rates are per step.
Sources: global clipping, Pascanu et al. 2013, arXiv:1211.5063; QK-clip after the step,
Kimi K2, arXiv:2507.20534, section 2.1. Taught in chapter 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stacklm.config import TrainConfig
from stacklm.model import IGNORE_INDEX, LogitRecord
from stacklm.optim import qk_clip_
from stacklm.optim.layout import local_part
from stacklm.optim.schedule import wsd_multiplier
from stacklm.train.feed import has_first
from stacklm.train.world import World


@dataclass(frozen=True)
class StepLog:
    """What one step did; every figure is a plain Python number."""

    step: int
    """Which step, counted from 0."""
    loss: float
    """Mean over all targets of the step (nats per token)."""
    grad_norm: float
    """Of all gradients together, before clipping (L2 norm)."""
    muon_lr: float
    """Learning rate of Muon's first group; 0 without Muon (per step)."""
    adamw_lr: float
    """Learning rate of AdamW's first group (per step)."""
    skipped: bool
    """Whether the guard left weights and states as they were (yes or no)."""
    max_logit: float | None
    """Largest attention logit of the step, as the tier measures it, before
    QK-clip (logit units); None if the step measured none."""
    layers_clipped: int
    """Layers in which QK-clip fired (count)."""
    tokens: int
    """Tokens that went through the model (count)."""


def optimizer_step(
    model: nn.Module,
    batches: Iterable[Sequence],
    muon: Optimizer | None,
    adamw: Optimizer,
    peaks: tuple,
    step: int,
    cfg: TrainConfig,
    *,
    multiplier: Callable[[int], float] | None = None,
    world: World | None = None,
) -> StepLog:
    """Accumulate, guard, clip, step both optimizers, clip the logits.

    Gradients are averaged over the targets of all micro-batches, so that
    the result does not depend on how the step is cut into them. A step
    whose loss, gradient norm or logits are not finite is skipped: weights
    and optimizer states stay as they were. The host waits for the device
    once, whatever happens.

    With ``cfg.qk_clip_every`` 1, every forward pass records tier 1. With a
    larger N, every Nth step first sends its own first micro-batch through
    the model without gradients and records exact logits; no batch is used
    up.

    Over several ranks, every rank calls it with its part of the step. Loss,
    norm and maxima go over all of them, so all take the same decisions. What
    that costs is in ``stacklm.train.world``.

    Args:
        model: Called as ``model(x, targets, seq_ids)`` for (logits, loss),
            and with ``record=`` if ``cfg`` asks for QK-clip. On CUDA it
            runs under bf16 autocast, elsewhere in its own dtype.
        batches: Micro-batches (x, targets) or (x, targets, seq_ids),
            tensors (B, T) on any device; target -100 does not count. On
            each rank, as many of the same shape.
        muon: Muon, or None to leave everything to AdamW.
        adamw: AdamW.
        peaks: Learning rates at multiplier 1, (Muon's, AdamW's). Each is a
            number, or one number per parameter group (per step).
        step: Which step, counted from 0.
        cfg: Schedule, clipping and QK-clip.
        multiplier: Of the peaks, by step; None means the schedule of
            ``cfg``.
        world: The ranks that share the step. Their backward pass averages
            gradients, as FSDP2 and DDP do. None means one process.

    Returns:
        The step's figures, the same on every rank; the loss is the mean
        over all targets.

    Raises:
        ValueError: No micro-batch, not one peak per parameter group, or
            weights over several ranks without `world`. Nothing changed.
    """
    world = world or World()
    params = world.parameters(model)
    batches = _on_device(batches, params[0].device)
    now = (multiplier or schedule_of(cfg))(step)
    rates = _rates(muon, adamw, peaks, now)
    _forget_gradients(params)
    record = _record_for(model, cfg, step)
    if record is not None and cfg.qk_clip_every > 1:
        counts = has_first(cfg, world)  # the step's own first
        _probe(model, batches[0], record if counts else None)
    in_training = record if cfg.qk_clip_every == 1 else None
    mean = _accumulate(model, batches, in_training, world)
    gradients = [p.grad for p in params if p.grad is not None]
    # The one wait for the device; all decisions follow from it.
    loss, norm, maxima = _read(mean, world.norm(gradients), record, world)

    top = -math.inf if maxima is None else maxima.amax().item()
    finite = math.isfinite(loss) and math.isfinite(norm) and top < math.inf
    fired = 0
    if not finite:
        _forget_gradients(params)  # no one may trip over a NaN
    else:
        _clip_(gradients, norm, cfg.grad_clip)
        for optimizer, own in rates:
            _set_rates(optimizer, own)
            optimizer.step()
        if top > cfg.qk_clip_tau:
            fired = qk_clip_(model, maxima, cfg.qk_clip_tau)
    return StepLog(
        step=step,
        loss=loss,
        grad_norm=norm,
        muon_lr=rates[0][1][0] if muon is not None else 0.0,
        adamw_lr=rates[-1][1][0],
        skipped=not finite,
        max_logit=None if top == -math.inf else top,
        layers_clipped=fired,
        tokens=world.size * sum(batch[0].numel() for batch in batches),
    )


def schedule_of(cfg: TrainConfig) -> Callable[[int], float]:
    """The multiplier of the peaks that a configuration describes."""
    return wsd_multiplier(
        warmup_steps=cfg.warmup_steps,
        total_steps=cfg.total_steps,
        decay_steps=cfg.decay_steps,
    )


def forward_loss(model: nn.Module, batch: Sequence, record=None) -> Tensor:
    """The loss of one micro-batch: bf16 autocast on CUDA, as it is elsewhere."""
    device = batch[0].device.type
    kept = {} if record is None else {"record": record}
    with _precision(device):
        return model(*batch, **kept)[1]


def _precision(device: str):
    if torch.amp.is_autocast_available(device):  # not on "meta"
        return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")
    return nullcontext()


def count_targets(batch: Sequence) -> Tensor:
    """How many targets of a micro-batch carry a loss; stays on the device."""
    return (batch[1] != IGNORE_INDEX).sum()


def to_device(batch: Sequence, device: torch.device) -> list[Tensor | None]:
    """Send the tensors of a micro-batch, without waiting for them."""
    return [t if t is None else t.to(device, non_blocking=True) for t in batch]


def _on_device(batches: Iterable[Sequence], device: torch.device) -> list[list]:
    batches = [to_device(batch, device) for batch in batches]
    if not batches:
        raise ValueError(
            "a step needs at least one micro-batch, got none; give it a list of "
            "(x, targets, seq_ids)"
        )
    return batches


def _accumulate(model, batches: list[list], record, world: World) -> Tensor:
    """Add up gradients; return this rank's part of the mean loss, on the device.

    The mean goes over targets, not over means of micro-batches: with document
    ends (target -100) those differ, and would depend on the micro-batch size.
    """
    counts = [count_targets(batch) for batch in batches]
    total = world.sum(sum(counts)).clamp(min=1)
    mean = 0.0
    for batch, count in zip(batches, counts, strict=True):
        share = forward_loss(model, batch, record) * count / total
        (share * world.size).backward()  # ranks average, and this is a sum
        mean = mean + share.detach()
    return mean


def _read(loss: Tensor, norm: Tensor, record, world: World):
    """Fetch all that the host must decide on, in one transfer.

    Returns:
        The loss, the norm, and the maxima (L, H) on the CPU or None.
    """
    found = [loss.reshape(1), norm.reshape(1)]
    if record is None:
        return *world.read(torch.cat(found)).tolist(), None
    on_host = world.read(torch.cat([*found, record.maxima.flatten()]))
    return *on_host[:2].tolist(), on_host[2:].view_as(record.maxima)


def _forget_gradients(params: list[nn.Parameter]) -> None:
    for p in params:
        p.grad = None


def _clip_(gradients: list[Tensor], norm: float, limit: float) -> None:
    """Scale all gradients by one factor if they are longer than `limit`."""
    if 0 < limit < norm:
        torch._foreach_mul_([local_part(g) for g in gradients], limit / norm)


def _record_for(model: nn.Module, cfg: TrainConfig, step: int) -> LogitRecord | None:
    if not cfg.qk_clip_every or step % cfg.qk_clip_every:
        return None
    device = next(model.parameters()).device
    return LogitRecord(model.cfg.n_layers, model.cfg.n_heads, device=device)


@torch.no_grad()
def _probe(model: nn.Module, batch: list, record: LogitRecord | None) -> None:
    """Record exact logits in a forward pass that keeps nothing else.

    The step's first micro-batch counts, whoever has it; ranks that have another one
    only take part in the pass.
    """
    with _exact_records(model):
        forward_loss(model, batch, record)


@contextmanager
def _exact_records(model: nn.Module):
    layers = [m for m in model.modules() if hasattr(m, "record_exact")]
    before = [layer.record_exact for layer in layers]
    try:
        for layer in layers:
            layer.record_exact = True
        yield
    finally:
        for layer, exact in zip(layers, before, strict=True):
            layer.record_exact = exact


def _rates(muon, adamw, peaks, now: float) -> list[tuple[Optimizer, list[float]]]:
    """Each optimizer with the learning rates of its groups at a multiplier."""
    rates = []
    for optimizer, peak in zip((muon, adamw), peaks, strict=True):
        if optimizer is None:
            continue
        groups = len(optimizer.param_groups)
        own = list(peak) if isinstance(peak, (list, tuple)) else [peak] * groups
        if len(own) != groups:
            raise ValueError(
                f"{type(optimizer).__name__} has {groups} parameter groups, got "
                f"{len(own)} peak learning rates; give one number, or one per group"
            )
        rates.append((optimizer, [now * each for each in own]))
    return rates


def _set_rates(optimizer: Optimizer, rates: list[float]) -> None:
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # a compiled step holds on to the tensor
        else:
            group["lr"] = rate
