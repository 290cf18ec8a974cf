"""Where documents come from: text, JSON Lines, Parquet, Hugging Face, Moby-Dick.

Each function yields ``Piece``s, one after another and in constant memory, and each
error names the file and where in it. A document is one piece, but a text file, which
may be of any size, comes in several.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import NamedTuple

from stacklm.train.tokenizer import import_extra

CHUNK = 2**20  # bytes of a text file that are read at once
MOBY_DICK_SHA256 = "fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240"


class Piece(NamedTuple):
    """Text with its origin: a document, or the next part of one."""

    text: str
    """The text; a document without text is an empty piece."""
    where: str
    """File and place in it, for messages."""
    begins: bool = True
    """Whether a document begins here; otherwise the one before goes on."""


def text_files(*paths: str | os.PathLike) -> Iterator[Piece]:
    """Plain text in UTF-8, one document per file.

    Files are cut after a line end about every MiB, so BPE never merges across a cut
    within a line. Line ends are kept as they are.

    Args:
        *paths: The files, in order.

    Yields:
        The pieces of each file.

    Raises:
        ValueError: A file is not UTF-8; names the offset of the first bad byte.
    """
    for path in paths:
        with open(path, "rb") as file:
            offset, rest, begins = 0, b"", True
            while chunk := file.read(CHUNK):
                rest += chunk
                cut = _cut(rest)
                if cut:
                    text = _decode(rest[:cut], path, offset)
                    yield Piece(text, f"{path}, offset {offset}", begins)
                    offset, rest, begins = offset + cut, rest[cut:], False
            if rest or begins:
                text = _decode(rest, path, offset)
                yield Piece(text, f"{path}, offset {offset}", begins)


def json_lines(*paths: str | os.PathLike, field: str = "text") -> Iterator[Piece]:
    """JSON Lines: one object per line, one document per object.

    Args:
        *paths: The files, in order.
        field: Key of the text.

    Yields:
        One piece per line.

    Raises:
        ValueError: A line is not UTF-8, no JSON object or without the field; names the
            line, counted from 1, and its offset.
    """
    for path in paths:
        with open(path, "rb") as file:
            offset = 0
            for number, line in enumerate(file, start=1):
                where = f"{path}, line {number}, offset {offset}"
                text = _decode(line, path, offset)
                try:
                    row = json.loads(text)
                except ValueError as error:
                    raise ValueError(f"{where}: no JSON ({error})") from None
                yield Piece(_field(row, field, where), where)
                offset += len(line)


def parquet_files(*paths: str | os.PathLike, field: str = "text") -> Iterator[Piece]:
    """Parquet: one document per row; needs pyarrow.

    Args:
        *paths: The files, in order.
        field: Column of the text; no other is read.

    Yields:
        One piece per row.

    Raises:
        ImportError: pyarrow is missing.
        ValueError: A file is no Parquet, has no such column, or a row without text;
            names the row, counted from 0.
    """
    parquet = import_extra("pyarrow.parquet", "Parquet")
    arrow = import_extra("pyarrow", "Parquet")
    for path in paths:
        try:
            with parquet.ParquetFile(path) as file:
                names = file.schema_arrow.names
                if field not in names:
                    raise ValueError(
                        f"{path}: no column {field!r}; it has {', '.join(names)}"
                    )
                row = 0
                for batch in file.iter_batches(batch_size=256, columns=[field]):
                    for text in batch.column(0).to_pylist():
                        where = f"{path}, row {row}"
                        yield Piece(_field({field: text}, field, where), where)
                        row += 1
        except (arrow.ArrowInvalid, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{path} is no sound Parquet file: {error}") from None


def hugging_face(
    dataset: str, *, split: str = "train", field: str = "text", **options
) -> Iterator[Piece]:
    """A Hugging Face data set, streamed; needs the library datasets.

    Nothing is stored on disk: rows arrive while they are read.

    Args:
        dataset: Its name, such as "HuggingFaceFW/fineweb-edu"; or "json" or "parquet"
            for files named by ``data_files``.
        split: Part of the data set.
        field: Column of the text.
        **options: Handed to ``datasets.load_dataset``, such as ``name="sample-10BT"``.

    Yields:
        One piece per row.

    Raises:
        ImportError: The library datasets is missing.
        ValueError: A row has no such text; names the row, counted from 0.
        Exception: Whatever the library raises, with a note that names the row.

    Example:
        >>> rows = hugging_face(  # the 10 billion tokens of FineWeb-Edu's sample
        ...     "HuggingFaceFW/fineweb-edu", name="sample-10BT"
        ... )
    """
    datasets = import_extra("datasets", "a Hugging Face data set")
    rows = datasets.load_dataset(dataset, split=split, streaming=True, **options)
    yield from rows_of(rows, name=dataset, field=field)


def rows_of(rows: Iterable, *, name: str = "rows", field: str = "text"):
    """Any iterable of mappings, one document each.

    Args:
        rows: Mappings, such as a data set that is open already.
        name: What messages call it.
        field: Key of the text.

    Yields:
        One piece per row.

    Raises:
        ValueError: A row has no such text; names the row, counted from 0.
        Exception: Whatever ``rows`` raises, with a note that names the row.
    """
    number = 0
    try:
        for row in rows:
            where = f"{name}, row {number}"
            yield Piece(_field(row, field, where), where)
            number += 1
    except Exception as error:  # of the data set's own, which may not say where
        error.add_note(f"while reading {name}, row {number}")
        raise


def moby_dick() -> str:
    """Herman Melville, Moby-Dick; or, The Whale (1851), which ships with the package.

    Returns:
        The text, 1,190,317 characters, as one string.

    Raises:
        ValueError: The file is damaged.

    Example:
        >>> "Call me Ishmael." in moby_dick()
        True
    """
    file = resources.files("stacklm.train") / "texts" / "moby_dick.txt.xz"
    try:
        text = lzma.decompress(file.read_bytes())
    except lzma.LZMAError as error:
        raise ValueError(
            f"{file} is damaged ({error}); install stacklm again"
        ) from None
    if hashlib.sha256(text).hexdigest() != MOBY_DICK_SHA256:
        raise ValueError(f"{file} holds another text; install stacklm again")
    return text.decode()


def _cut(data: bytes) -> int:
    """Where to cut: after the last line end, else before the last character."""
    if cut := data.rfind(b"\n") + 1:
        return cut
    cut = len(data) - 1
    for _ in range(3):  # a character has at most three continuation bytes
        if cut > 0 and data[cut] & 0xC0 == 0x80:
            cut -= 1
    return cut


def _decode(data: bytes, path, offset: int) -> str:
    """Decode UTF-8, naming file and offset of the first byte that is not."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, offset {offset + error.start}: byte {data[error.start]:#04x} is "
            "not UTF-8; convert the file first"
        ) from None


def _field(row, field: str, where: str) -> str:
    """The text of a row, which must be there and be a string."""
    if not hasattr(row, "keys"):
        raise ValueError(f"{where}: no object but {type(row).__name__}")
    if field not in row:
        found = ", ".join(map(str, row)) or "nothing"
        raise ValueError(f"{where}: no field {field!r}; found {found}")
    if not isinstance(row[field], str):
        kind = type(row[field]).__name__
        raise ValueError(f"{where}: field {field!r} must be a string, got {kind}")
    return row[field]
