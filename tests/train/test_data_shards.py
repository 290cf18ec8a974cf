"""Shards: what is on disk, read by a second reader, and what is not written."""

import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.train import Written, open_tokens, write_shards
from stacklm.train.shards import replacing

TEXTS = ["Call me Ishmael.", "Some years ago", "never mind how long – precisely"]


def read_by_hand(path):
    """A second reader of the format, from the description of it alone."""
    data = path.read_bytes()
    assert data[:8] == b"STACKLM\0"
    version, width = struct.unpack_from("<II", data, 8)
    vocab, size, documents, before = struct.unpack_from("<QQQQ", data, 16)
    sum_of_sums, header_sum = struct.unpack_from("<II", data, 48)
    assert (version, width) == (1, 2)
    assert header_sum == zlib.crc32(data[:52])
    assert data[56:64] == bytes(8)
    tokens = struct.unpack_from(f"<{size}H", data, 64)
    start = 64 + (2 * size + 7) // 8 * 8
    assert not any(data[64 + 2 * size : start])
    starts = struct.unpack_from(f"<{documents}Q", data, start)
    end = start + 8 * documents
    assert zlib.crc32(data[end:]) == sum_of_sums
    blocks = [data[i : min(i + 2**20, end)] for i in range(64, end, 2**20)]
    sums = struct.unpack(f"<{len(blocks)}I", data[end:])
    assert list(sums) == [zlib.crc32(block) for block in blocks]
    return vocab, tokens, starts, before


def test_a_shard_holds_what_its_description_says(tmp_path):
    assert write_shards(TEXTS, tmp_path) == Written(63, 3, 0, 1)
    vocab, tokens, starts, before = read_by_hand(tmp_path / "shard_00000.bin")
    assert bytes(tokens) == "".join(TEXTS).encode()
    assert (vocab, starts, before) == (256, (0, 16, 30), 0)


def test_a_document_may_go_on_over_many_shards(tmp_path):
    written = write_shards(["a" * 25, "b" * 10, "c"], tmp_path, shard_tokens=10)
    assert written == Written(36, 3, 0, 4)
    parts = [read_by_hand(tmp_path / f"shard_{i:05d}.bin") for i in range(4)]
    assert [part[2] for part in parts] == [(0,), (), (5,), (5,)]
    assert [part[3] for part in parts] == [0, 1, 1, 2]
    ids, documents = open_tokens(tmp_path, "all").read(0, 36)
    assert bytes(ids.tolist()) == b"a" * 25 + b"b" * 10 + b"c"
    assert documents.tolist() == [0] * 25 + [1] * 10 + [2]


def test_shards_without_a_start(tmp_path):
    # 2,016 tokens end at 4,096, a page: a map of nothing from there on is an error.
    write_shards(["a" * 4_032, "b"], tmp_path, shard_tokens=2_016)
    assert read_by_hand(tmp_path / "shard_00001.bin")[2:] == ((), 1)
    documents = open_tokens(tmp_path, "all").read(0, 4_033)[1]
    assert documents.tolist() == [0] * 4_032 + [1]


