"""Warmup–Stable–Decay: the learning rate as a pure function of the step.

    step <  W            peak * (t + 1) / W            warmup; step 0 already trains
    step <  T - D        peak                          stable
    step <  T            peak * (1 - (1 - f)*sqrt(p))  decay, p = (t - (T - D)) / D
    step >= T            peak * f                      the end; never below

Legend: t = step, counted from 0; W, D, T = steps of warmup, of decay and of the whole
run; f = final_frac; p = progress of the decay, 0 at its first step. Units: steps are
optimizer steps, a learning rate is per step.
Sources: Hu et al. 2024, arXiv:2404.06395, section 4 for the three phases; Hägele et al.
2024, arXiv:2405.18392, section 3 for 1 - sqrt. Taught in chapter 09.

Nothing here keeps state: a schedule can be plotted, or asked twice, and no run changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import index

SHAPES = ("1-sqrt", "linear", "cosine", "exponential")


def wsd_lr(
    step: int,
    *,
    peak_lr: float,
    warmup_steps: int,
    total_steps: int,
    decay_steps: int | None = None,
    decay_frac: float = 0.2,
    final_frac: float = 0.0,
    shape: str = "1-sqrt",
) -> float:
    """The learning rate of one step of a run whose length is known.

    Args:
        step: The optimizer step, counted from 0; past the end is allowed.
        peak_lr: Learning rate of the stable phase (per step).
        warmup_steps: Length of the warmup; 0 for none (steps).
        total_steps: Length of the run (steps). The first step of the decay
            is ``total_steps - decay_steps``, and it still runs at the peak.
        decay_steps: Length of the decay (steps); wins over ``decay_frac``.
        decay_frac: The same as a fraction of the run:
            ``int(decay_frac * total_steps)`` steps.
        final_frac: What is left at the end (fraction of the peak).
        shape: Of the decay, one of ``SHAPES``. "exponential" goes down by
            the same factor each step, so it needs ``final_frac`` above 0.

    Returns:
        The learning rate, from 0 to ``peak_lr``.

    Raises:
        TypeError: A step or length that is no int, or a rate no number.
        ValueError: A value out of range, an unknown shape, or a warmup and
            decay that do not fit into the run.

    Example:
        >>> run = dict(peak_lr=0.02, warmup_steps=2_000, total_steps=38_147)
        >>> wsd_lr(0, decay_frac=0.1, **run)
        1e-05
        >>> wsd_lr(34_333, decay_frac=0.1, **run)
        0.02

    References:
        Hu et al. 2024, arXiv:2404.06395, section 4.
        Hägele et al. 2024, arXiv:2405.18392, section 3.
    """
    multiplier = wsd_multiplier(
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        decay_steps=decay_steps,
        decay_frac=decay_frac,
        final_frac=final_frac,
        shape=shape,
    )
    peak = _number("peak_lr", peak_lr)
    if not 0 <= peak < math.inf:
        raise ValueError(
            f"peak_lr must be finite and at least 0, got {peak_lr}; "
            "the sign of a step belongs to the optimizer"
        )
    return peak * multiplier(step)


def wsd_lr_branch(
    step: int,
    *,
    peak_lr: float,
    warmup_steps: int,
    stable_steps: int,
    decay_steps: int,
    final_frac: float = 0.0,
    shape: str = "1-sqrt",
) -> float:
    """The learning rate when the decay branches off a stable phase.

    The stable phase needs no planned end: train on, and start a decay from
    any of its checkpoints by naming the steps done so far.

    Args:
        step: The optimizer step, counted from 0 at the start of the trunk.
        peak_lr: Learning rate of the stable phase (per step).
        warmup_steps: Length of the warmup (steps).
        stable_steps: Steps of the trunk between warmup and branch.
        decay_steps: Length of this branch (steps).
        final_frac: What is left at the end (fraction of the peak).
        shape: Of the decay, one of ``SHAPES``.

    Returns:
        What ``wsd_lr`` returns for a run of ``warmup_steps + stable_steps +
        decay_steps``. Before the branch it does not depend on
        ``decay_steps``.

    Raises:
        TypeError, ValueError: As ``wsd_lr``.

    Example:
        >>> branch = dict(peak_lr=0.02, warmup_steps=10, decay_steps=100)
        >>> [wsd_lr_branch(60, stable_steps=n, **branch) for n in (50, 25)]
        [0.02, 0.01]
    """
    lengths = {
        "warmup_steps": warmup_steps,
        "stable_steps": stable_steps,
        "decay_steps": decay_steps,
    }
    total = sum(_count(name, steps) for name, steps in lengths.items())
    return wsd_lr(
        step,
        peak_lr=peak_lr,
        warmup_steps=warmup_steps,
        total_steps=total,
        decay_steps=decay_steps,
        final_frac=final_frac,
        shape=shape,
    )


def wsd_multiplier(
    *,
    warmup_steps: int,
    total_steps: int,
    decay_steps: int | None = None,
    decay_frac: float = 0.2,
    final_frac: float = 0.0,
    shape: str = "1-sqrt",
) -> Callable[[int], float]:
    """The schedule without its peak, so that one drives every group.

    ``torch.optim.lr_scheduler.LambdaLR`` multiplies it with the rate that each
    parameter group was built with: Muon keeps its peak and AdamW its own.

    Args:
        warmup_steps, total_steps, decay_steps, decay_frac, final_frac, shape:
            As for ``wsd_lr``; checked here, once.

    Returns:
        A function from the step to a multiplier in [0, 1]. It can be pickled.

    Raises:
        TypeError, ValueError: As ``wsd_lr``, for the lengths, the fractions
            and the shape. The function itself refuses a step that is no int
            or below 0.

    Example:
        >>> f = wsd_multiplier(warmup_steps=4, total_steps=20, decay_steps=4)
        >>> [f(step) for step in (0, 3, 16, 17, 20)]
        [0.25, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = _count("warmup_steps", warmup_steps)
    total = _count("total_steps", total_steps, least=1)
    fraction = _fraction("decay_frac", decay_frac)
    final = _fraction("final_frac", final_frac)
    if decay_steps is None:
        decay = int(fraction * total)
    else:
        decay = _count("decay_steps", decay_steps)
    if shape not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}")
    if shape == "exponential" and final == 0:
        raise ValueError(
            "an exponential decay never reaches 0, got final_frac=0.0; "
            "name the fraction where it ends, such as final_frac=0.01"
        )
    if warmup + decay > total:
        raise ValueError(
            f"warmup and decay must fit into the run: {warmup} + {decay} steps "
            f"are more than total_steps = {total}; shorten one of them"
        )
    return partial(
        _multiplier,
        warmup=warmup,
        total=total,
        decay=decay,
        final=final,
        shape=shape,
    )


