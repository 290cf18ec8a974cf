"""Exercise 4: QK-clip under grouped-query attention, and keys scaled too often."""

import math

import torch

from stacklm.notebook.checking import Check, Mistake, difference

LOGITS = [120.0, 90.0, 100.0, 80.0, 150.0, 60.0, 70.0, 200.0]


def _cases() -> list[tuple]:
    return [
        (list(LOGITS), 4, 100.0),
        ([45.0, 31.0, 12.0, 20.0, 36.0, 50.0], 2, 30.0),
        ([40.0, 50.0, 99.0, 100.0], 2, 100.0),
    ]


def _factor(s: float, tau: float) -> float:
    return min(1.0, math.sqrt(tau / s))


def _pair(s: list, groups: int, tau: float) -> tuple[list, list]:
    """Return the factors by logarithms and tensors: half of what is over, once."""
    over = (torch.tensor(s, dtype=torch.float64) / tau).log().clamp(min=0)
    keys = over.view(-1, groups).amax(dim=1)
    return (over / -2).exp().tolist(), (keys / -2).exp().tolist()


def _queries(s: list, tau: float) -> list:
    return [_factor(each, tau) for each in s]


def _by_group(s: list, groups: int, tau: float, reduce) -> tuple[list, list]:
    """Return right factors for queries, and keys by a reduction of the group."""
    members = [s[at : at + groups] for at in range(0, len(s), groups)]
    return _queries(s, tau), [reduce(group) for group in members]


def _once_per_head(s: list, groups: int, tau: float) -> tuple[list, list]:
    return _by_group(s, groups, tau, lambda g: math.prod(_queries(g, tau)))


def _interleaved(s: list, groups: int, tau: float) -> tuple[list, list]:
    heads = len(s) // groups
    return _queries(s, tau), [_factor(max(s[g::heads]), tau) for g in range(heads)]


def _copes_with_what_is_calm(answer) -> str | None:
    got = answer([-math.inf, -3.0, 0.0, 400.0], 2, 100.0)
    if difference(got, ([1.0, 1.0, 1.0, 0.5], [1.0, 0.5]), 1e-6) is None:
        return None
    return (
        "not yet. Your factors are right for positive logits. A largest logit may also "
        "be 0, negative, or -inf where nothing was measured; all of these are below "
        "τ, so their factor is 1. Ask whether s > tau before you divide."
    )


FACTORS = Check(
    key="04a",
    task="gqa_factors(s, groups, tau)",
    cases=_cases,
    expected=_pair,
    beyond=lambda answer: _safely(_copes_with_what_is_calm, answer),
    verified=(
        "Your factors agree with ones computed from logarithms, in three layers, and "
        "leave alone what is calm and what was not measured."
    ),
    mistakes=(
        Mistake(
            "once per firing head",
            _once_per_head,
            "You scale the keys of a group once for each head that fires. Heads share "
            "the keys, so where two fire they shrink twice: take the largest logit "
            "of the group, once.",
        ),
        Mistake(
            "no square root",
            lambda s, groups, tau: tuple(
                [f**2 for f in row] for row in _pair(s, groups, tau)
            ),
            "You use τ/S for queries and for keys, so a logit shrinks by (τ/S)². Each "
            "of the two takes the square root.",
        ),
        Mistake(
            "not limited to 1",
            lambda s, groups, tau: (
                [math.sqrt(tau / each) for each in s],
                _by_group(s, groups, tau, lambda g: math.sqrt(tau / max(g)))[1],
            ),
            "Heads below τ get a factor above 1: you raise calm heads to τ. QK-clip "
            "only shrinks.",
        ),
        Mistake(
            "smallest of the group",
            lambda s, groups, tau: _by_group(
                s, groups, tau, lambda g: _factor(min(g), tau)
            ),
            "The keys follow the smallest logit of their group. Then the largest stays "
            "above τ: take the maximum.",
        ),
        Mistake(
            "mean of the group",
            lambda s, groups, tau: _by_group(
                s, groups, tau, lambda g: _factor(sum(g) / len(g), tau)
            ),
            "The keys follow the mean logit of their group. Then the largest stays "
            "above τ: take the maximum.",
        ),
        Mistake(
            "one factor for all keys",
            lambda s, groups, tau: _by_group(
                s, groups, tau, lambda g: _factor(max(s), tau)
            ),
            "You scale all keys by the largest logit of the layer. Each KV head serves "
            "its own group: take the maximum over that group.",
        ),
        Mistake(
            "wrong heads in a group",
            _interleaved,
            "Query head h reads KV head h // groups: neighbours share keys. You put "
            "heads h, h + K, h + 2K, … together.",
        ),
    ),
)


