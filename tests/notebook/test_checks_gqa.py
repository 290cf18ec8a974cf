"""Exercise 4: the numbers worked by hand, and heads that are calm or not measured."""

import pytest

from stacklm.notebook.checking import judge
from stacklm.notebook.checks import CHECKS, ex04
from stacklm.optim import clip_factors
from tests.notebook.references import gqa_factors


def test_eight_heads_in_two_groups_come_out_as_by_hand():
    case = (ex04.LOGITS, 4, 100.0)
    queries, keys = CHECKS["04a"].expected(*case)
    by_hand = [0.9129, 1, 1, 1, 0.8165, 1, 1, 0.7071]
    assert queries == pytest.approx(by_hand, abs=5e-5)
    assert keys == pytest.approx([0.9129, 0.7071], abs=5e-5)
    right = [100, 82.16, 91.29, 73.03, 86.60, 42.43, 49.50, 100]
    assert CHECKS["04b"].expected(*case) == pytest.approx(right, abs=5e-3)
    wrong = [*right[:4], 70.71, 34.64, 40.41, 81.65]
    assert CHECKS["04c"].expected(*case) == pytest.approx(wrong, abs=5e-3)


def test_factors_must_cope_with_calm_and_unmeasured_heads():
    def unmeasured_vanish(s, groups, tau):
        q, k = gqa_factors(s, groups, tau)
        return [0.0 if each < 0 else f for each, f in zip(s, q, strict=True)], k

    def divides_first(s, groups, tau):
        factor = [min(1.0, (tau / abs(each)) ** 0.5) for each in s]
        return factor, gqa_factors(s, groups, tau)[1]

    verdict = judge(CHECKS["04a"], unmeasured_vanish)
    assert verdict.status == "wrong"
    assert "their factor is 1" in verdict.text
    verdict = judge(CHECKS["04a"], divides_first)
    assert verdict.status == "wrong"
    assert "raises ZeroDivisionError" in verdict.text


def test_the_package_passes():
    def factors(s, groups, tau):
        return clip_factors(s, groups=groups, tau=tau)

    assert judge(CHECKS["04a"], factors).status == "correct"
