"""A whole run: batches, steps, validation, metrics, checkpoints.

    for step in range(start, total):
        batches(seed, step) -> optimizer_step -> metrics -> checkpoint

Whatever a step needs is in its checkpoint or a pure function of its number, so a run
that was killed goes on to the same bits, on the same kind of device and with the same
number of threads. On CUDA, attention adds up its gradients in any order; there the bits
are the same only under ``torch.use_deterministic_algorithms(True)``. Units: loss in
nats per token; steps are optimizer steps. Taught in chapter 11.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from stacklm.config import StackConfig, TrainConfig
from stacklm.model import Stack100M
from stacklm.train.checkpoint import restore, save_checkpoint
from stacklm.train.feed import check_fit, micro_batches, validation_batches
from stacklm.train.interrupt import Interrupt
from stacklm.train.lock import only_one
from stacklm.train.log import Metrics, Progress
from stacklm.train.options import RunConfig
from stacklm.train.recipes import muon_and_adamw
from stacklm.train.resume import Branch, Plan, make_plan
from stacklm.train.step import (
    count_targets,
    forward_loss,
    optimizer_step,
    to_device,
)


class DivergedError(RuntimeError):
    """A run that only skips steps; its last checkpoint is from before."""


@dataclass
class Run:
    """A run after its last step, or in the middle of it."""

    model: nn.Module
    """On the device of the run."""
    muon: Optimizer | None
    """Its state, if the run has one."""
    adamw: Optimizer
    """Its state."""
    step: int = 0
    """Steps done (count)."""
    skips: int = 0
    """Steps skipped in a row, up to now (count)."""
    checkpoint: Path | None = None
    """The newest one that this call wrote."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended it early (yes or no)."""
    records: list[dict] = field(default_factory=list, repr=False)
    """The lines of ``metrics.jsonl``, from step 0 on."""

    @property
    def validation(self) -> list[tuple[int, float]]:
        """(steps done, validation loss), oldest first."""
        return [
            (record["step"] + 1, record["val_loss"])
            for record in self.records
            if "val_loss" in record
        ]


