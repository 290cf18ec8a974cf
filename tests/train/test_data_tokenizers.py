"""Tokenizers: bytes and BPE give back any text, and what is neither."""

import json
from dataclasses import replace

import pytest

from stacklm.train import (
    BPETokenizer,
    Branch,
    ByteTokenizer,
    Piece,
    Tokens,
    checkpoints,
    moby_dick,
    open_tokenizer,
    open_tokens,
    pretrain,
    train_bpe,
    write_shards,
)
from tests.train.runs import CFG, MODEL, RUN


@pytest.fixture(scope="module")
def bpe():
    return train_bpe([moby_dick()[:200_000]], vocab_size=1_000)


def test_bpe_gives_back_any_text_in_fewer_tokens(bpe):
    assert bpe.vocab_size == 1_000
    book = moby_dick()[:50_000]
    strange = ["\0\x01 \t\r\n", "𝄞 白鲸 é\u0301", "<|endoftext|>", " lead", "x" * 99]
    for text in (book, *strange):
        (ids,) = bpe.encode_batch([text])
        assert ids.dtype == "uint16"
        assert bpe.decode(ids) == text
    assert len(bpe.encode_batch([book])[0]) < 0.5 * len(book.encode())


def test_bpe_of_32_768_tokens_writes_shards(tmp_path):
    # The book is too short for 32,768 merges; its words once more, reversed, are not.
    words = {word[::-1] for word in moby_dick().split()}
    large = train_bpe([moby_dick(), " ".join(sorted(words))])
    assert large.vocab_size == 32_768
    write_shards([moby_dick()], tmp_path, tokenizer=large)
    tokens = open_tokens(tmp_path, "all")
    assert tokens.vocab_size == 32_768
    assert large.decode(tokens.read(0, len(tokens))[0]) == moby_dick()


def test_training_bpe_twice_gives_the_same(bpe, tmp_path):
    pieces = [Piece(moby_dick()[:200_000], "book")]
    again = train_bpe(pieces, vocab_size=1_000)
    assert again.backend.to_str() == bpe.backend.to_str()
    bpe.save(tmp_path / "tokenizer.json")
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]
    loaded = BPETokenizer.load(tmp_path / "tokenizer.json")
    text = [moby_dick()[200_000:210_000]]
    assert (loaded.encode_batch(text)[0] == bpe.encode_batch(text)[0]).all()


def test_what_is_no_bpe(tmp_path, bpe):
    for size in (255, 65_537):
        with pytest.raises(ValueError, match=f"between 256 .* got {size}"):
            train_bpe(["a"], vocab_size=size)
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer\.json"):
        BPETokenizer.load(path)
    with pytest.raises(FileNotFoundError):
        BPETokenizer.load(tmp_path / "missing.json")

    class Large:
        def get_vocab_size(self):
            return 65_537

    with pytest.raises(ValueError, match="at most 65,536 tokens, got 65,537"):
        BPETokenizer(Large())


def test_bytes_decode_what_is_no_utf8():
    assert ByteTokenizer().decode([0xC3, 0x28]) == "�("


TEXT = "Call me Ishmael. Some years ago, never mind how long precisely. " * 40


@pytest.fixture(scope="module")
def three(bpe, tmp_path_factory):
    """Folders of shards: bytes, a BPE, and another BPE of the same size."""
    other = train_bpe([moby_dick()[200_000:500_000]], vocab_size=1_000)
    folders = []
    for tokenizer in (ByteTokenizer(), bpe, other):
        folders.append(tmp_path_factory.mktemp("shards"))
        write_shards([TEXT], folders[-1], tokenizer=tokenizer, shard_tokens=400)
    return folders


def test_shards_remember_their_tokenizer(bpe, three):
    bytes_, first, other = (open_tokens(folder).tokenizer for folder in three)
    assert bytes_ == "bytes" == open_tokens("moby-dick").tokenizer
    assert first == bpe.signature
    assert first.startswith("BPE ")
    assert first != other
    assert not (three[0] / "tokenizer.json").exists()
    for folder in three:
        tokens = open_tokens(folder, "all")
        assert len(tokens.shards) > 1
        ids = tokens.read(0, len(tokens))[0]
        assert open_tokenizer(folder).decode(ids) == TEXT
    assert open_tokenizer("moby-dick").decode(b"Whale") == "Whale"


def test_a_copy_that_is_not_the_tokenizer_of_the_shards(bpe, three, tmp_path):
    write_shards([TEXT], tmp_path, tokenizer=bpe)
    copy = tmp_path / "tokenizer.json"
    copy.write_bytes((three[2] / "tokenizer.json").read_bytes())
    with pytest.raises(ValueError, match=r"tokenizer\.json is 'BPE .*right file there"):
        open_tokenizer(tmp_path)
    copy.unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        open_tokenizer(tmp_path)


def test_a_tokenizer_of_ones_own_is_known_by_its_kind(tmp_path):
    class Mine(ByteTokenizer):
        @property
        def signature(self):
            raise AttributeError

    write_shards([TEXT], tmp_path, tokenizer=Mine())
    assert open_tokens(tmp_path).tokenizer == "Mine"
    with pytest.raises(ValueError, match="encoded with 'Mine', of which it holds no"):
        open_tokenizer(tmp_path)


def test_training_and_validation_have_one_tokenizer(three):
    model = replace(MODEL, vocab_size=1_000)
    bytes_, first, other = (open_tokens(f, "all") for f in three)
    for val in (bytes_, other):
        with pytest.raises(ValueError, match=r"one tokenizer .* data with 'BPE .* val"):
            pretrain(model, CFG, first, val=val, run_cfg=RUN, device="cpu")
    with pytest.raises(ValueError, match=r"shard 0 with 'BPE .*, shard 1 with 'BPE "):
        Tokens([first.shards[0], other.shards[0]])


def test_a_run_and_its_branches_keep_the_tokenizer(three, tmp_path):
    model = replace(MODEL, vocab_size=1_000)
    _, first, other = (open_tokens(f, "all") for f in three)
    trunk = tmp_path / "trunk"
    ends = {"run_cfg": RUN, "device": "cpu"}
    pretrain(model, CFG, first, out=trunk, **ends)
    branch = Branch(checkpoints(trunk)[0], 2)
    with pytest.raises(ValueError, match=r"trunk with 'BPE .*, branch with 'BPE "):
        pretrain(model, CFG, other, branch=branch, **ends)
    pretrain(model, CFG, first, branch=branch, **ends)
    other.stop = other.start + len(first)  # the very same size
    with pytest.raises(ValueError, match="data: tokenizer is 'BPE "):
        pretrain(model, CFG, other, out=trunk, **ends)


def test_shards_from_before_tokenizers_were_noted_fit_all(three, tmp_path):
    write_shards([TEXT], tmp_path)
    index = json.loads((tmp_path / "index.json").read_text(encoding="utf-8"))
    assert index.pop("tokenizer") == "bytes"
    (tmp_path / "index.json").write_text(json.dumps(index), encoding="utf-8")
    data = open_tokens(tmp_path)
    assert data.tokenizer is None
    val = open_tokens(three[0])
    assert pretrain(MODEL, CFG, data, val=val, device="cpu").step == CFG.total_steps
