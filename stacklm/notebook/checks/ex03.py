"""Exercise 3: another budget. Steps, phases, learning rates, and where decay begins."""

import math
from functools import cache

from stacklm.notebook.checking import Check, Mistake
from stacklm.optim import wsd_lr
from stacklm.optim.schedule import wsd_multiplier

# Tokens, micro-batch, sequence length, accumulation.
BUDGETS = [
    (30e9, 32, 2048, 8),
    (20e9, 32, 2048, 8),  # rounds up
    (1e9, 8, 2048, 4),
]
RUNS = [(57_220, 2_000, 0.1), (38_147, 2_000, 0.1), (1_009, 50, 0.2)]
MOMENTS = [(0.25, 0.02, 3e-3), (0.81, 0.02, 3e-3), (0.04, 0.016, 2.4e-3)]


def _nearest(tokens, micro_batch, seq_len, accumulation):
    """Try the steps around, and keep the one whose tokens come nearest."""
    batch = micro_batch * seq_len * accumulation
    low = int(tokens // batch)
    return min((low, low + 1), key=lambda steps: abs(steps * batch - tokens))


STEPS = Check(
    key="03a",
    task="steps_for(tokens, micro_batch, seq_len, accumulation)",
    cases=lambda: list(BUDGETS),
    expected=_nearest,
    rtol=0.0,
    verified=(
        "For three budgets, no other number of steps comes as near to the tokens that "
        "were to be spent."
    ),
    mistakes=(
        Mistake(
            "rounded down",
            lambda t, b, s, a: int(t // (b * s * a)),
            "You round down. For 30 billion tokens that is the same; 20 billion are "
            "38,146.97 batches, and the nearest step is 38,147.",
        ),
        Mistake(
            "rounded up",
            lambda t, b, s, a: math.ceil(t / (b * s * a)),
            "You round up. 30 billion tokens are 57,220.46 batches; the nearest step "
            "is below.",
        ),
        Mistake(
            "no accumulation",
            lambda t, b, s, a: round(t / (b * s)),
            "You count micro-batches. The optimizer steps once per accumulation, "
            "after several of them.",
        ),
        Mistake(
            "sequences",
            lambda t, b, s, a: round(t / (b * a)),
            "You divide tokens by sequences. Each sequence has seq_len tokens.",
        ),
        Mistake(
            "not a whole number",
            lambda t, b, s, a: t / (b * s * a),
            "There are only whole steps: round to the nearest.",
        ),
    ),
)


@cache
def _at_the_peak(total_steps, warmup_steps, decay_frac):
    """Ask the schedule for every step; return the first and last at the peak."""
    at = wsd_multiplier(
        warmup_steps=warmup_steps, total_steps=total_steps, decay_frac=decay_frac
    )
    peak = [step for step in range(total_steps) if at(step) == 1]
    return peak[0], peak[-1]


def _phases(total_steps, warmup_steps, decay_frac):
    """Read the phases off the schedule: both neighbours of the stable phase touch 1."""
    first, last = _at_the_peak(total_steps, warmup_steps, decay_frac)
    return first + 1, last - first - 1, total_steps - last


def _decay(total, frac):
    return int(frac * total)


PHASES = Check(
    key="03b",
    task="phases(total_steps, warmup_steps, decay_frac)",
    cases=lambda: list(RUNS),
    expected=_phases,
    rtol=0.0,
    verified=(
        "The schedule was asked for every step of three runs, and its phases are as "
        "long as you say."
    ),
    mistakes=(
        Mistake(
            "decay rounded",
            lambda t, w, f: (w, t - w - round(f * t), round(f * t)),
            "You round the decay. The schedule takes int(decay_frac · total), which "
            "cuts off: 3,814 of 38,147 steps, not 3,815.",
        ),
        Mistake(
            "warmup in stable",
            lambda t, w, f: (w, t - _decay(t, f), _decay(t, f)),
            "Your phases add up to more than the run: the warmup is counted in the "
            "stable phase too.",
        ),
        Mistake(
            "decay of the rest",
            lambda t, w, f: (w, t - w - _decay(t - w, f), _decay(t - w, f)),
            "The decay is a fraction of the whole run, not of what the warmup leaves.",
        ),
        Mistake(
            "order",
            lambda t, w, f: (w, _decay(t, f), t - w - _decay(t, f)),
            "The numbers are right but in another order: asked is (warmup, stable, "
            "decay).",
        ),
    ),
)


def _scheduled(progress, muon_peak, adamw_peak):
    """Ask the schedule, in a decay of ten thousand steps."""
    run = {"warmup_steps": 0, "total_steps": 20_000, "decay_steps": 10_000}
    step = 10_000 + round(10_000 * progress)
    return tuple(wsd_lr(step, peak_lr=peak, **run) for peak in (muon_peak, adamw_peak))


def _both(shape):
    return lambda p, muon, adamw: (muon * shape(p), adamw * shape(p))


RATES = Check(
    key="03c",
    task="rates_in_decay(progress, muon_peak, adamw_peak)",
    cases=lambda: list(MOMENTS),
    expected=_scheduled,
    verified="The schedule gives the same pair at three points of a decay.",
    mistakes=(
        Mistake(
            "linear",
            _both(lambda p: 1 - p),
            "That is a linear decay. This one falls as 1 − √p, fast at first.",
        ),
        Mistake(
            "√p",
            _both(math.sqrt),
            "√p rises with progress. At a quarter it happens to equal 1 − √p, which "
            "is asked; elsewhere it does not.",
        ),
        Mistake(
            "√(1 − p)",
            _both(lambda p: math.sqrt(1 - p)),
            "You take the root of what is left. The schedule takes one minus the root "
            "of what is done.",
        ),
        Mistake(
            "cosine",
            _both(lambda p: (1 + math.cos(math.pi * p)) / 2),
            "That is the half cosine. This decay is 1 − √p.",
        ),
        Mistake(
            "one rate for both",
            lambda p, muon, adamw: (muon * (1 - math.sqrt(p)),) * 2,
            "Both groups got Muon's rate. One multiplier drives both, and each keeps "
            "its own peak.",
        ),
    ),
)


def _last_at_the_peak(total_steps, decay_frac):
    return _at_the_peak(total_steps, 0, decay_frac)[1]


HAND_OVER = Check(
    key="03d",
    task="hand_over_step(total_steps, decay_frac)",
    cases=lambda: [(total, frac) for total, _, frac in RUNS],
    expected=_last_at_the_peak,
    rtol=0.0,
    verified=(
        "It is the last step that the schedule runs at the peak, where the progress of "
        "the decay is zero, in all three runs."
    ),
    mistakes=(
        Mistake(
            "int(0.9 · total)",
            lambda t, f: int((1 - f) * t),
            "That is int(0.9 · total). For 57,220 steps it is the same; for 38,147 it "
            "is 34,332, the last step of the stable phase. Subtract the decay steps.",
        ),
        Mistake(
            "last stable step",
            lambda t, f: t - _decay(t, f) - 1,
            "You name the last step of the stable phase. Asked is the first step of "
            "the decay, counted from 0, which is one later.",
        ),
        Mistake(
            "first lower step",
            lambda t, f: t - _decay(t, f) + 1,
            "You name the first step that runs below the peak. The decay begins one "
            "step before, with progress zero and so still at the peak.",
        ),
        Mistake(
            "length of the decay",
            _decay,
            "That is how long the decay lasts; asked is where it begins.",
        ),
    ),
)

CHECKS = (STEPS, PHASES, RATES, HAND_OVER)