def pretrain(
    model_cfg: StackConfig,
    train_cfg: TrainConfig,
    data,
    *,
    val=None,
    out: str | os.PathLike | None = None,
    resume: bool = True,
    branch: Branch | None = None,
    run_cfg: RunConfig = RunConfig(),  # noqa: B008 (frozen)
    optimizers: Callable | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> Run:
    """Train a model, and go on where an earlier call was stopped.

    Ctrl-C and SIGTERM let the step end, write a checkpoint and return; a second
    Ctrl-C stops at once. The random generators of the caller stay as they are.

    Args:
        model_cfg: The model.
        train_cfg: The run; its seed draws the weights and orders the data.
        data: ``Tokens``, or anything with its ``batch``, length and vocab_size.
        val: The same for validation; None for no validation.
        out: Folder for checkpoints and ``metrics.jsonl``; None keeps nothing.
        resume: Whether to go on from the newest checkpoint in `out`; if there is
            none, the run begins.
        branch: Leave another run's stable phase and decay.
        run_cfg: When to validate, save and give up.
        optimizers: (model, train_cfg) -> (muon or None, adamw), at peak learning
            rates; None means ``muon_and_adamw``.
        device: None means CUDA if there is one, otherwise the CPU.
        progress: Whether to draw a bar of progress; None means on a terminal.

    Returns:
        The run: model, optimizers, records.

    Raises:
        BusyError: Another process is training in `out`.
        CheckpointError: No checkpoint in `out` is whole.
        DivergedError: ``run_cfg.max_skips`` steps in a row had no finite gradients.
        FileExistsError: `out` has checkpoints, and `resume` is False.
        OSError: A checkpoint could not be written; the older one is intact.
        ValueError: Configurations, data or checkpoints that do not fit together.

    Example:
        >>> from stacklm.config import toy_config
        >>> from stacklm.train import open_tokens
        >>> short = TrainConfig(warmup_steps=1, total_steps=2, micro_batch_size=2,
        ...                     seq_len=16, grad_accum_steps=1)
        >>> run = pretrain(toy_config(), short, open_tokens("moby-dick"), device="cpu")
        >>> run.step, len(run.records)
        (2, 2)
    """
    out = None if out is None else Path(out)
    check_fit(model_cfg, train_cfg, data=data, val=val)
    where = {"out": out, "resume": resume, "branch": branch}
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    caller = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with only_one(out), caller:
        plan = make_plan(model_cfg, train_cfg, data, **where)
        build = optimizers or muon_and_adamw
        run, peaks = _begin(model_cfg, train_cfg, plan, build, device)
        trainer = _Trainer(run, peaks, train_cfg, run_cfg, plan, data, val, out)
        with closing(Progress(plan.total_steps, run.step, progress)) as watch:
            trainer.go_on(watch)
    return run


def validate(model: nn.Module, batches: list) -> float:
    """The loss on a fixed set, without gradients.

    Args:
        model: As for ``optimizer_step``; comes back in the mode it was in.
        batches: Micro-batches (x, targets, seq_ids) on any device.

    Returns:
        The mean over all targets that count (nats per token).
    """
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for batch in batches:
            batch = to_device(batch, device)
            targets = count_targets(batch)
            total = total + forward_loss(model, batch).double() * targets
            count = count + targets
    model.train(training)
    return float(total / count)


def _begin(model_cfg, train_cfg, plan: Plan, build, device) -> tuple[Run, tuple]:
    """Draw the weights, then put a checkpoint over them if there is one."""
    torch.manual_seed(train_cfg.seed)
    model = Stack100M(model_cfg).to(device)
    muon, adamw = build(model, train_cfg)
    peaks = tuple(
        None if each is None else [float(group["lr"]) for group in each.param_groups]
        for each in (muon, adamw)
    )
    run = Run(model, muon, adamw)
    if plan.start is not None:
        restore(plan.start, model, muon, adamw)
        run.step, run.skips = plan.start.step, plan.start.state["skips"]
    return run, peaks


@dataclass
class _Trainer:
    """What the steps of one run share."""

    run: Run
    peaks: tuple
    train_cfg: TrainConfig
    run_cfg: RunConfig
    plan: Plan
    data: object
    val: object
    out: Path | None

    def go_on(self, watch: Progress) -> None:
        """Step to the end, to Ctrl-C, or to the error that ends the run."""
        run, every = self.run, self.run_cfg.save_every
        metrics = Metrics(self.out and self.out / "metrics.jsonl", run.step)
        run.records = metrics.records
        fixed = []
        if self.val is not None and self.run_cfg.validate_every:
            size = self.run_cfg.validate_batches
            fixed = validation_batches(self.val, self.train_cfg, size)
        with closing(metrics), Interrupt() as interrupt:
            while run.step < self.plan.total_steps and not run.interrupted:
                record = self._step(fixed)
                metrics.append(record)
                watch.update(record)
                self._stop_if_diverged()
                run.interrupted = interrupt.asked
                last = run.interrupted or run.step == self.plan.total_steps
                if self.out and (last or (every and run.step % every == 0)):
                    metrics.sync()  # no checkpoint is ahead of the metrics
                    self._save()

    def _step(self, fixed: list) -> dict:
        run, cfg = self.run, self.train_cfg
        begin = time.perf_counter()
        pair, multiplier = (run.muon, run.adamw), self.plan.multiplier
        log = optimizer_step(
            run.model,
            micro_batches(self.data, cfg, run.step),
            *pair,
            self.peaks,
            run.step,
            cfg,
            multiplier=multiplier,
        )
        seconds = time.perf_counter() - begin
        run.step += 1
        run.skips = run.skips + 1 if log.skipped else 0
        speed = {"seconds": seconds, "tokens_per_second": log.tokens / seconds}
        record = {**vars(log), **speed}
        every, last = self.run_cfg.validate_every, run.step == self.plan.total_steps
        if fixed and (last or run.step % every == 0):
            record["val_loss"] = validate(run.model, fixed)
        return record

    def _save(self) -> None:
        run = self.run
        run.checkpoint = save_checkpoint(
            self.out,
            run.step,
            run.model,
            run.muon,
            run.adamw,
            state={**self.plan.identity, "skips": run.skips},
            keep_last=self.run_cfg.keep_last,
        )

    def _stop_if_diverged(self) -> None:
        skips, step = self.run.skips, self.run.step
        if skips >= self.run_cfg.max_skips:
            raise DivergedError(
                f"steps {step - skips} to {step - 1} had no finite loss and gradients, "
                f"{skips} in a row; the weights are as they were before. See grad_norm "
                f"and max_logit in the metrics, then lengthen warmup_steps or halve "
                f"muon_peak_lr"
            )
