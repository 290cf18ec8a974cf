"""Mixtures: who comes when, at which weights, in which order, and what is refused."""

import itertools
import tracemalloc
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.train import Branch, Mixture, Tokens, open_tokens, pretrain
from stacklm.train.validation import validation_batches
from stacklm.train.writer import in_memory
from tests.train.runs import (
    CFG,
    MODEL,
    RUN,
    Interrupting,
    assert_same_end,
    untimed,
)

ALIKE = {"seq_len": 4, "seed": 7}


def text(letter, size):
    """A corpus of one letter, so that a row shows where it is from."""
    return Tokens([in_memory([letter * size])])


class Numbers:
    """Tokens without memory: row i holds the numbers from 1000 i on."""

    vocab_size = 2**16

    def __len__(self):
        return 2**40

    def windows(self, seq_len):
        return 2**30

    def batch(self, step, *, batch_size, seq_len, seed):
        assert batch_size == 1
        x = 1_000 * step + torch.arange(seq_len)[None]
        return x, x + 1, torch.zeros_like(x)


@pytest.fixture(scope="module")
def three():
    sizes = {"a": 101, "b": 47, "c": 31}
    return {name: text(name, size) for name, size in sizes.items()}


def letters(batch):
    return [chr(row[0]) for row in batch.x.tolist()]


weights = st.lists(st.integers(1, 1_000), min_size=2, max_size=5)


@settings(deadline=None, max_examples=30)
@given(weights=weights, seed=st.integers(0, 2**70), start=st.integers(0, 2**50))
def test_any_run_of_rows_has_the_weights_to_within_one_less_than_the_corpora(
    weights, seed, start
):
    names = [f"{i}" for i in range(len(weights))]
    mixed = Mixture(
        dict.fromkeys(names, Numbers()), dict(zip(names, weights, strict=True))
    )
    counts = Counter()
    for n in range(1, 65):
        counts[mixed.source(start + n - 1, seed=seed)[0]] += 1
        for name, weight in zip(names, weights, strict=True):
            ideal = Fraction(n * weight, sum(weights))
            assert abs(counts[name] - ideal) < len(names) - 1


@settings(deadline=None, max_examples=30)
@given(weights=weights, seed=st.integers(0, 2**70))
def test_each_corpus_counts_its_rows_from_zero_without_a_gap(weights, seed):
    names = [f"{i}" for i in range(len(weights))]
    mixed = Mixture(
        dict.fromkeys(names, Numbers()), dict(zip(names, weights, strict=True))
    )
    counts = Counter()
    for row in range(128):
        name, place = mixed.source(row, seed=seed)
        assert place == counts[name]
        counts[name] += 1


