"""Text to token ids and back: bytes by default, BPE by the tokenizers library.

    ids = tokenizer.encode_batch(texts)        a list of uint16 arrays
    text = tokenizer.decode(ids)

A tokenizer is any object with ``vocab_size``, ``encode_batch`` and ``decode``; shards
note its ``signature``, if it has one, which says what its ids mean. Neither of ours has
a token for the end of a document: shards keep document ids instead, so that no entry of
the vocabulary is spent on it.

Legend: ids are uint16, so a vocabulary holds at most 65,536 tokens.
Source: Sennrich et al. 2016, arXiv:1508.07909, for BPE; Radford et al. 2019 (GPT-2),
section 2.2, for BPE over bytes, which has no unknown token. Taught in chapter 11.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from stacklm.train.shards import open_shards

MAX_VOCAB = 2**16  # what uint16 can count
TOKENIZER = "tokenizer.json"  # the copy beside shards


class ByteTokenizer:
    """One token per byte of UTF-8; nothing to train and nothing to install.

    Example:
        >>> bytes_ = ByteTokenizer()
        >>> [ids.tolist() for ids in bytes_.encode_batch(["a!", "é"])]
        [[97, 33], [195, 169]]
        >>> bytes_.decode([195, 169])
        'é'
    """

    vocab_size = 256
    """Ids run from 0 to 255 (count)."""
    signature = "bytes"
    """What its ids mean."""

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Encode texts.

        Args:
            texts: Any strings that UTF-8 can hold.

        Returns:
            One uint16 array per text, as long as the text in bytes.
        """
        return [np.frombuffer(t.encode(), np.uint8).astype(np.uint16) for t in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids; bytes that are no UTF-8, as a model may guess them, become �.

        Args:
            ids: From 0 to 255.

        Returns:
            The text.
        """
        return bytes(int(i) for i in ids).decode(errors="replace")


class BPETokenizer:
    """Byte-level BPE, as the tokenizers library trains and runs it.

    Args:
        backend: A ``tokenizers.Tokenizer``. ``train_bpe`` makes one from text, and
            ``BPETokenizer.load`` reads one from a file.

    Raises:
        ValueError: The vocabulary has more than 65,536 tokens.
    """

    def __init__(self, backend):
        size = backend.get_vocab_size()
        if size > MAX_VOCAB:
            raise ValueError(
                f"shards hold uint16, so a vocabulary has at most {MAX_VOCAB:,} "
                f"tokens, got {size:,}; train a smaller one"
            )
        self.backend = backend

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to vocab_size - 1 (count)."""
        return self.backend.get_vocab_size()

    @property
    def signature(self) -> str:
        """What its ids mean: a hash over the text of each."""
        meaning = sorted(self.backend.get_vocab().items())
        return f"BPE {hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:16]}"

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Encode texts, on all cores.

        Args:
            texts: Any strings that UTF-8 can hold.

        Returns:
            One uint16 array per text.
        """
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(e.ids, np.uint16) for e in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids; for what ``encode_batch`` made, the text itself.

        Args:
            ids: From 0 to vocab_size - 1.

        Returns:
            The text.
        """
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def save(self, path: str | os.PathLike) -> None:
        """Write the tokenizer as JSON, in the library's own format.

        Args:
            path: File to write; replaced whole, or not at all.
        """
        partial = Path(f"{os.fspath(path)}.partial")
        partial.write_text(self.backend.to_str(pretty=True), encoding="utf-8")
        os.replace(partial, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> BPETokenizer:
        """Read what ``save`` wrote, or any other tokenizer.json.

        Args:
            path: File to read.

        Returns:
            The tokenizer.

        Raises:
            ImportError: The tokenizers library is missing.
            FileNotFoundError: There is no such file.
            ValueError: The file is no tokenizer.
        """
        tokenizers = import_extra("tokenizers", "BPE")
        text = Path(path).read_bytes()
        try:
            return cls(tokenizers.Tokenizer.from_buffer(text))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{path} is no tokenizer.json: {error}") from None


def train_bpe(texts: Iterable[str], *, vocab_size: int = 32_768) -> BPETokenizer:
    """Train a byte-level BPE on a stream of texts.

    Args:
        texts: Strings, or pieces as ``stacklm.train.sources`` yields them; read once,
            so a stream will do. A few hundred MB are enough.
        vocab_size: Tokens to end with, the 256 bytes included (count). A text too
            short for so many merges ends with fewer.

    Returns:
        The tokenizer.

    Raises:
        ImportError: The tokenizers library is missing.
        ValueError: ``vocab_size`` is not between 256 and 65,536.

    Example:
        >>> bpe = train_bpe(["low lower lowest"] * 9, vocab_size=260)
        >>> bpe.vocab_size
        260
    """
    tokenizers = import_extra("tokenizers", "BPE")
    if not 256 <= vocab_size <= MAX_VOCAB:
        raise ValueError(
            f"vocab_size must lie between 256 (all bytes) and {MAX_VOCAB:,} (uint16), "
            f"got {vocab_size}"
        )
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    backend.pre_tokenizer = byte_level(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=byte_level.alphabet(),  # all bytes, so nothing is unknown
        show_progress=False,
    )
    strings = (t if isinstance(t, str) else t.text for t in texts)
    backend.train_from_iterator(strings, trainer)
    return BPETokenizer(backend)


def open_tokenizer(source: str | os.PathLike) -> ByteTokenizer | BPETokenizer:
    """The tokenizer of a corpus, to turn its ids into text or a prompt into ids.

    Args:
        source: As for ``open_tokens``: a folder that ``write_shards`` wrote, or
            "moby-dick".

    Returns:
        What encoded the corpus.

    Raises:
        FileNotFoundError: No folder with shards, or its copy of the tokenizer is gone.
        ImportError: The tokenizers library is missing.
        ValueError: The copy is damaged or another one, or the corpus was encoded by an
            object of the caller's own.

    Example:
        >>> open_tokenizer("moby-dick").decode([87, 104, 97, 108, 101])
        'Whale'
    """
    if source == "moby-dick":
        return ByteTokenizer()
    noted = open_shards(source, verify=False)[0].tokenizer
    if noted == ByteTokenizer.signature:
        return ByteTokenizer()
    path = Path(source) / TOKENIZER
    if not str(noted).startswith("BPE "):
        raise ValueError(
            f"{source} was encoded with {noted!r}, of which it holds no copy; make "
            f"that tokenizer as it was made then"
        )
    found = BPETokenizer.load(path)
    if found.signature != noted:
        raise ValueError(
            f"{path} is {found.signature!r}, but {source} was encoded with {noted!r}; "
            f"put the right file there"
        )
    return found


def signature_of(tokenizer) -> str:
    """What a tokenizer's ids mean, by its own account or else by its kind."""
    return getattr(tokenizer, "signature", type(tokenizer).__name__)


def check_signatures(**signatures: str | None) -> None:
    """Refuse corpora whose ids mean different things, which no size would show.

    Args:
        signatures: Of each corpus by its name in the message; None means not known.

    Raises:
        ValueError: Two are known and differ.
    """
    known = {name: each for name, each in signatures.items() if each is not None}
    if len(set(known.values())) > 1:
        told = ", ".join(f"{name} with {each!r}" for name, each in known.items())
        raise ValueError(
            f"one tokenizer must have encoded everything, got {told}; the same id "
            f"means different text there: write the shards again with one of the two"
        )


def import_extra(module: str, purpose: str):
    """Import a library that only some uses need.

    Args:
        module: Its name.
        purpose: What needs it, for the message.

    Returns:
        The module.

    Raises:
        ImportError: It is missing; names the command that installs it.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs the library {module.split('.')[0]} ({error}); "
            'install it with: pip install "stacklm[data]"'
        ) from None
