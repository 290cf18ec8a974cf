"""Several corpora as one: which row comes from which is a pure function.

    corpus 1 takes row n  iff  floor((n + 1) s + u) > floor(n s + u),  s = w_1 / sum(w)
    the other rows, counted anew from 0, are split among the rest in the same way

The floors are also the number of rows that a corpus has had, so row n of the run is row
floor(n s + u) of corpus 1, in the order that corpus has when it is read alone. Drawing
each row's corpus by a hash would give the weights on average only, and to know how
often a corpus was drawn before row n, a resumed run would have to count.

Legend: n = row of the run, from 0; w = weights; s = share of what is left; u = offset
in [0, 1), a hash of the seed; K = number of corpora. Floors are taken of whole numbers,
so nothing is rounded however long the run.
Sources: the split in two is a Sturmian (Beatty) sequence, the balanced words of Morse &
Hedlund 1940; annealing on another mix, Hu et al. 2024, arXiv:2404.06395.
Taught in chapter 09.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch

from stacklm.train.data import Batch, _count, first_row
from stacklm.train.shuffle import order_key
from stacklm.train.tokenizer import check_signatures


class _Split(NamedTuple):
    """A corpus, and its share of the rows that the corpora before it left."""

    name: str
    part: int
    of: int


class Mixture:
    """Corpora mixed by weight, to be used wherever ``Tokens`` are.

    After n rows each corpus has had its weight times n rows, to within K - 1: also in a
    single batch, for every seed, and at whichever step a run resumes. Rows of a corpus
    come in the shuffled order that it has alone with the same seed, so a small corpus
    begins its second epoch while a large one is in its first.

    Args:
        corpora: ``Tokens`` by name, two or more, of one tokenizer.
        weights: The same names, each with its part of the rows; any positive numbers,
            of which only the ratios count. Read as decimals: 0.7 is 7/10.

    Attributes:
        vocab_size: That of the corpora (count).
        tokenizer: Signature of what made their ids; None if no corpus notes it.
        mix: The weights as fractions that add up to 1, as text, by name. Two runs are
            the same only if these are.

    Raises:
        TypeError: A weight is no number.
        ValueError: Fewer than two corpora, other names than the corpora's, a weight
            that is not positive and finite, or different tokenizers.

    Example:
        >>> from stacklm.train import open_tokens
        >>> book = {s: open_tokens("moby-dick", s) for s in ("train", "val")}
        >>> both = Mixture(book, {"train": 0.75, "val": 0.25})
        >>> both.mix
        {'train': '3/4', 'val': '1/4'}
        >>> [both.source(row, seed=0)[0] for row in range(8)].count("val")
        2
    """

    def __init__(self, corpora: Mapping, weights: Mapping[str, float]):
        if len(corpora) < 2:
            raise ValueError(
                f"a mixture needs two corpora or more, got {list(corpora)}; a single "
                "one needs no mixture"
            )
        if set(corpora) != set(weights):
            raise ValueError(
                f"weights must name the corpora {sorted(corpora)}, got "
                f"{sorted(weights)}; give each corpus one weight"
            )
        sizes = {name: corpora[name].vocab_size for name in sorted(corpora)}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"corpora of a mixture must share one vocabulary, got sizes {sizes}; "
                "encode them with one tokenizer"
            )
        signatures = {n: getattr(corpora[n], "tokenizer", None) for n in sizes}
        check_signatures(**signatures)
        # Sorted, so that the order of writing them down changes nothing.
        exact = {name: _weight(name, weights[name]) for name in sorted(weights)}
        total = sum(exact.values())
        self.corpora = {name: corpora[name] for name in exact}
        self.vocab_size = sizes[next(iter(sizes))]
        known = (each for each in signatures.values() if each is not None)
        self.tokenizer = next(known, None)
        self.mix = {name: str(weight / total) for name, weight in exact.items()}
        self._splits = []
        for name, weight in exact.items():
            share = weight / total
            self._splits.append(_Split(name, share.numerator, share.denominator))
            total -= weight

    def __len__(self) -> int:
        """Number of tokens in all corpora."""
        return sum(map(len, self.corpora.values()))

    def batch(
        self,
        step: int,
        *,
        batch_size: int,
        seq_len: int,
        seed: int,
        micro: int = 0,
        micros: int = 1,
    ) -> Batch:
        """The batch of one step, or of one of its micro-batches.

        Args:
            step, batch_size, seq_len, seed, micro, micros: As for ``Tokens.batch``;
                ``seed`` orders every corpus and sets where the mix begins.

        Returns:
            The batch. Document numbers are those of each row's own corpus.

        Raises:
            TypeError, ValueError: As ``Tokens.batch``, for every corpus at once: one
                that is shorter than a window is named at the first step.

        Example:
            >>> from stacklm.train import open_tokens
            >>> book = {s: open_tokens("moby-dick", s) for s in ("train", "val")}
            >>> both = Mixture(book, {"train": 3, "val": 1})
            >>> both.batch(0, batch_size=4, seq_len=16, seed=0).x.shape
            torch.Size([4, 16])
        """
        seed, rows = _count("seed", seed), _count("batch_size", batch_size, 1)
        first = first_row(step, rows, micro, micros)
        for name, corpus in self.corpora.items():
            try:
                corpus.windows(seq_len)
            except ValueError as error:
                raise ValueError(f"corpus {name!r}: {error}") from None
        drawn = []
        for row in range(first, first + rows):
            name, place = self.source(row, seed=seed)
            one = {"batch_size": 1, "seq_len": seq_len, "seed": seed}
            drawn.append(self.corpora[name].batch(place, **one))
        return Batch(*map(torch.cat, zip(*drawn, strict=True)))  # (B, T)

    def source(self, row: int, *, seed: int) -> tuple[str, int]:
        """Say where a row of the run comes from.

        Args:
            row: Row of the run, from 0: ``(step * micros + micro) * batch_size`` and
                the row's place in its batch.
            seed: Of the run.

        Returns:
            Name of the corpus, and how many rows it has had before this one.

        Raises:
            TypeError, ValueError: A row or seed that is no int from 0 on.
        """
        left, seed = _count("row", row), _count("seed", seed)
        offsets = order_key(seed, np.arange(len(self._splits), dtype=np.uint64))
        for split, offset in zip(self._splits, offsets.tolist(), strict=True):
            before, after = (
                (n * split.part + offset % split.of) // split.of
                for n in (left, left + 1)
            )
            if after > before:  # always so for the last corpus: its share is 1
                break
            left -= before
        return split.name, before


def _weight(name: str, value) -> Fraction:
    """A weight without rounding: 0.7 means seven tenths, not the nearest float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"the weight of {name!r} must be a number, got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(
            f"the weight of {name!r} must be finite and above 0, got {value}; leave a "
            "corpus out to give it none"
        )
    return Fraction(str(value))
