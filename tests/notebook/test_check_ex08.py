"""Exercise 8: what its third check looks at beyond values, and its facts."""

import pytest
import torch

from stacklm.model import norm_bound
from stacklm.notebook.checking import judge
from stacklm.notebook.checks import CHECKS


def per_sequence(q, k):
    """A tighter bound, and as right: only pairs of one sequence."""
    rows = [norm_bound(q[b : b + 1], k[b : b + 1]) for b in range(len(q))]
    return torch.stack(rows).amax(dim=0)


def outer_product(q, k):
    k = k.detach().repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    lengths = q.detach().norm(dim=-1)[..., None] * k.norm(dim=-1)[:, :, None]
    return lengths.amax(dim=(0, 2, 3)) / q.shape[-1] ** 0.5


def with_graph(q, k):
    with torch.enable_grad():
        longest = q.norm(dim=-1).amax(dim=(0, 2))
    return longest * (norm_bound(q, k) / longest.detach())


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (per_sequence, "correct", "keep no graph"),
        (outer_product, "wrong", "entry for all pairs"),
        (with_graph, "wrong", "carry a graph"),
        (lambda q, k: norm_bound(q[:1], k[:1]), "wrong", "batch of three"),
    ],
)
def test_a_bound_must_hold_for_batches_and_stay_small(answer, status, words):
    verdict = judge(CHECKS["08c"], answer)
    assert verdict.status == status
    assert words in verdict.text


def test_the_model_passes_the_check_of_its_tier_1():
    assert judge(CHECKS["08c"], norm_bound).status == "correct"
    flops = CHECKS["08a"].expected(32, 2048, 8, 64, 30, 8)
    assert round(flops / 1e12, 1) == 33.0
    scores, forward = CHECKS["08b"].expected(0.10346, 8, 200)
    assert round(100 * scores, 4) == 0.0065
    assert round(100 * forward, 3) == 0.021
