"""Exercise 7: what QK-norm makes of scale, the bound it leaves, and gains to clip."""

import math

import torch
import torch.nn.functional as F

from stacklm.config import StackConfig
from stacklm.model import Attention
from stacklm.notebook.checking import Check, Mistake
from stacklm.notebook.checks import plain

MEAN_SQUARES = (
    (0.04, 0.01, 0.3, 1e-5),
    (1.0, 1.0, 0.01, 1e-5),
    (0.002, 0.5, 3.0, 1e-3),
    (0.5, 0.002, 0.1, 1e-4),
)


def _vector(mean_square: float, seed: int) -> torch.Tensor:
    """Draw a vector of 16 entries whose mean square is the given one."""
    v = plain.gaussian(1, 16, seed=seed, dtype=torch.float64)[0]
    return v * (mean_square / v.square().mean()).sqrt()


def _ratio_of_logits(m_q: float, m_k: float, c: float, eps: float) -> float:
    """Scale a query and a key by c and let torch's own RMSNorm answer."""

    def logit(scale: float) -> torch.Tensor:
        sides = (scale * _vector(m_q, 1), scale * _vector(m_k, 2))
        q, k = (F.rms_norm(side, (16,), eps=eps) for side in sides)
        return q @ k

    return (logit(c) / logit(1.0)).item()


def _one_side(m: float, c: float, eps: float) -> float:
    return math.sqrt((m + eps) / (m + eps / c**2))


CHANGE = Check(
    key="07a",
    task="logit_change(m_q, m_k, c, eps)",
    cases=lambda: list(MEAN_SQUARES),
    expected=_ratio_of_logits,
    verified=(
        "Your factor is the ratio of two logits computed from real vectors with "
        "torch's RMSNorm, in four cases."
    ),
    mistakes=(
        Mistake(
            "no norm",
            lambda m_q, m_k, c, eps: c * c,
            "A factor of c² is what happens without QK-norm. The norm divides each "
            "side by its own RMS, which contains c as well.",
        ),
        Mistake(
            "no ε",
            lambda m_q, m_k, c, eps: 1.0,
            "A factor of 1 is the answer for ε = 0. Keep ε: it does not scale with "
            "the vector.",
        ),
        Mistake(
            "ε times c²",
            lambda m_q, m_k, c, eps: math.prod(
                math.sqrt((m + eps) / (m + eps * c**2)) for m in (m_q, m_k)
            ),
            "You multiply ε by c². In √(c²m + ε) pull c² out of the root: ε is "
            "divided by it.",
        ),
        Mistake(
            "query only",
            lambda m_q, m_k, c, eps: _one_side(m_q, c, eps),
            "That is the change of the query. The key is scaled and normalized as "
            "well: one factor for each.",
        ),
        Mistake(
            "upside down",
            lambda m_q, m_k, c, eps: (
                1 / (_one_side(m_q, c, eps) * _one_side(m_k, c, eps))
            ),
            "That is before over after. Asked is after over before, below 1 for c < 1.",
        ),
        Mistake(
            "no square root",
            lambda m_q, m_k, c, eps: (
                (_one_side(m_q, c, eps) * _one_side(m_k, c, eps)) ** 2
            ),
            "RMSNorm divides by the root of the mean square: the square root is "
            "missing.",
        ),
    ),
)


def _longest(gain: torch.Tensor) -> float:
    """Length of the longest vector behind RMSNorm: all of it in one feature."""
    spikes = torch.eye(len(gain), dtype=torch.float64)
    return (F.rms_norm(spikes, gain.shape, eps=0.0) * gain).norm(dim=1).max().item()


def _from_lengths(gain_q: torch.Tensor, gain_k: torch.Tensor) -> float:
    return _longest(gain_q) * _longest(gain_k) / math.sqrt(len(gain_q))


def _gain_pairs() -> list[tuple]:
    ones = torch.ones(64, dtype=torch.float64)
    q, k = plain.gaussian(2, 16, seed=3, dtype=torch.float64)
    q[5] = -4.0  # the largest entry in size is negative
    return [(ones, ones), (q, k), (torch.linspace(0.5, 2, 16).double(), -k)]


def _bound(size=lambda g: g.abs().max(), width=lambda d: d**0.5):
    """Return the formula with another size of a gain, or another power of d_h."""
    return lambda q, k: (size(q) * size(k) * width(len(q))).item()