def _multiplier(
    step: int, warmup: int, total: int, decay: int, final: float, shape: str
) -> float:
    """The four lines of the module's formula; lengths were checked."""
    step = _count("step", step)
    first_decay = total - decay
    if step >= total:
        return final  # clamped: from here on nothing falls further
    if step < warmup:
        return (step + 1) / warmup  # t + 1, so that step 0 trains
    if step < first_decay:
        return 1.0
    return decayed((step - first_decay) / decay, final, shape)


def decayed(p: float, final: float = 0.0, shape: str = "1-sqrt") -> float:
    """What is left of the peak when a fraction p of the decay is done.

    Args:
        p: Progress, 0 at the first step of the decay, 1 just past the last.
        final: What is left at p = 1 (fraction of the peak).
        shape: One of ``SHAPES``.

    Returns:
        The multiplier: exactly 1 at p = 0, and ``final`` at p = 1.

    Example:
        >>> decayed(0.25), decayed(0.25, shape="linear")
        (0.5, 0.75)
    """
    if shape == "exponential":
        return final**p
    fallen = {
        "1-sqrt": math.sqrt(p),
        "linear": p,
        "cosine": (1 - math.cos(math.pi * p)) / 2,
    }[shape]
    return 1 - (1 - final) * fallen


def _count(name: str, value, least: int = 0) -> int:
    """``value`` as an int of at least ``least``; 8.0 and True are no counts."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an int, got {value!r} ({type(value).__name__}); "
            "steps are counted in whole steps, so round it first"
        ) from None
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return count


def _fraction(name: str, value) -> float:
    """``value`` as a number from 0 to 1; NaN fails, too."""
    if not 0 <= (number := _number(name, value)) <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
    return number


def _number(name: str, value) -> float:
    """``value`` as a float; texts and bools are no numbers."""
    if isinstance(value, bool | str):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {value!r}") from None
