"""Shards that are damaged, cut short, missing or of another corpus: file and offset."""

import json
import os
import struct
import zlib

import pytest

from stacklm.train import open_tokens, write_shards
from stacklm.train.shards import BLOCK, Layout


def rewrite(path, offset, data, *, block_sum=False):
    """Change bytes; with ``block_sum``, also both checksums, as a bad writer would."""
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    if block_sum:
        size, documents = struct.unpack_from("<QQ", content, 24)
        end = Layout(size, documents).checksums
        block = (offset - 64) // BLOCK
        begin = 64 + block * BLOCK
        crc = zlib.crc32(content[begin : min(begin + BLOCK, end)])
        struct.pack_into("<I", content, end + 4 * block, crc)
        struct.pack_into("<I", content, 48, zlib.crc32(content[end:]))
        seal(path.parent, content)
    path.write_bytes(content)


def seal(folder, content):
    """Make a header's own checksum right, and the index agree with it."""
    crc = zlib.crc32(content[:52])
    struct.pack_into("<I", content, 52, crc)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["header"] = crc
    (folder / "index.json").write_text(json.dumps(index))


@pytest.fixture
def corpus(tmp_path):
    """A folder with one shard of three blocks: 1,200,000 tokens, 2 documents."""
    write_shards(["a" * 600_000] * 2, tmp_path)
    return tmp_path


SHARD = "shard_00000.bin"


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (64, r"shard_00000\.bin, offset 64: the checksum does not match, so these"),
        (64 + BLOCK - 1, "offset 64: the checksum does not match"),
        (64 + BLOCK, f"offset {64 + BLOCK}: the checksum does not match"),
        (2_400_064, f"offset {64 + 2 * BLOCK}: the checksum does"),  # a start
        (2_400_080, "offset 2400080: the checksums are damaged"),
        (0, "is no shard: offset 0 holds b'_TACKLM.x00'"),
        (30, r"shard_00000\.bin, offset 0: the header is damaged"),
        (53, r"shard_00000\.bin, offset 0: the header is damaged"),
        (63, r"shard_00000\.bin, offset 0: the header is damaged"),
    ],
)
def test_one_damaged_byte_is_found_and_placed(corpus, offset, message):
    rewrite(corpus / SHARD, offset, b"_")
    with pytest.raises(ValueError, match=message):
        open_tokens(corpus)


@pytest.mark.parametrize("length", [0, 63, 64, 1_000, 2_400_083])
def test_a_truncated_shard_is_found_without_reading_it(corpus, length):
    os.truncate(corpus / SHARD, length)
    message = rf"shard_00000\.bin is cut short: it ends at offset {length}"
    with pytest.raises(ValueError, match=message):
        open_tokens(corpus, verify=False)


def test_a_shard_with_more_at_its_end_is_refused(corpus):
    with open(corpus / SHARD, "ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match="is too long: it ends at offset 2400096"):
        open_tokens(corpus)


def test_a_token_outside_the_vocabulary_is_named_with_its_offset(corpus):
    offset = 64 + 2 * 1_000_001
    rewrite(corpus / SHARD, offset, struct.pack("<H", 256), block_sum=True)
    message = rf"shard_00000\.bin, offset {offset}: token id 256 is outside the vocab"
    with pytest.raises(ValueError, match=message):
        open_tokens(corpus)
    tokens = open_tokens(corpus, "all", verify=False)  # then when it is read
    tokens.read(0, 1_000_001)
    with pytest.raises(ValueError, match=message):
        tokens.read(999_999, 5)


@pytest.mark.parametrize("length", [64, 2_000_064, 2_400_070])
def test_a_shard_cut_while_open_is_an_error_and_no_crash(corpus, length):
    tokens = open_tokens(corpus, "all")
    os.truncate(corpus / SHARD, length)
    with pytest.raises(ValueError, match=f"ends at offset {length}; it was cut while"):
        tokens.read(999_999, 5)


def test_a_format_of_another_release_is_refused(corpus):
    content = bytearray((corpus / SHARD).read_bytes())
    struct.pack_into("<I", content, 8, 2)
    seal(corpus, content)
    (corpus / SHARD).write_bytes(content)
    with pytest.raises(ValueError, match="offset 8: version 2 with 2 bytes per token"):
        open_tokens(corpus)


def test_a_sound_shard_of_another_corpus_is_refused(corpus, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write_shards(["b" * 600_000] * 2, other)
    os.replace(other / SHARD, corpus / SHARD)
    with pytest.raises(ValueError, match="but not the one that index"):
        open_tokens(corpus)


def test_a_missing_shard_is_named(corpus):
    (corpus / SHARD).unlink()
    with pytest.raises(FileNotFoundError, match=r"shard_00000\.bin"):
        open_tokens(corpus)


@pytest.mark.parametrize("text", ["", "[]", '{"shards": [{"file": "a"}]}', "\ufffd{"])
def test_a_damaged_index_is_named(corpus, text):
    (corpus / "index.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"index\.json is damaged"):
        open_tokens(corpus)


def test_what_is_no_corpus(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no index\.json"):
        open_tokens(tmp_path)
    (tmp_path / "book.txt").write_text("Call me Ishmael.")
    for name in ("book.txt", "missing"):
        with pytest.raises(FileNotFoundError, match=f"{name} is no folder of shards"):
            open_tokens(tmp_path / name)