BOUND = Check(
    key="07b",
    task="logit_bound(gain_q, gain_k)",
    cases=_gain_pairs,
    expected=_from_lengths,
    verified=(
        "Your bound is the product of the longest query and the longest key that "
        "RMSNorm can return, divided by √d_h."
    ),
    mistakes=(
        Mistake(
            "√d_h left out",
            _bound(width=lambda d: 1.0),
            "√d_h is missing. Each normalized vector has length √d_h before its gain, "
            "and only one of the two roots is divided out.",
        ),
        Mistake(
            "not divided by √d_h",
            _bound(width=float),
            "That bounds q · k. The logit is divided by √d_h.",
        ),
        Mistake(
            "sign kept",
            _bound(size=torch.max),
            "You take the largest gain; a large negative one counts as well. Take the "
            "largest in size.",
        ),
        Mistake(
            "length of the gains",
            _bound(size=torch.linalg.vector_norm),
            "You take the length of the gain vector. A vector can put all its length "
            "into one feature, so its largest entry in size decides.",
        ),
        Mistake(
            "mean of the gains",
            _bound(size=lambda g: g.abs().mean()),
            "You average the gains. A vector can put all its length where the gain is "
            "largest; a bound must cover that.",
        ),
    ),
)


def _by_bisection(maxima: list[float], tau: float) -> tuple[float, list[float]]:
    """Shrink both gains until the largest logit fits, by halving an interval."""
    low, high = 0.0, 1.0
    if max(maxima) > tau:
        for _ in range(60):
            middle = (low + high) / 2
            fits = middle * middle * max(maxima) <= tau
            low, high = (middle, high) if fits else (low, middle)
    return high, [high * high * s for s in maxima]


def _clipped(factor):
    """Return the clip with another factor on each gain."""

    def clip(maxima, tau):
        f = factor(tau, max(maxima))
        return f, [f * f * s for s in maxima]

    return clip


def _right(tau: float, top: float) -> float:
    return min(1.0, math.sqrt(tau / top)) if top > 0 else 1.0


CLIP = Check(
    key="07c",
    task="clip_shared(maxima, tau)",
    cases=lambda: [
        ([45.0, 12.0, 30.0, -2.0], 30.0),
        ([20.0, 12.0], 30.0),
        ([100.0, 400.0], 100.0),
        ([30.0, 3.0], 30.0),
    ],
    expected=_by_bisection,
    verified=(
        "Your factor is the one that halving an interval finds, and all heads shrink "
        "with it."
    ),
    mistakes=(
        Mistake(
            "τ/S on each gain",
            _clipped(lambda tau, top: min(1.0, tau / top)),
            "You put τ/S on both gains, so the logit shrinks by its square and lands "
            "below τ. Each gain gets the square root.",
        ),
        Mistake(
            "grows too",
            _clipped(lambda tau, top: math.sqrt(tau / top)),
            "Your factor exceeds 1 when all logits are below τ. A clip leaves them "
            "alone.",
        ),
        Mistake(
            "only the heads above",
            lambda maxima, tau: (
                _right(tau, max(maxima)),
                [min(s, tau) for s in maxima],
            ),
            "You lower only the heads above τ. The gains are shared, so every head of "
            "the layer shrinks.",
        ),
        Mistake(
            "one gain only",
            lambda maxima, tau: (
                _right(tau, max(maxima)),
                [_right(tau, max(maxima)) * s for s in maxima],
            ),
            "The logit contains both gains, so the factor enters twice.",
        ),
        Mistake(
            "factor of the logit",
            lambda maxima, tau: (
                _right(tau, max(maxima)) ** 2,
                [_right(tau, max(maxima)) ** 2 * s for s in maxima],
            ),
            "The heads are right, but τ/S is the factor of the logit. Asked is the "
            "one on each of the two gains.",
        ),
    ),
)


def _counted(n_heads: int, n_kv_heads: int, head_dim: int) -> tuple[int, int]:
    """Build both layers and count what their two norms hold."""
    shape = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": head_dim}
    layers = (
        Attention(StackConfig(d_model=8, per_head_gains=own, **shape))
        for own in (False, True)
    )
    shared, own = (a.q_norm.weight.numel() + a.k_norm.weight.numel() for a in layers)
    return shared, own


GAINS = Check(
    key="07d",
    task="gains_per_layer(n_heads, n_kv_heads, head_dim)",
    cases=lambda: [(8, 2, 64), (4, 2, 16), (6, 6, 32)],
    expected=_counted,
    verified=(
        "Your counts are those of the parameters in the two norms of a real layer, for "
        "shared and for per-head gains."
    ),
    mistakes=(
        Mistake(
            "keys per query head",
            lambda h, kv, d: (2 * d, 2 * h * d),
            "You give every query head a key gain of its own. Keys belong to KV "
            "heads, of which there may be fewer.",
        ),
        Mistake(
            "queries only",
            lambda h, kv, d: (d, h * d),
            "You count the queries only; keys have gains as well.",
        ),
        Mistake(
            "one number a head",
            lambda h, kv, d: (2, h + kv),
            "A gain is a vector of head_dim numbers, not a single one.",
        ),
        Mistake(
            "swapped",
            lambda h, kv, d: ((h + kv) * d, 2 * d),
            "Those are the two counts in the other order. Asked is first shared, then "
            "per head.",
        ),
    ),
)

CHECKS = (CHANGE, BOUND, CLIP, GAINS)
