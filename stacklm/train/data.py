"""Batches in an order that is a pure function of (seed, step, micro).

    sequence i = (step * micros + micro) * batch_size + row
    epoch, place = divmod(i, windows)
    window = shuffled(place) by the key of (seed, epoch)

Each epoch visits every window once, in a new order; a run resumes at any step without
replaying. A window is seq_len inputs with the token after each as its target; windows
lie end to end, and the last one is moved back to end where the corpus ends.

Legend: B = batch_size, T = seq_len; sizes are counts of tokens unless said otherwise.
Taught in chapter 11.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from operator import index
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stacklm.train.shards import Shard, check_ids, open_shards
from stacklm.train.shuffle import order_key, shuffled
from stacklm.train.sources import moby_dick
from stacklm.train.tokenizer import check_signatures
from stacklm.train.writer import in_memory

IGNORE_INDEX = -100  # what cross_entropy leaves out
SPLITS = ("train", "val", "all")


class Batch(NamedTuple):
    """One micro-batch, on the CPU; unpacks into ``model(x, targets, seq_ids)``."""

    x: Tensor
    """Token ids, int64, (B, T)."""
    targets: Tensor
    """The token after each, or -100 where another document begins; int64, (B, T)."""
    seq_ids: Tensor
    """Number of each token's document in the corpus, int64, (B, T)."""


