"""Sweeps of the peak learning rate on a small rung: a line of short runs, and its U.

    for lr in grid, for seed in seeds:   Muon at lr, AdamW at lr / ratio -> final loss

Every run is ``stacklm.train.pretrain``: its schedule, its clipping, its sensors. Units:
learning rates are per step, losses in nats per token. Taught in chapter 05.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from stacklm.config import StackConfig, TrainConfig
from stacklm.train import DivergedError, Run, RunConfig, Tokens, pretrain

# Stack-100M's peaks are 0.02 and 3e-3. The ratio is empirical; chapter 05 looks at it.
RATIO = 0.02 / 3e-3


@dataclass(frozen=True)
class Rung:
    """A model small enough to be trained many times, and how it is trained."""

    model: StackConfig
    """What is trained."""
    train: TrainConfig
    """How; a sweep replaces its peaks and its seed."""
    data: Tokens
    """What it is trained on."""
    val: Tokens
    """What the final loss is measured on."""
    val_batches: int = 32
    """Size of the validation set (micro-batches)."""

    def run(
        self,
        muon_lr: float,
        adamw_lr: float | None = None,
        *,
        optimizers: Callable | None = None,
        **fields: Any,
    ) -> Run:
        """Train once, from the start to the last step.

        Args:
            muon_lr: Peak learning rate of Muon (per step).
            adamw_lr: Peak learning rate of AdamW; None holds the ratio of
                Stack-100M's peaks, about 6.7 : 1 (per step).
            optimizers: As for ``pretrain``; None means Muon and AdamW.
            **fields: Of ``TrainConfig``, set for this run.

        Returns:
            The run; its last record has ``val_loss``.

        Raises:
            DivergedError: Several steps in a row had no finite gradients.
            TypeError: ``fields`` names something that ``TrainConfig`` has not.
            ValueError: A value that ``TrainConfig`` refuses.
        """
        peaks = {
            "muon_peak_lr": muon_lr,
            "adamw_peak_lr": muon_lr / RATIO if adamw_lr is None else adamw_lr,
        }
        # Validation once, at the end: on the way the batches' loss will do.
        watch = RunConfig(
            validate_every=self.train.total_steps,
            validate_batches=self.val_batches,
        )
        return pretrain(
            self.model,
            replace(self.train, **peaks, **fields),
            self.data,
            val=self.val,
            run_cfg=watch,
            optimizers=optimizers,
            progress=False,
        )

    def final_loss(
        self, muon_lr: float, adamw_lr: float | None = None, **fields: Any
    ) -> float:
        """Train once and return the validation loss after the last step.

        Args:
            muon_lr, adamw_lr, fields: As for :meth:`run`.

        Returns:
            The loss (nats per token); infinity if the run diverged or ended without a
            finite loss, so that it is never the lowest.
        """
        try:
            loss = self.run(muon_lr, adamw_lr, **fields).records[-1]["val_loss"]
        except DivergedError:
            return math.inf
        return math.inf if loss is None else loss


def sweep(
    rung: Rung, grid: Sequence[float], seeds: Sequence[int] = (0, 1, 2), **fields: Any
) -> dict[float, list[float]]:
    """Train at every learning rate of a grid, with every seed.

    Args:
        rung: What is trained, and how.
        grid: Peak learning rates of Muon, ascending (per step). AdamW's move along.
        seeds: Each draws its own weights and order of the text.
        **fields: Of ``TrainConfig``, set for all runs.

    Returns:
        By learning rate, the final validation loss of each seed (nats per token).

    Raises:
        ValueError: A grid that does not ascend, or no seed.
    """
    if not seeds or list(grid) != sorted(set(grid)):
        raise ValueError(
            f"a sweep needs an ascending grid and a seed, got {list(grid)} and seeds "
            f"{list(seeds)}; sort the grid and give at least one seed"
        )
    return {
        lr: [rung.final_loss(lr, seed=seed, **fields) for seed in seeds] for lr in grid
    }


def lowest(losses: Mapping[float, Sequence[float]]) -> float:
    """Find the learning rate with the lowest mean loss, between two that are worse.

    Args:
        losses: Of :func:`sweep`.

    Returns:
        The learning rate.

    Raises:
        ValueError: The lowest one is at an end of the grid, so that the loss may go on
            falling beyond it.

    Example:
        >>> lowest({0.01: [2.9, 3.1], 0.02: [2.7, 2.6], 0.04: [2.8, 3.3]})
        0.02
    """
    means = {lr: mean(each) for lr, each in losses.items()}
    best = min(means, key=means.get)
    if best in (min(means), max(means)):
        raise ValueError(
            f"the lowest loss must lie inside the grid, got it at its end, {best:g}; "
            f"add grid points beyond {best:g}"
        )
    return best


def spread(losses: Sequence[float]) -> float:
    """The distance from the best seed to the worst one (nats per token)."""
    return max(losses) - min(losses)
