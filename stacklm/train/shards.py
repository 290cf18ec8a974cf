"""Shards: token ids on disk, packed without gaps, and where each document begins.

    header          64 bytes, HEADER below, with a checksum of its own
    tokens          N x uint16, then zeros up to a multiple of 8 bytes
    starts          D x uint64, the positions in this shard where a document begins
    checksums       one CRC-32 per MiB of tokens and starts

The document of position i is ``before`` + (starts <= i) - 1, where ``before`` counts
the documents that began in earlier shards; so a document may go on over many shards.
All numbers are little-endian.

Legend: N = tokens and D = document starts of a shard. Positions and N are in tokens,
offsets in bytes from the start of the file. Taught in chapter 11.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

# magic, version, bytes per token, vocab_size, N, D, before, CRC-32 of the checksums
HEADER = struct.Struct("<8sIIQQQQI")
HEADER_BYTES = 64  # HEADER, its CRC-32, zeros
MAGIC = b"STACKLM\0"
VERSION = 1
BLOCK = 2**20  # bytes under one checksum, and the most that reading holds at once
INDEX = "index.json"
TOKEN = np.dtype("<u2")
START = np.dtype("<u8")


@dataclass(frozen=True)
class Shard:
    """One shard, on disk or in memory; nothing is read before it is asked for.

    Ids are read from the file each time instead of mapped: pages of a map that were
    read once count as memory of the process, and a run reads the whole corpus.
    """

    path: Path | None
    """The file, or None for a shard in memory."""
    vocab_size: int
    """Every id is below it (count)."""
    size: int
    """N (tokens)."""
    before: int
    """Documents that began in earlier shards (count)."""
    starts: np.ndarray
    """Where documents begin, uint64, (D,); mapped from the file."""
    ids: np.ndarray | None = None
    """The tokens of a shard in memory, uint16, (N,)."""
    tokenizer: str | None = None
    """Signature of the tokenizer that made the ids; None if that was not noted."""

    def read(self, start: int, count: int) -> np.ndarray:
        """Ids from position ``start`` on, uint16, (count,).

        Raises:
            ValueError: The file has become shorter since it was opened.
        """
        if self.ids is not None:
            return self.ids[start : start + count]
        return self.read_rows(np.array([start]), count)[0]

    def read_rows(self, starts: np.ndarray, count: int) -> np.ndarray:
        """Ids from each of B positions on, uint16, (B, count).

        Raises:
            ValueError: The file has become shorter since it was opened.
        """
        if self.ids is not None:
            return self.ids[starts[:, None] + np.arange(count)]
        rows = np.empty((len(starts), count), TOKEN)
        with open(self.path, "rb", buffering=0) as file:
            end = os.fstat(file.fileno()).st_size
            if end < Layout(self.size, len(self.starts)).end:  # a map would crash on it
                raise ValueError(
                    f"{self.path} ends at offset {end}; it was cut while open"
                )
            for row, start in zip(rows, starts.tolist(), strict=True):
                file.seek(HEADER_BYTES + TOKEN.itemsize * start)
                file.readinto(row)
        return rows

    def document_of(self, positions: np.ndarray) -> np.ndarray:
        """Document of each position, int64, (B,)."""
        found = self.starts.searchsorted(positions.astype(START), "right")
        return self.before - 1 + found

    def documents(self, start: int, count: int) -> np.ndarray:
        """Document of each position from ``start`` on, int64, (count,)."""
        first, last = self.starts.searchsorted((start, start + count - 1), "right")
        if first == last:  # the common case
            return np.full(count, self.before + int(first) - 1)
        inside = self.starts[first:last].astype(np.int64)  # few, and often none
        steps = inside.searchsorted(np.arange(start, start + count), "right")
        return self.before + int(first) + steps - 1

    def where(self, position: int) -> str:
        """The file and the offset of a position, for messages."""
        offset = HEADER_BYTES + TOKEN.itemsize * position
        return f"{self.path or 'tokens in memory'}, offset {offset}"


def open_shards(folder: str | os.PathLike, *, verify: bool = True) -> list[Shard]:
    """Open the shards that ``write_shards`` wrote into a folder.

    Args:
        folder: Holds index.json and the shards.
        verify: Read everything once and compare checksums and ids; without it only
            headers and lengths are looked at.

    Returns:
        The shards, in order.

    Raises:
        FileNotFoundError: The folder, its index or a shard is missing.
        ValueError: A shard is cut short, damaged or of another corpus, or holds an id
            outside the vocabulary; the message names file and offset.
    """
    folder = Path(folder)
    path = folder / INDEX
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is no folder of shards; make one of text with "
            "write_shards(text_files(...), folder)"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no {INDEX}, which write_shards writes last; "
            "name the folder that it wrote, or let it write again to the end"
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        tokenizer = index.get("tokenizer")
        entries = [(e["file"], e["header"]) for e in index["shards"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged ({error!r}); write the shards again"
        ) from None
    shards = []
    for name, header in entries:
        shard = replace(_open(folder / name, header), tokenizer=tokenizer)
        if verify:
            _verify(shard)
        shards.append(shard)
    return shards


def _open(path: Path, expected: int) -> Shard:
    """Check a shard's header and length, and map its starts."""
    with open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    actual = os.path.getsize(path)
    if actual < HEADER_BYTES:
        raise ValueError(
            f"{path} is cut short: it ends at offset {actual}, within its header of "
            f"{HEADER_BYTES} bytes; write the shards again"
        )
    magic, version, width, vocab_size, size, documents, before, _ = HEADER.unpack_from(
        head
    )
    if magic != MAGIC:
        raise ValueError(f"{path} is no shard: offset 0 holds {magic!r}, not {MAGIC!r}")
    crc = zlib.crc32(head[: HEADER.size])
    if head != with_crc(head[: HEADER.size]):
        raise ValueError(
            f"{path}, offset 0: the header is damaged; copy the file again"
        )
    if (version, width) != (VERSION, TOKEN.itemsize):
        raise ValueError(
            f"{path}, offset 8: version {version} with {width} bytes per token, but "
            f"this release reads version {VERSION} with {TOKEN.itemsize}"
        )
    if crc != expected:
        raise ValueError(
            f"{path}, offset 0: a sound shard, but not the one that {INDEX} lists; "
            "it is of another corpus"
        )
    layout = Layout(size, documents)
    if actual != layout.end:
        state = "cut short" if actual < layout.end else "too long"
        raise ValueError(
            f"{path} is {state}: it ends at offset {actual}, and {size:,} tokens in "
            f"{documents:,} documents end at {layout.end}; copy or write it again"
        )
    starts = np.zeros(0, START)  # older NumPy cannot map an empty range
    if documents:
        starts = np.memmap(path, START, "r", layout.starts, (documents,))
    return Shard(path, vocab_size, size, before, starts)


