"""The computed order: a permutation of any size, and as good as a shuffled one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.train.shuffle import order_key, shuffled

# Two epochs each under seed 3, by a second implementation, in Python's integers.
ORDERS = {
    10: ("1 9 7 3 5 6 2 8 0 4", "8 9 4 5 2 7 1 3 0 6"),
    16: (
        "5 15 4 0 10 6 8 12 14 2 1 7 9 13 11 3",
        "14 4 11 3 0 9 12 6 7 10 2 8 15 1 5 13",
    ),
}


@pytest.mark.parametrize("n", ORDERS)
def test_the_order_does_not_change_between_releases(n):
    # A checkpoint resumes by (seed, step): another order would repeat some windows and
    # leave out others, without a word.
    places = np.arange(n, dtype=np.uint64)
    for number, order in enumerate(ORDERS[n]):
        key = order_key(3, np.full(n, number, np.uint64))
        assert shuffled(places, n, key).tolist() == list(map(int, order.split()))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(1, 600), st.integers(0, 2**70), st.integers(0, 9))
def test_shuffled_is_a_permutation_of_any_size(n, seed, number):
    places = np.arange(n, dtype=np.uint64)
    key = order_key(seed, np.full(n, number, np.uint64))
    assert sorted(shuffled(places, n, key).tolist()) == list(range(n))
    some = places[::3]
    alone = shuffled(some, n, key[::3])
    assert (alone == shuffled(places, n, key)[::3]).all()  # each on its own


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_every_window_comes_to_every_place_equally_often(n):
    # 6,000 epochs: each of n x n counts is binomial, mean 6,000 / n. The sum of squared
    # deviations over the means follows chi-square with (n - 1)**2 degrees of freedom;
    # 3 times that number plus 12 is beyond its 99.9th percentile for each n here.
    epochs = np.arange(6_000, dtype=np.uint64)
    counts = np.zeros((n, n))
    for place in range(n):
        places = np.full(6_000, place, np.uint64)
        windows = shuffled(places, n, order_key(1, epochs))
        counts[place] = np.bincount(windows, minlength=n)
    mean = 6_000 / n
    assert ((counts - mean) ** 2 / mean).sum() < 3 * (n - 1) ** 2 + 12


def test_neighbours_in_the_order_are_not_neighbours_in_the_text():
    n = 4_000
    places = np.arange(n, dtype=np.uint64)
    order = shuffled(places, n, order_key(0, np.zeros(n, np.uint64)))
    correlation = np.corrcoef(order[:-1], order[1:])[0, 1]
    assert abs(correlation) < 4 / math.sqrt(n)  # four standard errors of no relation
    assert (np.abs(np.diff(order)) == 1).mean() < 0.005  # 2 / n by chance
