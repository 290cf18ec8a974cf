"""A shuffled order that is computed, not stored.

    window = shuffled(index, n, key)

A permutation of n windows, written down, takes memory that grows with the corpus, and
a resumed run would have to draw it again. This one is a function: each index is mapped
on its own, in constant memory, and a new key gives a new order.

Legend: n = number of windows; h = bits of one half. A Feistel network of ROUNDS rounds
permutes the 2h-bit numbers, the smallest such set that holds 0 … n - 1. A result of n
or above goes through it again until it falls below n ("cycle walking"), which keeps it
a permutation. The set is smaller than 4n, or has 4 members, so few turns are needed.
Sources: Luby & Rackoff 1988 for the network; Black & Rogaway 2002, section 5, for cycle
walking; Steele, Lea & Flood 2014 for the mixing function (SplitMix64).
"""

from __future__ import annotations

import numpy as np

ROUNDS = 8  # 4 suffice in theory; tiny sets of a few numbers gain from more
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, SplitMix64's increment


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
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    window = _network(index, half, key)
    while (outside := window >= n).any():
        window[outside] = _network(window[outside], half, key[outside])
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


def _network(value: np.ndarray, half: np.uint64, key: np.ndarray) -> np.ndarray:
    """Permute 2 * half bits: each round changes one half by a hash of the other."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = value >> half, value & mask
    for _ in range(ROUNDS):
        key = key + GOLDEN
        left, right = right, left ^ (_mix(right + key) & mask)
    return (left << half) | right


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer: every bit of z reaches every bit of the result."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
