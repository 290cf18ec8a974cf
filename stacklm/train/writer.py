"""Documents to shards, in one pass and in memory that does not grow with them.

    write_shards(documents, folder)            then: open_tokens(folder)

A document is a string, or one or more pieces of ``stacklm.train.sources``. Pieces are
encoded a few MB at a time and go straight to the open shard; it is closed, with its
checksums, when it is full. The index is written last, so a folder is either whole or
not openable.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stacklm.train.shards import (
    BLOCK,
    HEADER,
    HEADER_BYTES,
    INDEX,
    MAGIC,
    START,
    TOKEN,
    VERSION,
    Layout,
    Shard,
    replacing,
    with_crc,
)
from stacklm.train.sources import Piece
from stacklm.train.tokenizer import (
    MAX_VOCAB,
    TOKENIZER,
    ByteTokenizer,
    signature_of,
)

GROUP_BYTES = 2**20  # text that is encoded at once, so that BPE can use all cores
SHARD_TOKENS = 2**27  # a quarter of a GB per file


class Written(NamedTuple):
    """What ``write_shards`` wrote."""

    tokens: int
    """All of them (count)."""
    documents: int
    """Those with at least one token (count)."""
    skipped: int
    """Documents without text, with ``skip_empty`` (count)."""
    shards: int
    """Files, index.json aside (count)."""


def write_shards(
    documents: Iterable[str | Piece],
    folder: str | os.PathLike,
    *,
    tokenizer=None,
    shard_tokens: int = SHARD_TOKENS,
    skip_empty: bool = False,
) -> Written:
    """Encode documents into a folder of shards.

    The folder remembers the tokenizer: by its signature, and as a copy if it can save
    itself, so that ``open_tokenizer`` finds it.

    Args:
        documents: Strings, one document each, or what a function of
            ``stacklm.train.sources`` yields. Read once.
        folder: Created if missing; must not hold shards yet.
        tokenizer: ``ByteTokenizer()`` unless given.
        shard_tokens: Tokens per shard, the last one aside (count).
        skip_empty: Count documents without text instead of stopping at the first.

    Returns:
        How much was written.

    Raises:
        FileExistsError: The folder holds an index already.
        TypeError: ``documents`` is one string, or yields something else.
        ValueError: There is no document, or one that is empty, not UTF-8 or has an id
            outside the vocabulary; the message names file and offset. There is no index
            then, so what was written cannot be mistaken for a corpus.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_shards(["Call me", "Ishmael."], folder)
        Written(tokens=15, documents=2, skipped=0, shards=1)
    """
    tokenizer = tokenizer or ByteTokenizer()
    folder = Path(folder)
    _check_request(documents, folder, tokenizer.vocab_size, shard_tokens)
    folder.mkdir(parents=True, exist_ok=True)
    skipped = 0
    with _Writer(folder, tokenizer.vocab_size, shard_tokens) as writer:
        for piece, ids in _encoded(documents, tokenizer):
            if len(ids):
                writer.add(ids, piece.begins)
            elif skip_empty:
                skipped += 1
            else:
                raise ValueError(
                    f"{piece.where}: an empty document; remove it, "
                    "or pass skip_empty=True"
                )
        if not writer.total:
            raise ValueError(f"no documents to write to {folder}; the source is empty")
        writer.finish()
    entries = writer.entries
    if hasattr(tokenizer, "save"):
        tokenizer.save(folder / TOKENIZER)
    index = {
        "version": VERSION,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": signature_of(tokenizer),
        "shards": entries,
    }
    with replacing(folder / INDEX) as file:
        file.write(json.dumps(index, indent=1).encode())
    return Written(writer.total, writer.documents, skipped, len(entries))


def _check_request(documents, folder: Path, vocab_size: int, shard_tokens) -> None:
    """Refuse what cannot be written, before the folder is made."""
    if isinstance(documents, str):
        raise TypeError("documents is one string; give a list of strings, one each")
    if not 1 <= vocab_size <= MAX_VOCAB:
        raise ValueError(
            f"shards hold uint16, so vocab_size is at most {MAX_VOCAB:,}, "
            f"got {vocab_size:,}"
        )
    if isinstance(shard_tokens, bool) or not isinstance(shard_tokens, int):
        raise TypeError(f"shard_tokens must be an int, got {shard_tokens!r}")
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens must be at least 1, got {shard_tokens}")
    if (folder / INDEX).exists():
        raise FileExistsError(f"{folder} holds shards already; name a new folder")


def in_memory(documents: Iterable[str | Piece], tokenizer=None) -> Shard:
    """Encode documents into one shard that is not written anywhere.

    Args:
        documents, tokenizer: As for ``write_shards``.

    Returns:
        The shard; for texts that fit in memory several times.

    Raises:
        TypeError, ValueError: As ``write_shards``.
    """
    tokenizer = tokenizer or ByteTokenizer()
    parts, starts, size = [], [], 0
    for piece, ids in _encoded(documents, tokenizer):
        if not len(ids):
            raise ValueError(f"{piece.where}: an empty document; remove it")
        if piece.begins:
            starts.append(size)
        parts.append(ids)
        size += len(ids)
    if not size:
        raise ValueError("no documents; the source is empty")
    ids = np.concatenate(parts)
    shape = (tokenizer.vocab_size, size, 0)
    memory = (np.array(starts, START), ids)
    return Shard(None, *shape, *memory, signature_of(tokenizer))


def _encoded(documents, tokenizer) -> Iterator[tuple[Piece, np.ndarray]]:
    """Pieces with their ids, checked against the vocabulary."""
    for group in _groups(documents):
        encoded = tokenizer.encode_batch([piece.text for piece in group])
        for piece, ids in zip(group, map(np.asarray, encoded), strict=True):
            outside = (ids < 0) | (ids >= tokenizer.vocab_size)
            if outside.any():
                at = int(np.argmax(outside))
                raise ValueError(
                    f"{piece.where}: token {at} of this piece has id {ids[at]}, "
                    f"outside the vocabulary of {tokenizer.vocab_size:,}; "
                    "correct the tokenizer's vocab_size"
                )
            yield piece, ids.astype(TOKEN, copy=False)


def _groups(documents) -> Iterator[list[Piece]]:
    """Pieces in lists of about GROUP_BYTES, each checked to be text."""
    group, size = [], 0
    for number, item in enumerate(documents):
        piece = Piece(item, f"document {number}") if isinstance(item, str) else item
        if not isinstance(piece, Piece):
            raise TypeError(
                f"document {number} must be a string, got {type(item).__name__}; "
                "decode bytes as UTF-8 first"
            )
        try:
            size += len(piece.text.encode())
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{piece.where}: character {error.start} is half of a surrogate pair, "
                "which UTF-8 cannot hold; repair the source"
            ) from None
        group.append(piece)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Writer:
    """Cuts a stream of ids into shards; holds one block and one shard's starts."""

    def __init__(self, folder: Path, vocab_size: int, shard_tokens: int):
        self.folder, self.vocab_size, self.shard_tokens = (
            folder,
            vocab_size,
            shard_tokens,
        )
        self.total = self.documents = 0
        self.entries: list[dict] = []
        self._open_file = ExitStack()
        self._file = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._open_file.__exit__(*error)  # on an error, removes the unfinished shard

    def add(self, ids: np.ndarray, begins: bool) -> None:
        """Append ids, the first of which may begin a document."""
        while len(ids):
            if self._file is None:
                self._begin()
            if begins:
                self._starts.append(self._size)
                self.documents += 1
            part = ids[: self.shard_tokens - self._size]
            self._write(part.tobytes())
            self._size += len(part)
            self.total += len(part)
            ids, begins = ids[len(part) :], False
            if self._size == self.shard_tokens:
                self.finish()

    def finish(self) -> None:
        """Close the open shard, if there is one: starts, checksums, header, name."""
        if self._file is None:
            return
        layout = Layout(self._size, len(self._starts))
        self._write(bytes(layout.starts - HEADER_BYTES - TOKEN.itemsize * self._size))
        self._write(np.array(self._starts, START).tobytes())
        if self._pending:
            self._sums.append(zlib.crc32(self._pending))
            self._file.write(self._pending)
        sums = np.array(self._sums, "<u4").tobytes()
        self._file.write(sums)
        shape = (self.vocab_size, self._size, len(self._starts), self._before)
        width = TOKEN.itemsize
        fields = HEADER.pack(MAGIC, VERSION, width, *shape, zlib.crc32(sums))
        self._file.seek(0)
        self._file.write(with_crc(fields))
        self._open_file.close()
        self._file = None
        entry = {"file": self._name, "tokens": self._size, "header": zlib.crc32(fields)}
        self.entries.append(entry)

    def _begin(self) -> None:
        self._name = f"shard_{len(self.entries):05d}.bin"
        self._file = self._open_file.enter_context(replacing(self.folder / self._name))
        self._file.write(bytes(HEADER_BYTES))
        self._before, self._size = self.documents, 0
        self._starts, self._sums = array("Q"), array("I")
        self._pending = bytearray()

    def _write(self, data: bytes) -> None:
        """Write in blocks, so that each gets its checksum."""
        self._pending += data
        while len(self._pending) >= BLOCK:
            block = self._pending[:BLOCK]
            del self._pending[:BLOCK]
            self._sums.append(zlib.crc32(block))
            self._file.write(block)