def test_far_into_a_run_nothing_is_rounded():
    mixed = Mixture({"a": Numbers(), "b": Numbers()}, {"a": 0.7, "b": 0.3})
    places = {"a": [], "b": []}
    start = 10**18  # floats are 128 apart here
    for row in range(start, start + 100):
        name, place = mixed.source(row, seed=3)
        places[name].append(place)
    assert [len(rows) for rows in places.values()] == [70, 30]
    for rows in places.values():
        assert rows == list(range(rows[0], rows[0] + len(rows)))
    assert abs(places["a"][0] - 7 * start // 10) <= 1


def test_rows_of_a_corpus_come_in_the_order_it_has_alone(three):
    mixed = Mixture(three, {"a": 5, "b": 2, "c": 1})
    rows = {name: [] for name in three}
    for step in range(20):
        batch = mixed.batch(step, batch_size=8, **ALIKE)
        for row in zip(*batch, strict=True):
            rows[chr(row[0][0])].append(row)
    assert [len(rows[name]) for name in three] == [100, 40, 20]
    for name, corpus in three.items():
        alone = corpus.batch(0, batch_size=len(rows[name]), **ALIKE)
        for one, other in zip(rows[name], zip(*alone, strict=True), strict=True):
            assert all(map(torch.equal, one, other))
    # 100 rows are four epochs of a's 25 windows: each came four times.
    assert three["a"].windows(4) == 25


def test_an_epoch_of_a_small_corpus_visits_each_window_once():
    book = {s: open_tokens("moby-dick", s) for s in ("train", "val")}
    small = Tokens(book["val"].shards, stop=65)
    mixed = Mixture({"large": book["train"], "small": small}, {"large": 1, "small": 1})
    seen = Counter()
    for step in range(4):
        for row, x in enumerate(mixed.batch(step, batch_size=8, **ALIKE).x):
            if mixed.source(8 * step + row, seed=7)[0] == "small":
                seen[bytes(x.tolist())] += 1
    assert len(seen) == small.windows(4) == 16
    assert set(seen.values()) == {1}


def test_micro_batches_are_the_step_cut_up(three):
    mixed = Mixture(three, {"a": 5, "b": 2, "c": 1})
    whole = mixed.batch(3, batch_size=8, **ALIKE)
    parts = [
        mixed.batch(3, batch_size=2, micro=micro, micros=4, **ALIKE)
        for micro in range(4)
    ]
    for one, several in zip(whole, zip(*parts, strict=True), strict=True):
        assert torch.equal(one, torch.cat(several))
        assert one.shape == (8, 4)
        assert one.dtype == torch.int64


def test_a_batch_is_a_function_of_its_arguments_and_the_seed_moves_the_mix(three):
    mixed = Mixture(three, {"a": 5, "b": 2, "c": 1})
    reordered = Mixture(dict(reversed(three.items())), {"c": 10, "b": 20, "a": 50})
    assert mixed.mix == reordered.mix == {"a": "5/8", "b": "1/4", "c": "1/8"}
    orders = set()
    for seed in range(8):
        place = {"batch_size": 8, "seq_len": 4, "seed": seed}
        steps = [mixed.batch(step, **place) for step in (0, 1, 2)]
        for step in (2, 0, 1):  # in another order, from another object
            again = reordered.batch(step, **place)
            assert all(map(torch.equal, steps[step], again))
        orders.add("".join(itertools.chain(*map(letters, steps))))
    assert len(orders) > 3


def test_decimals_mean_what_they_say(three):
    pair = {"a": three["a"], "b": three["b"]}
    mixed = Mixture(pair, {"a": 0.7, "b": np.float32(0.3)})
    assert mixed.mix == {"a": "7/10", "b": "3/10"}
    assert Mixture(pair, {"a": Fraction(1, 3), "b": 1e-3}).mix["b"] == "3/1003"
    assert len(mixed) == 148
    assert mixed.vocab_size == 256
    assert mixed.tokenizer == three["a"].tokenizer is not None
    unknown = Numbers()
    unknown.vocab_size = 256
    some = Mixture({"a": unknown, "b": three["b"]}, {"a": 1, "b": 1})
    assert some.tokenizer == three["b"].tokenizer


def test_memory_does_not_grow_with_the_corpora_or_the_step():
    mixed = Mixture({"a": Numbers(), "b": Numbers()}, {"a": 0.9, "b": 0.1})
    peaks = []
    for start in (0, 10**9, 10**15):
        tracemalloc.start()
        for step in range(start, start + 4):
            mixed.batch(step, batch_size=16, seq_len=64, seed=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 2**18  # the batch itself is 16 x 64 x 8 bytes, three times


def test_a_killed_run_on_a_mixture_ends_with_the_same_bits(data, val, tmp_path):
    mixed = Mixture({"train": data, "val": val}, {"train": 0.6, "val": 0.4})
    where = {"run_cfg": RUN, "device": "cpu"}
    straight = pretrain(MODEL, CFG, mixed, out=tmp_path / "straight", **where)

    class Stopped(Interrupting):
        mix, tokenizer = mixed.mix, mixed.tokenizer

    stopped = pretrain(MODEL, CFG, Stopped(mixed, 13), out=tmp_path / "cut", **where)
    assert stopped.interrupted
    resumed = pretrain(MODEL, CFG, mixed, out=tmp_path / "cut", **where)
    assert_same_end(tmp_path / "straight", tmp_path / "cut")
    assert untimed(resumed.records) == untimed(straight.records)


def test_a_run_does_not_go_on_with_other_weights(data, val, tmp_path):
    corpora = {"train": data, "val": val}
    short = replace(CFG, total_steps=6, decay_frac=0.0)
    where = {"out": tmp_path, "run_cfg": RUN, "device": "cpu"}
    pretrain(MODEL, short, Mixture(corpora, {"train": 6, "val": 4}), **where)
    for other in ({"train": 5, "val": 5}, {"train": 4, "val": 6}):
        with pytest.raises(ValueError, match=r"data: mix is .* was written with"):
            pretrain(MODEL, short, Mixture(corpora, other), **where)
    both = open_tokens("moby-dick", "all")  # as many tokens as the two
    with pytest.raises(ValueError, match="data: mix is None, but"):
        pretrain(MODEL, short, both, **where)


def test_a_branch_may_decay_on_a_mixture(data, val, straight, tmp_path):
    _, out = straight
    mixed = Mixture({"train": data, "val": val}, {"train": 0.5, "val": 0.5})
    branch = Branch(out / "step-00000018.safetensors", decay_steps=3)
    args = {"val": mixed, "run_cfg": RUN, "device": "cpu", "branch": branch}
    run = pretrain(MODEL, CFG, mixed, out=tmp_path, **args)
    assert run.step == 21
    assert run.validation[-1][0] == 21
    fixed = validation_batches(mixed, CFG, 2)
    again = validation_batches(mixed, CFG, 2)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(fixed, again, strict=True))


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        (
            {"a": 1, "b": 0},
            ValueError,
            r"weight of 'b' must be finite and above 0, got",
        ),
        ({"a": -0.5, "b": 1}, ValueError, r"weight of 'a' .* got -0.5; leave"),
        ({"a": float("nan"), "b": 1}, ValueError, r"weight of 'a' .* got nan"),
        ({"a": float("inf"), "b": 1}, ValueError, r"weight of 'a' .* got inf"),
        ({"a": "1", "b": 1}, TypeError, r"weight of 'a' must be a number, got '1'"),
        ({"a": True, "b": 1}, TypeError, r"weight of 'a' must be a number, got True"),
        ({"a": 1}, ValueError, r"name the corpora \['a', 'b'\], got \['a'\]"),
        ({"a": 1, "b": 1, "x": 1}, ValueError, r"got \['a', 'b', 'x'\]; give each"),
    ],
)
def test_weights_that_are_refused(three, weights, error, words):
    with pytest.raises(error, match=words):
        Mixture({"a": three["a"], "b": three["b"]}, weights)