def _safely(look, answer) -> str | None:
    """Look at an answer that may raise where it should not."""
    try:
        return look(answer)
    except (ArithmeticError, ValueError) as error:
        return (
            f"not yet. Your factors are right for positive logits, but 0, a negative "
            f"logit or -inf raises {type(error).__name__}. All of these are below τ: "
            "ask whether s > tau before you divide."
        )


def _applied(factors):
    """Return what ``factors`` make of the logits."""

    def after(s, groups, tau):
        q, k = factors(s, groups, tau)
        return [each * q[h] * k[h // groups] for h, each in enumerate(s)]

    return after


def _after(s: list, groups: int, tau: float) -> list:
    """Return the logits after the clip, by scaling vectors and multiplying them."""
    q, k = _pair(s, groups, tau)
    unit = torch.ones(4, dtype=torch.float64) / 2
    queries = [each * f * unit for each, f in zip(s, q, strict=True)]
    keys = [f * unit for f in k]
    return [(row @ keys[h // groups]).item() for h, row in enumerate(queries)]


AFTER = Check(
    key="04b",
    task="after_clip(s, groups, tau)",
    cases=_cases,
    expected=_after,
    verified=(
        "Your logits agree with products of query and key vectors that were scaled, in "
        "three layers."
    ),
    mistakes=(
        Mistake(
            "min(s, τ)",
            lambda s, groups, tau: [min(each, tau) for each in s],
            "You cut each head at τ by itself. That would be right if each head had "
            "its own keys; here a head also shrinks with the keys of its group.",
        ),
        Mistake(
            "queries only",
            lambda s, groups, tau: [each * _factor(each, tau) for each in s],
            "You apply the factors of the queries only. A logit is a product: multiply "
            "by the factor of the group's keys as well.",
        ),
        Mistake(
            "keys only",
            lambda s, groups, tau: [
                each * _pair(s, groups, tau)[1][h // groups] for h, each in enumerate(s)
            ],
            "You apply the factors of the keys only. A logit is a product: multiply "
            "by the factor of the head's queries as well.",
        ),
        Mistake(
            "once per firing head",
            _applied(_once_per_head),
            "That is what happens when the keys are scaled once for each firing head: "
            "part c. Here they are scaled once per group.",
        ),
        Mistake(
            "the whole layer",
            lambda s, groups, tau: [each * min(1.0, tau / max(s)) for each in s],
            "You scale all heads by τ / max(s). That is the clip of a layer whose "
            "heads share one gain; here heads are clipped one by one.",
        ),
    ),
)


def _over_shrunk(s: list, groups: int, tau: float) -> list:
    """Scale the keys as a loop over heads would, one firing head after another."""
    keys = [1.0] * (len(s) // groups)
    for head, each in enumerate(s):
        if each > tau:
            keys[head // groups] *= math.sqrt(tau / each)
    q, _ = _pair(s, groups, tau)
    return [each * q[h] * keys[h // groups] for h, each in enumerate(s)]


WRONG = Check(
    key="04c",
    task="after_wrong_clip(s, groups, tau)",
    cases=_cases,
    expected=_over_shrunk,
    verified=(
        "Your logits agree with a loop that scales the keys again at each firing head, "
        "in three layers."
    ),
    mistakes=(
        Mistake(
            "the right rule",
            _after,
            "That is the right rule, keys once per group. Asked is what comes out if "
            "every firing head scales the keys of its group.",
        ),
        Mistake(
            "keys of the group only",
            lambda s, groups, tau: [
                each * _once_per_head(s, groups, tau)[1][h // groups]
                for h, each in enumerate(s)
            ],
            "You leave out the queries: a firing head scales its queries too.",
        ),
        Mistake(
            "every query factor",
            lambda s, groups, tau: [
                each * _once_per_head(s, groups, tau)[1][h // groups] ** 2
                for h, each in enumerate(s)
            ],
            "You multiply all queries of a group by all of its factors. Queries belong "
            "to one head: only the keys are shared.",
        ),
        Mistake(
            "keys of all groups",
            lambda s, groups, tau: [
                each * _factor(each, tau) * math.prod(_queries(s, tau)) for each in s
            ],
            "You scale all keys for each firing head. A head scales the keys of its "
            "own group.",
        ),
    ),
)

CHECKS = (FACTORS, AFTER, WRONG)
