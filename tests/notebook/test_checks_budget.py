"""Exercise 3 comes out at the numbers that the book stands on."""

import pytest

from stacklm.notebook.checks import CHECKS


def test_thirty_billion_tokens():
    budget = CHECKS["03a"].expected(30e9, 32, 2048, 8)
    assert budget == 57_220
    assert CHECKS["03b"].expected(budget, 2_000, 0.1) == (2_000, 49_498, 5_722)
    rates = CHECKS["03c"].expected(0.25, 0.02, 3e-3)
    assert rates == pytest.approx((0.01, 1.5e-3), rel=1e-12)
    assert CHECKS["03d"].expected(budget, 0.1) == 51_498
