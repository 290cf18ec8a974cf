"""Tokenizers: bytes and BPE give back any text, and what is neither."""

import pytest

from stacklm.train import (
    BPETokenizer,
    ByteTokenizer,
    Piece,
    moby_dick,
    open_tokens,
    train_bpe,
    write_shards,
)


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
