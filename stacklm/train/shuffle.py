"""A shuffled order that is computed, not stored.

    window = shuffled(index, n, key)

A permutation of n windows, written down, takes memory that grows with the corpus, and
a resumed run would have to draw it again. This one is a function: each index is mapped
on its own, in constant memory, and a new key gives a new order.

Legend: n = number of windows; a, b = sides of a near-square with a * b just above n.
A number below a * b is a pair (row below a, column below b), and a Feistel network of
ROUNDS rounds permutes the pairs: each round moves one of the two around its circle by a
hash of the other. A result of n or above goes through it again until it falls below n
(X
Sources: Luby & Rackoff 1988 for the network; Black & Rogaway 2002, sections 5 and 6,
for cycle walking and for sides that are no powers of two; Steele, Lea & Flood 2014 for
the mixing function (SplitMix64).
"""

from __future__ import annotations

import functools
import math

import numpy as np

ROUNDS = 8  # 4 suffice in theory; tiny sets of a few numbers gain from more
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, SplitMix64's increment
_SHIFTS = np.array([30, 27, 31], np.uint64)  # of SplitMix64's finalizer
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


def shuffled(index: np.ndarray, n: int, key: np.ndarray) -> np.ndarray:
    """Map positions in an epoch to windows, one to one.

    Args:
        index: Positions from 0 to n - 1, uint64, (B,).
        n: Number of windows, at least 1.
        key: The order of each position's epoch, from ``order_key``, uint64, (B,).

    Returns:
        Windows from 0 to n - 1, int64, (B,). Under one key, no two positions get the
        same window.
    """
    sides = _sides(n)
    window = _network(index, sides, key)
    while (outside := window >= n).any():
        window[outside] = _network(window[outside], sides, key[outside])
    return window.astype(np.int64)


def order_key(seed: int, epoch: np.ndarray) -> np.ndarray:
    """The key of each epoch's order: a function of seed and epoch alone.

    Args:
        seed: Any integer; only its lowest 64 bits count.
        epoch: Epochs, counted from 0, uint64, (B,).

    Returns:
        Keys, uint64, (B,).
    """
    start = np.full_like(epoch, seed % 2**64)
    return _mix(_mix(start) + epoch * GOLDEN)


@functools.cache
def _sides(n: int) -> tuple[np.uint64, np.uint64]:
    """Sides of the near-square that fits n best: fewest numbers to walk over."""
    root = math.isqrt(n - 1) + 1
    b = min(range(root, root + root // 8 + 1), key=lambda b: -n % b)
    return np.uint64(-(-n // b)), np.uint64(b)


def _network(
    value: np.ndarray, sides: tuple[np.uint64, np.uint64], key: np.ndarray
) -> np.ndarray:
    """Permute the numbers below a * b: rounds move the row and the column by turns."""
    a, b = sides
    row, column = np.divmod(value, b)
    for _ in range(ROUNDS // 2):
        key = key + GOLDEN
        row = (row + _mix(column + key) % a) % a
        key = key + GOLDEN
        column = (column + _mix(row + key) % b) % b
    return row * b + column


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer: every bit of z reaches every bit of the result."""
    z = (z ^ (z >> _SHIFTS[0])) * _FACTORS[0]
    z = (z ^ (z >> _SHIFTS[1])) * _FACTORS[1]
    return z ^ (z >> _SHIFTS[2])
