"""Does it learn faster? ``python -m stacklm.train.learns`` measures it on Moby-Dick.

AdamW alone against Muon + AdamW: the same model, batches and schedule. Learning rates
are swept by factors of two until the best lies between two worse ones, for both sides;
then each side runs once per seed. What counts is the part of the steps after which Muon
+ AdamW has reached the final validation loss of AdamW with the same seed.

Units: losses in nats per token, learning rates per step. Taught in chapter 11.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from stacklm.train.data import open_tokens
from stacklm.train.loop import DivergedError, pretrain
from stacklm.train.options import RunConfig
from stacklm.train.presets import PRESETS
from stacklm.train.recipes import adamw_alone, muon_and_adamw

RUN = RunConfig(validate_every=10, validate_batches=16)
# Where the sweeps begin: near what a first one found, which only saves time.
ADAMW_START, MUON_START, ADAMW_BESIDE_MUON = 4e-3, 1e-2, 4e-3


def sweep(loss_at: Callable[[float], float], start: float) -> float:
    """Find the best learning rate on a grid of factors of two.

    Args:
        loss_at: Final validation loss at a learning rate.
        start: A point of the grid.

    Returns:
        The learning rate whose neighbours on both sides are worse.
    """
    tried = {0: loss_at(start)}
    while True:
        best = min(tried, key=tried.get)
        missing = [k for k in (best - 1, best + 1) if k not in tried]
        if not missing:
            return start * 2.0**best
        tried[missing[0]] = loss_at(start * 2.0 ** missing[0])


def steps_to(curve: list[tuple[int, float]], loss: float) -> float:
    """When a validation curve first reaches a loss, between two points by a line.

    Args:
        curve: (steps done, loss), in order.
        loss: What is to be reached.

    Returns:
        Steps; infinity if it is never reached.
    """
    before = None
    for step, now in curve:
        if now <= loss:
            if before is None:
                return float(step)
            (start, high) = before
            return start + (step - start) * (high - loss) / (high - now)
        before = (step, now)
    return float("inf")


def main(argv: list[str] | None = None) -> int:
    """Run the command; print every run and the fraction at the end."""
    args = _parser().parse_args(argv)
    preset = PRESETS["toy"]
    data, val = (open_tokens("moby-dick", split) for split in ("train", "val"))

    @cache
    def curve(muon_lr: float | None, adamw_lr: float, seed: int):
        cfg = replace(
            preset.train,
            muon_peak_lr=muon_lr or preset.train.muon_peak_lr,
            adamw_peak_lr=adamw_lr,
            total_steps=args.steps,
            warmup_steps=min(preset.train.warmup_steps, args.steps // 10),
            seed=seed,
        )
        build = muon_and_adamw if muon_lr else adamw_alone
        try:
            ends = {"val": val, "run_cfg": RUN, "optimizers": build}
            points = pretrain(preset.model, cfg, data, **ends).validation
        except DivergedError:
            points = [(args.steps, math.inf)]  # a worse neighbour, as good as any
        side = f"Muon {muon_lr:g} + AdamW" if muon_lr else "AdamW"
        print(f"{side} {adamw_lr:g}, seed {seed}: {points[-1][1]:.4f}", flush=True)
        return points

    def final(muon_lr, adamw_lr):
        """The mean over the seeds that the sweep looks at."""
        curves = [curve(muon_lr, adamw_lr, seed) for seed in args.sweep_seeds]
        return statistics.mean(each[-1][1] for each in curves)

    alone = sweep(lambda lr: final(None, lr), ADAMW_START)
    muon, beside = _sweep_pair(final)
    _report(curve, args, alone, muon, beside)
    return 0


def _sweep_pair(final) -> tuple[float, float]:
    """Both learning rates of the pair: one in turn, until neither moves."""
    muon, beside = MUON_START, ADAMW_BESIDE_MUON
    while True:
        before = (muon, beside)
        muon = sweep(lambda lr, beside=beside: final(lr, beside), muon)
        beside = sweep(lambda lr, muon=muon: final(muon, lr), beside)
        if (muon, beside) == before:
            return before


def _report(curve, args, alone: float, muon: float, beside: float) -> None:
    fractions = []
    print(f"\nbest: AdamW {alone:g}; Muon {muon:g} + AdamW {beside:g}")
    for seed in args.seeds:
        target = curve(None, alone, seed)[-1][1]
        ours = curve(muon, beside, seed)
        fractions.append(steps_to(ours, target) / args.steps)
        print(
            f"seed {seed}: AdamW ends at {target:.4f}, Muon + AdamW at "
            f"{ours[-1][1]:.4f}, and reaches {target:.4f} after "
            f"{fractions[-1]:.1%} of the steps"
        )
    print(
        f"mean over {len(fractions)} seeds: {statistics.mean(fractions):.1%} "
        f"({min(fractions):.1%} to {max(fractions):.1%})"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stacklm.train.learns",
        description="How many steps Muon + AdamW needs to reach AdamW's final loss: "
        "toy model, Moby-Dick, learning rates swept. Takes some minutes.",
    )
    whole = {"type": int, "nargs": "+"}
    parser.add_argument("--steps", type=int, default=300, help="of each run")
    parser.add_argument("--seeds", **whole, default=[0, 1, 2], help="that are compared")
    parser.add_argument(
        "--sweep-seeds", **whole, default=[0], help="that learning rates are swept on"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
