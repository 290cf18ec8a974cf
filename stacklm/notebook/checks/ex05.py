"""Exercise 5: the learning rate of a decay that branches off a stable phase."""

from collections.abc import Callable

import numpy as np

from stacklm.notebook.checking import Check, Mistake

PEAK = 0.02


def _cases() -> list[tuple]:
    """Steps at and beside every border, for branches of several lengths."""
    cases = []
    for warmup, stable, decay in ((10, 50, 20), (4, 25, 100), (0, 3, 8), (8, 0, 4)):
        first, end = warmup + stable, warmup + stable + decay
        steps = {0, warmup - 1, warmup, first - 1, first, first + 1}
        steps |= {first + decay // 4, end - 1, end, end + 1, end + 50}
        cases += [
            (step, PEAK, warmup, stable, decay) for step in sorted(steps) if step >= 0
        ]
    return cases


def _by_interpolation(step, peak_lr, warmup_steps, stable_steps, decay_steps):
    """Connect the corners by straight lines, then take the root of what is gone."""
    first = warmup_steps + stable_steps
    corners = [-1, warmup_steps - 1, first, first + decay_steps]
    straight = float(np.interp(step, corners, [0, 1, 1, 0]))
    return peak_lr * (straight if step < first else 1 - (1 - straight) ** 0.5)


def _variant(
    *,
    rise: Callable = lambda t, w: (t + 1) / w,
    first: Callable = lambda w, s: w + s,
    left: Callable = lambda p: 1 - p**0.5,
    late: int = 0,
    clamp: bool = True,
    unit: Callable = lambda peak: peak,
) -> Callable:
    """Return the schedule with one of its parts done otherwise."""

    def wsd_lr_branch(step, peak_lr, warmup_steps, stable_steps, decay_steps):
        begins = first(warmup_steps, stable_steps)
        if step < warmup_steps:
            return unit(peak_lr) * rise(step, warmup_steps)
        if step < begins:
            return unit(peak_lr)
        p = (step - begins + late) / decay_steps
        return unit(peak_lr) * (left(min(p, 1.0)) if clamp else left(p))

    return wsd_lr_branch


BRANCH = Check(
    key="05a",
    task="wsd_lr_branch(step, peak_lr, warmup_steps, stable_steps, decay_steps)",
    cases=_cases,
    expected=_by_interpolation,
    verified=(
        "Your schedule agrees with interpolation, with the root taken in the decay, on "
        "both sides of every border of the phases of four branches."
    ),
    mistakes=(
        Mistake(
            "warmup from zero",
            _variant(rise=lambda t, w: t / w),
            "Your warmup is t / W, so step 0 has a rate of zero and trains nothing. "
            "Count the step that is being done: (t + 1) / W.",
        ),
        Mistake(
            "no clamp",
            _variant(clamp=False),
            "Past the end your rate is negative, which walks uphill. From the last "
            "step on it stays at zero.",
        ),
        Mistake(
            "warmup forgotten",
            _variant(first=lambda w, s: max(w, s)),
            "Your decay begins at stable_steps. The stable phase comes after the "
            "warmup, so the decay begins at warmup_steps + stable_steps.",
        ),
        Mistake(
            "root of the rest",
            _variant(left=lambda p: (1 - p) ** 0.5),
            "You keep √(1 − p), which is slow at first and fast at the end. Asked is "
            "1 − √p: fast at first.",
        ),
        Mistake(
            "linear",
            _variant(left=lambda p: 1 - p),
            "Your decay is a straight line; what is gone should be the root of the "
            "progress.",
        ),
        Mistake(
            "one step early",
            _variant(late=1),
            "Your decay is one step early: at its first step the progress is 0, so "
            "that step still runs at the peak.",
        ),
        Mistake(
            "multiplier",
            _variant(unit=lambda peak: 1.0),
            "That is the multiplier, from 0 to 1. Multiply it by peak_lr.",
        ),
    ),
)


def _steps_by_walking(warmup_steps, stable_steps, decay_steps):
    """Do every step of the trunk once, and every step of each branch."""
    done = set()
    for start, decay in zip(stable_steps, decay_steps, strict=True):
        first = warmup_steps + start
        done |= {("trunk", step) for step in range(first)}
        done |= {(start, decay, step) for step in range(first, first + decay)}
    return len(done)


COST = Check(
    key="05b",
    task="steps_to_pay(warmup_steps, stable_steps, decay_steps)",
    cases=lambda: [
        (10, (50, 100, 200), (10, 20, 40)),
        (4, (20, 20), (5, 10)),
        (0, (30, 10), (3, 1)),
    ],
    expected=_steps_by_walking,
    verified=(
        "Your sum is the number of different steps when every step of the trunk and of "
        "each branch is done once."
    ),
    mistakes=(
        Mistake(
            "separate runs",
            lambda w, s, d: sum(w + a + b for a, b in zip(s, d, strict=True)),
            "That is the price of separate runs. The branches share the trunk, so its "
            "steps are paid once.",
        ),
        Mistake(
            "all stable phases added",
            lambda w, s, d: w + sum(s) + sum(d),
            "You add up the stable phases. They are parts of one trunk: only the "
            "longest is paid.",
        ),
        Mistake(
            "warmup left out",
            lambda w, s, d: max(s) + sum(d),
            "The warmup is part of the trunk, and its steps are missing.",
        ),
        Mistake(
            "longest run only",
            lambda w, s, d: w + max(a + b for a, b in zip(s, d, strict=True)),
            "That is the longest run alone. Each branch has decay steps of its own.",
        ),
    ),
)

CHECKS = (BRANCH, COST)
