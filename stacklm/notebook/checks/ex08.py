"""Exercise 8: what exact attention logits cost; a probe, and a bound, instead."""

import math
from fractions import Fraction
from itertools import product

import torch
from torch.utils.flop_counter import FlopCounterMode

from stacklm.notebook import tiers
from stacklm.notebook.checking import Check, Mistake


def _counted(B: int, T: int, H: int, d_h: int, L: int, accum: int) -> int:
    """Count the products of one step by running them on tensors without storage."""
    q = torch.empty(B, H, T, d_h, device="meta")
    with FlopCounterMode(display=False) as counter:
        for _ in product(range(L), range(accum)):
            q @ q.mT
    return counter.get_total_flops()


def _without(*left_out: str, factor: int = 2, length: int = 2):
    """Return a formula for the cost in which some sizes are forgotten."""

    def flops(B, T, H, d_h, L, accum):
        sizes = {"B": B, "H": H, "d_h": d_h, "L": L, "accum": accum}
        kept = [size for name, size in sizes.items() if name not in left_out]
        return factor * T**length * math.prod(kept)

    return flops


COST = Check(
    key="08a",
    task="exact_flops(B, T, H, d_h, L, accum)",
    cases=lambda: [
        (32, 2048, 8, 64, 30, 8),  # Stack-100M
        (16, 128, 4, 16, 2, 1),
        (3, 100, 6, 32, 5, 7),
    ],
    expected=_counted,
    verified=(
        "Your formula gives what PyTorch's FLOP counter counts for the products of all "
        "layers and micro-batches, for Stack-100M and two other models."
    ),
    mistakes=(
        Mistake(
            "T once",
            _without(length=1),
            "You count one score per query. Every query meets every key: the cost "
            "grows with the square of T.",
        ),
        Mistake(
            "multiply-adds counted once",
            _without(factor=1),
            "You count a multiplication and its addition as one. By the usual "
            "convention they are two FLOPs.",
        ),
        Mistake(
            "only pairs that look",
            lambda *sizes: _without(factor=1)(*sizes) * (sizes[1] + 1) // sizes[1],
            "You count only the pairs that look. A plain product computes all of them, "
            "and the mask hides half afterwards; leaving them out takes blocks.",
        ),
        Mistake(
            "one layer",
            _without("L"),
            "That is one layer. Every layer has logits of its own: multiply by L.",
        ),
        Mistake(
            "one micro-batch",
            _without("accum"),
            "That is one micro-batch. A step has accum of them, and asked is the cost "
            "of measuring each.",
        ),
        Mistake(
            "one head",
            _without("H"),
            "That is one head. Each of the H query heads has scores of its own, also "
            "where heads share keys.",
        ),
        Mistake(
            "entries, not FLOPs",
            _without("d_h", factor=1),
            "That is the number of scores. Each is a product of two vectors of d_h "
            "entries, which takes 2·d_h FLOPs.",
        ),
    ),
)


def _by_enumeration(exact_share: float, accum: int, every: int) -> tuple:
    """Add up a period: each micro-batch trains for three forward passes, one probes."""
    trained = extra = probes = 0
    for step, micro in product(range(every), range(accum)):
        trained += 3
        if (step, micro) == (0, 0):
            extra += 1
            probes += 1
    scores = exact_share * Fraction(probes, every * accum)
    return float(scores), float(Fraction(extra, trained))


PROBE = Check(
    key="08b",
    task="probe_shares(exact_share, accum, every)",
    cases=lambda: [(0.1035, 8, 200), (0.25, 4, 10), (0.05, 1, 7)],
    expected=_by_enumeration,
    verified=(
        "Both shares agree with a period added up micro-batch by micro-batch, for "
        "three settings."
    ),
    mistakes=(
        Mistake(
            "accumulation forgotten in the pass",
            lambda share, accum, every: (share / accum / every, 1 / 3 / every),
            "Your probe's forward pass is a third of a whole step. The probe is one of "
            "accum micro-batches: divide by accum too. Published versions of the "
            "recipe make this slip.",
        ),
        Mistake(
            "accumulation forgotten in the scores",
            lambda share, accum, every: (share / every, 1 / 3 / accum / every),
            "Your scores are those of all micro-batches of a step, every so often. The "
            "probe takes one micro-batch: divide by accum too.",
        ),
        Mistake(
            "accumulation forgotten",
            lambda share, accum, every: (share / every, 1 / 3 / every),
            "You probe with all micro-batches of a step. One is asked for: divide both "
            "shares by accum.",
        ),
        Mistake(
            "a forward pass is all of it",
            lambda share, accum, every: (share / accum / every, 1 / accum / every),
            "You count the forward pass like a training pass. The backward pass costs "
            "twice the forward pass, so the forward pass alone is a third.",
        ),
        Mistake(
            "every forgotten",
            lambda share, accum, every: (share / accum, 1 / 3 / accum),
            "That is the share in the step that probes. The other steps do not: divide "
            "by every.",
        ),
        Mistake(
            "percent",
            lambda share, accum, every: tuple(
                100 * part for part in _by_enumeration(share, accum, every)
            ),
            "Those are percent; fractions are asked for, as exact_share is one.",
        ),
        Mistake(
            "swapped",
            lambda *setting: _by_enumeration(*setting)[::-1],
            "The two shares are swapped: return (scores, forward pass).",
        ),
    ),
)


