"""Speed of training on this machine: tokens per second, MFU, the optimizer's share.

    MFU = tokens per second * FLOPs per token / peak FLOPs per second

Units: seconds of wall clock, after the device has finished. Figures that matter are
measured on an idle machine. Taught in chapter 11.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from stacklm.config import StackConfig, TrainConfig, flops_per_token
from stacklm.model import Stack100M
from stacklm.train import optimizer_step
from stacklm.train.recipes import muon_and_adamw

WARMUP = 3
"""Steps that are not counted: kernels are chosen and memory is fetched there."""


@dataclass(frozen=True)
class Throughput:
    """What a few steps took."""

    tokens_per_second: float
    """Of the median step."""
    optimizer_share: float
    """Part of a step that the two optimizers take (fraction)."""
    flops_per_second: float
    """Of the model's matrix products, forward and backward."""

    def mfu(self, peak: float) -> float:
        """Fraction of a peak, in FLOPs per second, that the model's products reach."""
        return self.flops_per_second / peak


def throughput(
    model_cfg: StackConfig,
    train_cfg: TrainConfig,
    *,
    steps: int = 10,
    device: str | torch.device = "cpu",
) -> Throughput:
    """Time complete optimizer steps on made-up tokens.

    Args:
        model_cfg: The model; weights are drawn at random.
        train_cfg: Batch and optimizers.
        steps: Steps that count (three more come before).
        device: Where.

    Returns:
        Medians over the steps.

    Raises:
        ValueError: `steps` below 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}; time one or more")
    model = Stack100M(model_cfg).to(device)
    pair = muon_and_adamw(model, train_cfg)
    clock = _Clock(torch.device(device), pair)
    shape = (train_cfg.micro_batch_size, train_cfg.seq_len)
    ids = torch.randint(model_cfg.vocab_size, shape, device=device)
    batches = [(ids, ids)] * train_cfg.grad_accum_steps
    peaks = (train_cfg.muon_peak_lr, train_cfg.adamw_peak_lr)
    whole, inside = [], []
    for step in range(WARMUP + steps):
        clock.inside, begin = 0.0, clock.now()
        optimizer_step(model, batches, *pair, peaks, step, train_cfg)
        whole.append(clock.now() - begin)
        inside.append(clock.inside)
    seconds = statistics.median(whole[WARMUP:])
    tokens = train_cfg.tokens_per_step / seconds
    return Throughput(
        tokens_per_second=tokens,
        optimizer_share=statistics.median(inside[WARMUP:]) / seconds,
        flops_per_second=tokens * flops_per_token(model_cfg, train_cfg.seq_len),
    )


class _Clock:
    """Adds up what the optimizers' steps take."""

    def __init__(self, device: torch.device, optimizers):
        self.device, self.inside = device, 0.0
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(lambda *_: self._add(-self.now()))
            optimizer.register_step_post_hook(lambda *_: self._add(self.now()))

    def _add(self, seconds: float) -> None:
        self.inside += seconds

    def now(self) -> float:
        """Seconds, when the device has done all that was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
