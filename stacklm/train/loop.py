"""A whole run: batches, steps, validation, metrics, checkpoints.

    for step in range(start, total):
        batches(seed, step) -> optimizer_step -> metrics -> checkpoint

Whatever a step needs is in its checkpoint or a pure function of its number, so a run
that was killed goes on to the same bits, on the same kind of device and with the same
number of threads. On CUDA, attention adds up its gradients in any order; there the bits
are the same only under ``torch.use_deterministic_algorithms(True)``. Units: loss in
nats per token; steps are optimizer steps. Taught in chapters 11 and 13.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim import Optimizer

from stacklm.config import StackConfig, TrainConfig
from stacklm.model import Stack100M
from stacklm.train.checkpoint import save_checkpoint
from stacklm.train.feed import check_fit, check_shares, micro_batches
from stacklm.train.interrupt import Interrupt
from stacklm.train.lock import only_one
from stacklm.train.log import Metrics, Progress
from stacklm.train.lost import company
from stacklm.train.options import RunConfig
from stacklm.train.recipes import muon_and_adamw
from stacklm.train.resume import Branch, Plan, shared_plan
from stacklm.train.states import restore
from stacklm.train.step import optimizer_step
from stacklm.train.validation import validate, validation_batches
from stacklm.train.world import World, world_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class DivergedError(RuntimeError):
    """A run that only skips steps; its last checkpoint is from before."""


@dataclass
class Run:
    """A run after its last step, or in the middle of it."""

    model: nn.Module
    """On the device of the run; over ranks, cut by FSDP2."""
    muon: Optimizer | None
    """Its state, if the run has one."""
    adamw: Optimizer
    """Its state."""
    step: int = 0
    """Steps done (count)."""
    skips: int = 0
    """Steps skipped in a row, up to now (count)."""
    checkpoint: Path | None = None
    """The newest one that this call wrote, by rank 0 if there are ranks."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended it early (yes or no)."""
    records: list[dict] = field(default_factory=list, repr=False)
    """The lines of ``metrics.jsonl``, from step 0 on; on ranks other than 0, only
    those of this call."""

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
    mesh: DeviceMesh | None = None,
) -> Run:
    """Train a model, and go on where an earlier call was stopped.

    Ctrl-C and SIGTERM let the step end, write a checkpoint and return; a second
    Ctrl-C stops at once. The random generators of the caller stay as they are.

    In a process group of several ranks, all of them train one model, and each calls
    this with the same arguments. Weights, batches and steps are those of one process,
    up to rounding; any rank that is asked to stop stops all. Rank 0 alone reads and
    writes `out` and draws the bar. Process groups are the caller's to make, with the
    timeout after which a silent rank is given up.

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
        mesh: The ranks, (shard,) or (replicate, shard) as for ``fully_shard``; None
            means all of the default process group, or one process if there is none.

    Returns:
        The run: model, optimizers, records.

    Raises:
        BusyError: Another process is training in `out`.
        CheckpointError: No checkpoint in `out` is whole.
        DivergedError: ``run_cfg.max_skips`` steps in a row had no finite gradients.
        FileExistsError: `out` has checkpoints, and `resume` is False.
        LostRankError: Another rank ended, or was silent for the group's timeout.
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
    world = world_of(mesh, device)
    where = {"out": out, "resume": resume, "branch": branch}
    device = world.device
    caller = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with company(world, out), ExitStack() as held, caller:
        world.first(lambda: _check(model_cfg, train_cfg, data, val, world))
        world.first(lambda: held.enter_context(only_one(out)))
        plan = shared_plan(world, model_cfg, train_cfg, data, **where)
        build = optimizers or muon_and_adamw
        run, peaks = _begin(model_cfg, train_cfg, plan, build, world)
        trainer = _Trainer(run, peaks, train_cfg, run_cfg, plan, data, val, out, world)
        show = progress if world.rank == 0 else False
        with closing(Progress(plan.total_steps, run.step, show)) as watch:
            trainer.go_on(watch)
    return run


def _check(model_cfg, train_cfg, data, val, world: World) -> None:
    check_fit(model_cfg, train_cfg, data=data, val=val)
    check_shares(train_cfg, world.size)


def _begin(model_cfg, train_cfg, plan: Plan, build, world) -> tuple[Run, tuple]:
    """Draw the weights, then put a checkpoint over them if there is one."""
    torch.manual_seed(train_cfg.seed)  # every rank draws the same, then cuts its part
    model = world.shard(Stack100M(model_cfg))
    muon, adamw = build(model, train_cfg)
    peaks = tuple(
        None if each is None else [float(group["lr"]) for group in each.param_groups]
        for each in (muon, adamw)
    )
    run = Run(model, muon, adamw)
    if plan.start is not None:
        restore(plan.start, model, muon, adamw, world=world)
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
    world: World

    def go_on(self, watch: Progress) -> None:
        """Step to the end, to Ctrl-C, or to the error that ends the run."""
        run, every, world = self.run, self.run_cfg.save_every, self.world
        kept = self.out and world.rank == 0
        metrics = Metrics(self.out / "metrics.jsonl" if kept else None, run.step)
        run.records = metrics.records
        fixed = []
        if self.val is not None and self.run_cfg.validate_every:
            size = self.run_cfg.validate_batches
            fixed = validation_batches(self.val, self.train_cfg, size, world)
        quiet = world.rank > 0
        with closing(metrics), Interrupt(quiet) as interrupt:
            world.asked = lambda: interrupt.asked
            while run.step < self.plan.total_steps and not run.interrupted:
                record = self._step(fixed)
                metrics.append(record)
                watch.update(record)
                self._stop_if_diverged()
                run.interrupted = world.stop if world.size > 1 else interrupt.asked
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
            micro_batches(self.data, cfg, run.step, self.world),
            *pair,
            self.peaks,
            run.step,
            cfg,
            multiplier=multiplier,
            world=self.world,
        )
        seconds = time.perf_counter() - begin
        run.step += 1
        run.skips = run.skips + 1 if log.skipped else 0
        speed = {"seconds": seconds, "tokens_per_second": log.tokens / seconds}
        record = {**vars(log), **speed}
        every, last = self.run_cfg.validate_every, run.step == self.plan.total_steps
        if fixed and (last or run.step % every == 0):
            record["val_loss"] = validate(run.model, fixed, self.world)
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
            world=self.world,
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