def _heads(B: int, T: int, H: int, K: int, d_h: int, seed: int) -> tuple:
    """Random queries and keys whose lengths differ by position and by head."""
    rng = torch.Generator().manual_seed(seed)
    kind = {"generator": rng, "dtype": torch.float64}

    def some(heads):
        lengths = torch.rand(B, heads, T, 1, **kind) * 3
        return torch.randn(B, heads, T, d_h, **kind) * lengths

    return some(H), some(K)


def _all_pairs(q: torch.Tensor, k: torch.Tensor, combine) -> torch.Tensor:
    """Largest `combine` of a query and any key of its KV head, head by head."""
    groups = q.shape[1] // k.shape[1]
    rows = [
        max(combine(q[b, h], k[b, h // groups]).max() for b in range(len(q)))
        for h in range(q.shape[1])
    ]
    return torch.stack(rows) / math.sqrt(q.shape[-1])


def _lengths(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Products of lengths of all pairs, from the squares of entries."""
    return torch.outer(q.square().sum(-1), k.square().sum(-1)).sqrt()


def _bounds(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return _all_pairs(q, k, _lengths)


def _exact(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return _all_pairs(q, k, lambda q, k: (q @ k.mT).tril())  # 0 is never the largest


def _spoiled(pick=torch.amax, pair=torch.Tensor.repeat_interleave):
    """Return tier 1 with another choice of lengths or of KV heads."""

    def bound(q, k):
        longest, keys = (pick(t.norm(dim=-1), -1).amax(0) for t in (q, k))
        keys = pair(keys, q.shape[1] // k.shape[1])
        return longest * keys / math.sqrt(q.shape[-1])

    return bound


def _same_position(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return (q.norm(dim=-1) * k.norm(dim=-1)).amax((0, 2)) / math.sqrt(q.shape[-1])


def _detached_and_small(answer) -> str | None:
    """Refuse a bound that keeps a graph, forms all pairs, or fails for a batch."""
    q, k = _heads(3, 128, 4, 2, 16, seed=5)
    q[1:] *= 4  # a bound that forgets a sequence is too low
    found = answer(q, k)
    right = found.shape == (4,) and (found >= _exact(q, k)).all()
    if not right:
        return (
            "not yet. Right for one sequence, but for a batch of three the result is "
            "no bound per head: take the maximum over sequences as well."
        )
    if answer(q.requires_grad_(), k).requires_grad:
        return (
            "not yet. The values are right, but they carry a graph: measure under "
            "torch.no_grad() or on q.detach() and k.detach()."
        )
    q.requires_grad_(False)
    if tiers.cost(lambda: answer(q, k)).nbytes >= 3 * 4 * 128 * 128 * q.itemsize:
        return (
            "not yet. The values are right, but a tensor with an entry for all pairs "
            "exists on the way, which is what the bound should save: take the longest "
            "query and the longest key first, and multiply those."
        )
    return None


BOUND = Check(
    key="08c",
    task="head_bounds(q, k)",
    cases=lambda: [
        _heads(1, 24, 4, 2, 16, seed=0),
        _heads(1, 40, 8, 2, 64, seed=1),
        _heads(1, 9, 6, 3, 8, seed=2),
    ],
    expected=_bounds,
    beyond=_detached_and_small,
    verified=(
        "Your bounds are the largest products of lengths over all pairs, for three "
        "settings of heads. They keep no graph and no tensor of all pairs."
    ),
    mistakes=(
        Mistake(
            "exact",
            _exact,
            "Those are the exact maxima, which need all scores. Asked is the bound by "
            "lengths alone.",
        ),
        Mistake(
            "wrong KV head",
            _spoiled(pair=torch.Tensor.repeat),
            "You give query head h the KV head h mod K. Neighbouring heads share one: "
            "repeat_interleave, not repeat.",
        ),
        Mistake(
            "mean length",
            _spoiled(pick=torch.mean),
            "You take mean lengths. That is no bound: take the longest query and the "
            "longest key.",
        ),
        Mistake(
            "same position",
            _same_position,
            "You multiply lengths at the same position. A query meets keys of other "
            "positions: take both maxima first, and multiply then.",
        ),
        Mistake(
            "not divided",
            lambda q, k: _bounds(q, k) * math.sqrt(q.shape[-1]),
            "The logits are divided by √d_h, so their bound is too.",
        ),
        Mistake(
            "divided by d_h",
            lambda q, k: _bounds(q, k) / math.sqrt(q.shape[-1]),
            "You divide by d_h. The logits are divided by its square root.",
        ),
        Mistake(
            "one for all heads",
            lambda q, k: _bounds(q, k).max().expand(q.shape[1]),
            "You return the largest bound for every head. Each head has its own "
            "queries, and each KV head its own keys.",
        ),
    ),
)

CHECKS = (COST, PROBE, BOUND)