def _verify(shard: Shard) -> None:
    """Compare every block with its checksum and every id with the vocabulary."""
    layout = Layout(shard.size, len(shard.starts))
    with open(shard.path, "rb") as file:
        expected_sum = HEADER.unpack_from(file.read(HEADER_BYTES))[-1]
        file.seek(layout.checksums)
        sums = file.read()
        if zlib.crc32(sums) != expected_sum:
            raise ValueError(
                f"{shard.path}, offset {layout.checksums}: the checksums are damaged; "
                "copy the file again"
            )
        file.seek(HEADER_BYTES)
        for i, crc in enumerate(np.frombuffer(sums, "<u4")):
            offset = HEADER_BYTES + i * BLOCK
            block = file.read(min(BLOCK, layout.checksums - offset))
            if zlib.crc32(block) != crc:
                raise ValueError(
                    f"{shard.path}, offset {offset}: the checksum does not match, so "
                    f"these {len(block):,} bytes are damaged; copy the file again"
                )
            tokens = max(0, min(BLOCK // 2, shard.size - i * BLOCK // 2))
            ids = np.frombuffer(block, TOKEN, tokens)
            check_ids(ids, shard.vocab_size, shard, i * BLOCK // 2)


def check_ids(ids: np.ndarray, vocab_size: int, shard: Shard, start: int) -> None:
    """Refuse ids outside the vocabulary, naming file and offset of the first."""
    if len(ids) and ids.max() >= vocab_size:
        first = int(np.argmax(ids >= vocab_size))
        raise ValueError(
            f"{shard.where(start + first)}: token id {ids[first]} is outside the "
            f"vocabulary of {vocab_size:,}; write the shards with the right tokenizer"
        )


@dataclass(frozen=True)
class Layout:
    """Where the parts of a shard lie (offsets in bytes)."""

    size: int
    documents: int

    @property
    def starts(self) -> int:
        """The first start; a multiple of 8."""
        return HEADER_BYTES + -(-TOKEN.itemsize * self.size // 8) * 8

    @property
    def checksums(self) -> int:
        """The first checksum."""
        return self.starts + START.itemsize * self.documents

    @property
    def end(self) -> int:
        """The length of the file."""
        return self.checksums + 4 * -(-(self.checksums - HEADER_BYTES) // BLOCK)


def with_crc(fields: bytes) -> bytes:
    """A header's 64 bytes: its fields, their checksum, zeros."""
    crc = struct.pack("<I", zlib.crc32(fields))
    return (fields + crc).ljust(HEADER_BYTES, b"\0")


@contextmanager
def replacing(path: Path):
    """A file that takes its name only once it is whole and on disk.

    Yields:
        A binary file open for writing and reading. Whatever goes wrong before the end,
        a kill included, leaves what was at ``path`` as it was.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