class Tokens:
    """A stretch of tokens over one or more shards.

    Args:
        shards: In order; of one tokenizer.
        start: First token of the stretch.
        stop: First token after it; None for the end of the last shard.

    Attributes:
        vocab_size: Every id is below it (count).
        tokenizer: Signature of what made the ids; None if that was not noted.

    Raises:
        ValueError: Shards of different tokenizers, or a stretch without tokens.
    """

    def __init__(
        self, shards: Sequence[Shard], start: int = 0, stop: int | None = None
    ):
        sizes = {shard.vocab_size for shard in shards}
        if len(sizes) != 1:
            raise ValueError(f"shards must share one vocabulary, got sizes {sizes}")
        check_signatures(**{f"shard {i}": s.tokenizer for i, s in enumerate(shards)})
        self.shards = list(shards)
        ends = np.cumsum([shard.size for shard in shards])
        self._offsets = [0, *ends.tolist()]  # of each shard in the corpus
        self.start = start
        self.stop = self._offsets[-1] if stop is None else stop
        if not 0 <= self.start < self.stop <= self._offsets[-1]:
            raise ValueError(
                f"a stretch must hold tokens, got {self.start} to {self.stop} of "
                f"{self._offsets[-1]:,}; give it a larger part of the corpus"
            )
        self.vocab_size = sizes.pop()
        self.tokenizer = self.shards[0].tokenizer

    def __len__(self) -> int:
        """Number of tokens."""
        return self.stop - self.start

    def windows(self, seq_len: int) -> int:
        """Number of windows of ``seq_len`` tokens, all of which make an epoch.

        Raises:
            ValueError: There are not even ``seq_len`` tokens and one more.
        """
        seq_len = _count("seq_len", seq_len, 1)
        if len(self) < seq_len + 1:
            raise ValueError(
                f"a window needs seq_len + 1 = {seq_len + 1:,} tokens, and there are "
                f"{len(self):,}; lower seq_len or bring more text"
            )
        return -(-(len(self) - 1) // seq_len)

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
            step: Optimizer step, counted from 0.
            batch_size: B, sequences in this batch (count).
            seq_len: T, tokens of a sequence.
            seed: Of the order; from 0.
            micro: Which micro-batch of the step, from 0 to ``micros - 1``.
            micros: Micro-batches in every step (count). All of a step together are
                what one batch of ``micros * batch_size`` would be.

        Returns:
            The batch. Nothing is remembered: the same arguments give the same batch.

        Raises:
            TypeError: An argument is no int.
            ValueError: An argument is out of range, the stretch is shorter than a
                window, or a shard was damaged after it was opened.

        Example:
            >>> tokens = open_tokens("moby-dick")
            >>> tokens.batch(0, batch_size=4, seq_len=16, seed=0).x.shape
            torch.Size([4, 16])
        """
        seed, rows = _count("seed", seed), _count("batch_size", batch_size, 1)
        first = first_row(step, rows, micro, micros)
        windows = self.windows(seq_len)
        epochs, places = np.divmod(
            np.arange(first, first + rows, dtype=np.uint64), windows
        )
        order = shuffled(places, windows, order_key(seed, epochs))
        last = self.stop - 1 - seq_len  # where the last window begins
        begins = np.minimum(self.start + order * seq_len, last)
        ids, docs = self._rows(begins, seq_len + 1)
        x, targets = (part.astype(np.int64) for part in (ids[:, :-1], ids[:, 1:]))
        if docs.shape[1] == 1:  # no row crosses a border
            seq_ids = docs.repeat(seq_len, axis=1)
        else:
            seq_ids = docs[:, :-1].copy()
            targets[docs[:, 1:] != docs[:, :-1]] = IGNORE_INDEX
        return Batch(*map(torch.from_numpy, (x, targets, seq_ids)))  # (B, T) each

    def _rows(self, begins: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Read `count` tokens at each of B positions, in one go where that is possible.

        Returns:
            Ids, uint16, (B, count), and documents, int64, (B, count), or (B, 1) where
            each row lies within one document.
        """
        ends = begins + (count - 1)
        i = bisect_right(self._offsets, begins.min()) - 1
        if ends.max() < self._offsets[i + 1]:  # all in one shard
            shard, places = self.shards[i], begins - self._offsets[i]
            ids = shard.read_rows(places, count)
            document = shard.document_of(places)
            inside = (document == shard.document_of(places + (count - 1))).all()
            if inside and ids.max() < self.vocab_size:
                return ids, document[:, None]
        # Row by row: over borders, or to the error that names a bad id.
        pairs = [self.read(begin, count) for begin in begins.tolist()]
        ids, docs = zip(*pairs, strict=True)
        return np.stack(ids), np.stack(docs)

    def read(self, begin: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Read tokens across shards.

        Args:
            begin: Position of the first in the corpus (not in this stretch).
            count: How many.

        Returns:
            Ids, uint16, and documents, int64, both (count,).

        Raises:
            ValueError: A position outside the corpus, or an id outside the vocabulary.
        """
        if not 0 <= begin <= begin + count <= self._offsets[-1]:
            raise ValueError(
                f"positions run from 0 to {self._offsets[-1]:,}, got {count} "
                f"from {begin} on"
            )
        ids, docs = [], []
        i = int(np.searchsorted(self._offsets, begin, "right")) - 1
        while count:
            shard, at = self.shards[i], begin - self._offsets[i]
            n = min(count, shard.size - at)
            ids.append(shard.read(at, n))
            check_ids(ids[-1], self.vocab_size, shard, at)
            docs.append(shard.documents(at, n))
            begin, count, i = begin + n, count - n, i + 1
        if len(ids) == 1:
            return ids[0], docs[0]
        return np.concatenate(ids), np.concatenate(docs)


def open_tokens(
    source: str | os.PathLike,
    split: str = "train",
    *,
    val_frac: float = 0.1,
    verify: bool = True,
) -> Tokens:
    """Open a corpus, or the part of it for training or validation.

    The last ``val_frac`` of the tokens are for validation. The cut is moved to the
    nearest border of documents, unless that would change the validation part by more
    than half.

    Args:
        source: A folder that ``write_shards`` wrote, or "moby-dick" for the book that
            ships with the package, in bytes and as one document.
        split: "train", "val", or "all" for both.
        val_frac: Part for validation (fraction of all tokens).
        verify: Compare every shard with its checksums first; reads the corpus once.

    Returns:
        The tokens.

    Raises:
        FileNotFoundError: No folder with shards.
        TypeError, ValueError: An argument is out of range, a part would be empty, or a
            shard is damaged (the message names file and offset).

    Example:
        >>> [len(open_tokens("moby-dick", split)) for split in ("train", "val")]
        [1084497, 120500]
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if isinstance(val_frac, bool) or not isinstance(val_frac, int | float):
        raise TypeError(f"val_frac must be a number, got {val_frac!r}")
    if not 0 <= val_frac < 1:
        raise ValueError(f"val_frac must lie in [0, 1), got {val_frac}")
    if source == "moby-dick":
        shards = [in_memory([moby_dick()])]
    else:
        shards = open_shards(source, verify=verify)
    if split == "all":
        return Tokens(shards)
    cut = _cut(shards, val_frac)
    try:
        return Tokens(shards, *((0, cut) if split == "train" else (cut, None)))
    except ValueError:
        raise ValueError(
            f"the {split} part of {source} is empty with val_frac={val_frac} of "
            f"{sum(shard.size for shard in shards):,} tokens; change val_frac"
        ) from None


def _cut(shards: list[Shard], val_frac: float) -> int:
    """Where validation begins; a matter of documents, not of how they are sharded."""
    total = sum(shard.size for shard in shards)
    val = round(val_frac * total)
    cut, offset, near = total - val, 0, []
    for shard in shards:
        # The starts on both sides of the cut, of those in this shard.
        i = int(np.searchsorted(shard.starts, max(0, cut - offset)))
        near += [offset + int(start) for start in shard.starts[max(0, i - 1) : i + 1]]
        offset += shard.size
    border = min((s for s in near if s), key=lambda s: abs(s - cut), default=cut)
    return border if 2 * abs(border - cut) <= val else cut


def first_row(step: int, rows: int, micro: int, micros: int) -> int:
    """Number of the first row of a micro-batch, counted over the whole run.

    Raises:
        TypeError: An argument is no int.
        ValueError: An argument is out of range.
    """
    step, micro = _count("step", step), _count("micro", micro)
    if micro >= _count("micros", micros, 1):
        raise ValueError(
            f"micro must be below micros, got {micro} and {micros}; "
            "pass micros=grad_accum_steps"
        )
    return (step * micros + micro) * rows


def _count(name: str, value, least: int = 0) -> int:
    """``value`` as an int of at least ``least``; a bool is no count."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if index(value) < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return index(value)