def test_corpora_that_are_refused(three):
    with pytest.raises(ValueError, match=r"two corpora or more, got \['a'\]"):
        Mixture({"a": three["a"]}, {"a": 1})
    with pytest.raises(ValueError, match=r"sizes {'a': 256, 'n': 65536}; encode"):
        Mixture({"a": three["a"], "n": Numbers()}, {"a": 1, "n": 1})
    other = Numbers()
    other.vocab_size, other.tokenizer = 256, "other"
    with pytest.raises(ValueError, match=r"one tokenizer .* b with 'other'; the same"):
        Mixture({"a": three["a"], "b": other}, {"a": 1, "b": 1})
    mixed = Mixture({"a": three["a"], "z": text("z", 3)}, {"a": 1e6, "z": 1})
    with pytest.raises(
        ValueError, match=r"corpus 'z': a window needs .* lower seq_len"
    ):
        mixed.batch(0, batch_size=1, **ALIKE)  # not a million rows later


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"step": -1}, ValueError, "step must be at least 0, got -1"),
        ({"step": 1.0}, TypeError, "step must be an int, got 1.0"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seq_len": 0}, ValueError, "seq_len must be at least 1, got 0"),
        ({"micro": 2, "micros": 2}, ValueError, "micro must be below micros, got 2"),
    ],
)
def test_arguments_that_are_refused(three, change, error, words):
    mixed = Mixture(three, {"a": 5, "b": 2, "c": 1})
    place = {"step": 0, "batch_size": 2, **ALIKE, **change}
    with pytest.raises(error, match=words):
        mixed.batch(place.pop("step"), **place)
    with pytest.raises(ValueError, match="row must be at least 0"):
        mixed.source(-1, seed=0)