def test_a_shard_of_many_blocks(tmp_path):
    text = "0123456789" * 150_000  # 3 MB of ids
    write_shards([text, "x"], tmp_path)
    vocab, tokens, starts, _ = read_by_hand(tmp_path / "shard_00000.bin")
    assert (vocab, len(tokens), starts) == (256, 1_500_001, (0, 1_500_000))
    assert bytes(tokens) == text.encode() + b"x"
    assert len(open_tokens(tmp_path, "all")) == 1_500_001


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=9), st.integers(5, 50))
def test_any_texts_come_back(tmp_path_factory, texts, shard_tokens):
    folder = tmp_path_factory.mktemp("corpus")
    encoded = [text.encode() for text in texts]
    written = write_shards(texts, folder, shard_tokens=shard_tokens)
    size = sum(map(len, encoded))
    assert written == (size, len(texts), 0, -(-size // shard_tokens))
    ids, documents = open_tokens(folder, "all").read(0, size)
    for number, text in enumerate(encoded):
        assert bytes(ids[documents == number].tolist()) == text


def test_uint16_holds_the_largest_id(tmp_path):
    class Largest:
        vocab_size = 65_536

        def encode_batch(self, texts):
            return [[65_535, 0] for _ in texts]

    write_shards(["any"], tmp_path, tokenizer=Largest())
    assert open_tokens(tmp_path, "all").read(0, 2)[0].tolist() == [65_535, 0]


@pytest.mark.parametrize("bad", [-1, 100, 70_000])
def test_an_id_outside_the_vocabulary_is_not_written(tmp_path, bad):
    class Wrong:
        vocab_size = 100

        def encode_batch(self, texts):
            return [[5, bad, 5] for _ in texts]

    message = f"document 0: token 1 of this piece has id {bad}, outside the vocab"
    with pytest.raises(ValueError, match=message):
        write_shards(["any"], tmp_path, tokenizer=Wrong())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def corpus(tmp_path):
    """A folder with one shard of three blocks: 1,200,000 tokens, 2 documents."""
    write_shards(["a" * 600_000] * 2, tmp_path)
    return tmp_path


def test_a_corpus_is_not_written_over(corpus):
    with pytest.raises(FileExistsError, match="holds shards already; name a new"):
        write_shards(["b"], corpus)
    assert len(open_tokens(corpus, "all")) == 1_200_000


def test_a_writer_that_fails_leaves_nothing_that_opens(tmp_path):
    def broken():
        yield "a" * 100
        raise RuntimeError("the source broke")

    def many():
        yield from ["a" * 2**20] * 3  # each its own group, so shards are written
        yield ""

    for documents, kind in ((broken(), RuntimeError), (many(), ValueError)):
        with pytest.raises(kind):
            write_shards(documents, tmp_path, shard_tokens=2**20 + 50)
        assert not list(tmp_path.glob("*.partial"))
        with pytest.raises(FileNotFoundError, match="holds no index"):
            open_tokens(tmp_path)
    write_shards(["again"], tmp_path)
    assert len(open_tokens(tmp_path, "all")) == 5


def test_a_writer_that_is_killed_leaves_nothing_that_opens(tmp_path):
    code = (
        "import os, sys\n"
        "from stacklm.train import write_shards\n"
        "def documents():\n"
        "    yield from ['a' * 2**20] * 3\n"
        "    os.kill(os.getpid(), 9)\n"
        "write_shards(documents(), sys.argv[1], shard_tokens=2**20 + 50)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert run.returncode == -9
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["shard_00000.bin", "shard_00001.bin", "shard_00002.bin.partial"]
    with pytest.raises(FileNotFoundError, match="holds no index"):
        open_tokens(tmp_path)
    write_shards(["b" * 3], tmp_path)
    assert open_tokens(tmp_path, "all").read(0, 3)[0].tolist() == [98] * 3


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])
    assert path.read_bytes() == b"before"
    with replacing(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


BAD_WRITE = [
    ({"documents": "one text"}, TypeError, "documents is one string; give a list"),
    ({"documents": [b"bytes"]}, TypeError, "document 0 must be a string, got bytes"),
    ({"documents": []}, ValueError, "no documents to write to"),
    ({"documents": ["a", ""]}, ValueError, "document 1: an empty document; remove"),
    ({"documents": ["a", "\ud800"]}, ValueError, "document 1: character 0 is half"),
    ({"shard_tokens": 0}, ValueError, "shard_tokens must be at least 1, got 0"),
    ({"shard_tokens": 1e6}, TypeError, "shard_tokens must be an int, got 1000000.0"),
]


@pytest.mark.parametrize(("change", "kind", "message"), BAD_WRITE, ids=str)
def test_what_is_not_written(tmp_path, change, kind, message):
    with pytest.raises(kind, match=message):
        write_shards(**{"documents": ["a"], "folder": tmp_path, **change})
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_too_large_for_uint16(tmp_path):
    class Large:
        vocab_size = 65_537

    with pytest.raises(ValueError, match="at most 65,536, got 65,537"):
        write_shards(["a"], tmp_path, tokenizer=Large())


def test_empty_documents_can_be_skipped(tmp_path):
    written = write_shards(["", "a", "", "b"], tmp_path, skip_empty=True)
    assert written == Written(2, 2, 2, 1)
    assert open_tokens(tmp_path, "all").read(0, 2)[1].tolist() == [0, 1]
    with pytest.raises(ValueError, match="no documents to write"):
        write_shards(["", ""], tmp_path / "none", skip_empty=True)


def test_ids_read_are_uint16_and_documents_int64(corpus):
    ids, documents = open_tokens(corpus, "all").read(599_999, 2)
    assert (ids.dtype, documents.dtype) == (np.uint16, np.int64)
    assert documents.tolist() == [0, 1]
