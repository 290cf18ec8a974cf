"""Time by turns: every candidate runs once per round, so that load hits all alike.

Units: seconds, of the wall or of the processor. On CUDA a time ends when the device has
done what it was asked.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Times:
    """The times of one candidate, a number per round, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        """The least; on a busy machine, the one that was disturbed least."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Slowest less fastest, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


def by_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int = 5,
    *,
    clock: str = "wall",
    device: str = "cpu",
    said: Callable[[str], None] = lambda text: None,
) -> dict[str, Times]:
    """Time every candidate in every round, one after another.

    Nothing is run beforehand: what a candidate must do once, do before.

    Args:
        candidates: {name: function}; its result is dropped.
        rounds: How often each is run, at least 1.
        clock: "wall", or "cpu" for the processor's time of this process, which a busy
            machine disturbs less. With several threads that includes their waiting.
        device: What to wait for: "cpu" or "cuda".
        said: Told what is timed now.

    Returns:
        {name: times}.

    Raises:
        ValueError: ``rounds`` is below 1, or the clock unknown.
    """
    if clock not in CLOCKS:
        raise ValueError(f'clock must be "wall" or "cpu", got {clock!r}')

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return CLOCKS[clock]()

    def timed(run: Callable[[], object]) -> float:
        start = now()
        run()
        return now() - start

    timers = {name: functools.partial(timed, run) for name, run in candidates.items()}
    return told_by_turns(timers, rounds, said=said)


def told_by_turns(
    candidates: Mapping[str, Callable[[], float]],
    rounds: int = 5,
    *,
    said: Callable[[str], None] = lambda text: None,
) -> dict[str, Times]:
    """Run every candidate in every round; each says itself how long it took.

    For what happens in other processes.

    Args:
        candidates: {name: function that returns seconds}.
        rounds: How often each is run, at least 1.
        said: Told what is timed now.

    Returns:
        {name: times}.

    Raises:
        ValueError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        for name, run in candidates.items():
            said(f"round {turn + 1} of {rounds}: {name}")
            seconds[name].append(run())
    return {name: Times(tuple(each)) for name, each in seconds.items()}


def ratio(times: Mapping[str, Times], name: str, base: str) -> float:
    """The median over rounds of one candidate's time divided by another's.

    The quotient is taken within a round, where both met the same load.

    Args:
        times: What ``by_turns`` returned.
        name: The candidate above the line.
        base: The candidate below it.

    Returns:
        A number without unit.
    """
    pairs = zip(times[name].seconds, times[base].seconds, strict=True)
    return statistics.median(a / b for a, b in pairs)
