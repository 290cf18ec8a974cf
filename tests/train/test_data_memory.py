"""Memory does not grow with the corpus; and the examples in the docstrings run."""

import doctest
import importlib
import subprocess
import sys
import tracemalloc

import pytest

from stacklm.train import json_lines, open_tokens, text_files, write_shards

MODULES = ("data", "mix", "shards", "shuffle", "sources", "tokenizer", "writer")
LINE = "It is not down on any map; true places never are. " * 3 + "\n"


def make(path, kind, megabytes):
    """A file of text, or of 2 kB documents as JSON Lines."""
    with open(path, "w") as file:
        for _ in range(megabytes):
            if kind == "text":
                file.write(LINE * (2**20 // len(LINE)))
            else:
                document = LINE.strip() * 13
                line = f'{{"text": "{document}"}}\n'
                file.write(line * (2**20 // len(line)))


def peaks(tmp_path, kind, megabytes):
    """Peak bytes of writing a corpus and of opening and reading it."""
    path, folder = tmp_path / f"{megabytes}.{kind}", tmp_path / f"{kind}-{megabytes}"
    make(path, kind, megabytes)
    source = text_files(path) if kind == "text" else json_lines(path)
    tracemalloc.start()
    try:
        write_shards(source, folder, shard_tokens=2**21)
        writing = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        tokens = open_tokens(folder)
        for step in range(4):
            tokens.batch(step, batch_size=16, seq_len=1_024, seed=0)
        reading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(tokens) > 0.8 * megabytes * 2**20
    return writing, reading


@pytest.mark.parametrize("kind", ["text", "jsonl"])
def test_eight_times_the_corpus_takes_the_same_memory(tmp_path, kind):
    # 128 KiB for what is kept per shard: a line of the index, a map, a counter.
    small, large = peaks(tmp_path, kind, 4), peaks(tmp_path, kind, 32)
    for one, eight in zip(small, large, strict=True):
        assert eight < one + 2**17
        assert one < 32 * 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_reading_all_of_it_keeps_nothing_resident(tmp_path):
    # A memory map would pass the test above and fail this one.
    make(tmp_path / "text", "text", 32)
    write_shards(text_files(tmp_path / "text"), tmp_path / "shards")
    code = (
        "import sys\n"
        "from stacklm.train import open_tokens\n"
        "def resident():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return [int(x.split()[1]) for x in lines if x.startswith('VmRSS')][0]\n"
        "tokens = open_tokens(sys.argv[1], 'all')\n"
        "before = resident()\n"
        "for begin in range(0, len(tokens) - 2**16, 2**16):\n"
        "    tokens.read(begin, 2**16)\n"
        "print(len(tokens), resident() - before)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "shards"],
        capture_output=True,
        text=True,
        check=True,
    )
    size, grown = map(int, run.stdout.split())
    assert size > 31 * 2**20
    assert grown < 16 * 2**10  # kB; the ids are 64 MB


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_docstrings(name):
    module = importlib.import_module(f"stacklm.train.{name}")
    assert doctest.testmod(module).failed == 0
