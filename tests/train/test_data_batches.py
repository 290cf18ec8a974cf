"""Batches: their order, what an epoch covers, targets, documents, and the split."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.config import toy_config
from stacklm.model import Stack100M
from stacklm.train import Tokens, moby_dick, open_tokens, write_shards
from stacklm.train.data import _cut
from stacklm.train.writer import in_memory

SHAPE = {"batch_size": 4, "seq_len": 16, "seed": 0}


@pytest.fixture(scope="module")
def book():
    return open_tokens("moby-dick")


class Numbers:
    """A tokenizer whose text is a list of numbers, so that tests can see positions."""

    vocab_size = 2**16

    def encode_batch(self, texts):
        return [np.array(text.split(), int) for text in texts]


def counting(size, *documents):
    """Tokens 0, 1, …, size - 1, with documents of the given lengths first."""
    borders = [0, *itertools.accumulate(documents), size]
    texts = [" ".join(map(str, range(a, b))) for a, b in itertools.pairwise(borders)]
    return in_memory([t for t in texts if t], Numbers())


def epoch(tokens, seq_len, seed, number=0):
    """All windows of one epoch, (windows, T), from single rows."""
    n = tokens.windows(seq_len)
    steps = range(number * n, (number + 1) * n)
    rows = [tokens.batch(i, batch_size=1, seq_len=seq_len, seed=seed) for i in steps]
    columns = zip(*rows, strict=True)
    return [np.concatenate([part.numpy() for part in parts]) for parts in columns]


def test_a_batch_is_what_the_model_takes(book):
    batch = book.batch(0, **SHAPE)
    for part in batch:
        assert (part.dtype, tuple(part.shape)) == (torch.int64, (4, 16))
        assert part.is_contiguous()
    _, loss = Stack100M(toy_config())(*batch)
    assert abs(loss.item() - math.log(256)) < 0.5


def test_rows_are_the_text_and_targets_the_characters_after(book):
    text = moby_dick().encode()
    batch = book.batch(7, **SHAPE)
    for row, after in zip(batch.x, batch.targets, strict=True):
        window = bytes(row.tolist()) + bytes(after[-1:].tolist())
        at = text.find(window)
        assert at >= 0
        assert at % 16 == 0  # windows lie end to end
        assert bytes(after.tolist()) == text[at + 1 : at + 17]


def test_the_order_is_a_pure_function_of_seed_step_and_micro(book):
    def same(a, b):
        return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

    first = [book.batch(i, **SHAPE) for i in range(5)]
    again = [open_tokens("moby-dick").batch(i, **SHAPE) for i in reversed(range(5))]
    assert all(same(a, b) for a, b in zip(first, reversed(again), strict=True))
    others = [{"seed": 1}, {"micro": 1, "micros": 2}]
    for change in others:
        assert not same(first[3], book.batch(3, **{**SHAPE, **change}))
    assert len({tuple(batch.x.flatten().tolist()) for batch in first}) == 5


def test_the_order_does_not_change_between_releases():
    tokens = Tokens([counting(101)])  # the order of 10 windows in test_data_shuffle.py
    rows = [tokens.batch(i, batch_size=5, seq_len=10, seed=3).x[:, 0] for i in range(2)]
    assert torch.cat(rows).tolist() == [10, 90, 70, 30, 50, 60, 20, 80, 0, 40]


@pytest.mark.parametrize("size", [17, 18, 33, 100, 257])
@pytest.mark.parametrize("seq_len", [1, 7, 16])
def test_an_epoch_predicts_every_token_and_almost_none_twice(size, seq_len):
    tokens = Tokens([counting(size)])
    x, targets, seq_ids = epoch(tokens, seq_len, seed=5)
    assert (targets == x + 1).all()
    assert (seq_ids == 0).all()
    counts = np.bincount(targets.ravel(), minlength=size)
    assert counts[0] == 0  # nothing comes before the first token
    assert (counts[1:] >= 1).all()
    assert counts.sum() - (size - 1) < seq_len  # the last window, moved back
    assert counts.max() <= 2


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (40, 100), (13, 77)])
def test_an_epoch_stays_inside_its_stretch(start, stop):
    _, targets, _ = epoch(Tokens([counting(100)], start, stop), 16, seed=5)
    assert set(targets.ravel().tolist()) == set(range(start + 1, stop))


def test_each_epoch_has_an_order_of_its_own_and_so_has_each_seed():
    tokens = Tokens([counting(1_001)])
    orders = [
        tuple(epoch(tokens, 10, seed, number)[0][:, 0].tolist())
        for seed in (0, 1)
        for number in (0, 1, 2)
    ]
    assert len(set(orders)) == 6
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(0, 1_000, 10))}


def test_a_batch_may_cross_from_one_epoch_to_the_next():
    tokens = Tokens([counting(31)])  # three windows of 10
    rows = tokens.batch(0, batch_size=9, seq_len=10, seed=0).x[:, 0].view(3, 3)
    assert [sorted(row) for row in rows.tolist()] == [[0, 10, 20]] * 3


@pytest.mark.parametrize("micros", [2, 3, 6])
def test_micro_batches_are_parts_of_the_large_batch(book, micros):
    large = book.batch(11, batch_size=12, seq_len=16, seed=2)
    shape = {"batch_size": 12 // micros, "seq_len": 16, "seed": 2}
    small = [book.batch(11, **shape, micro=i, micros=micros) for i in range(micros)]
    for whole, parts in zip(large, zip(*small, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(parts))


def test_steps_far_away_cost_nothing_to_reach(book):
    far = book.batch(10**12, **SHAPE)
    assert far.x.shape == (4, 16)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(0, 2**64),
)
def test_no_target_crosses_a_border_of_documents(lengths, seq_len, seed):
    size = sum(lengths)
    document = np.repeat(np.arange(len(lengths)), lengths)
    tokens = Tokens([counting(size, *lengths[:-1])])
    if size < seq_len + 1:
        with pytest.raises(ValueError, match="a window needs seq_len"):
            tokens.windows(seq_len)
        return
    batch = tokens.batch(1, batch_size=3, seq_len=seq_len, seed=seed)
    x, targets, seq_ids = (part.numpy() for part in batch)
    assert (seq_ids == document[x]).all()
    ends = document[x] != document[x + 1]
    assert (targets == np.where(ends, -100, x + 1)).all()


def test_the_split_of_the_book_is_its_last_tenth():
    parts = [open_tokens("moby-dick", split) for split in ("train", "val", "all")]
    train, val, both = parts
    assert (train.start, train.stop) == (0, val.start)
    assert (val.stop, len(both)) == (1_204_997, 1_204_997)
    assert len(val) == 120_500
    text = moby_dick().encode()
    assert bytes(val.read(val.start, 50)[0].tolist()) == text[-120_500:][:50]
    quarter = open_tokens("moby-dick", "val", val_frac=0.25)
    assert len(quarter) == 301_249


def test_the_split_falls_between_documents_where_one_ends_nearby():
    assert _cut([counting(100, 83, 10)], 0.2) == 83
    assert _cut([counting(100, 75, 3, 7)], 0.2) == 78  # 2 away, before 85
    assert _cut([counting(100, 80)], 0.2) == 80
    assert _cut([counting(100, 70)], 0.2) == 70  # just half as much again
    assert _cut([counting(100, 69)], 0.2) == 80  # too far: inside the document
    assert _cut([counting(100)], 0.2) == 80
    assert _cut([counting(100)], 0.8) == 20  # not at 0, where all documents begin


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.integers(1, 40),
    st.floats(0.05, 0.9),
)
def test_split_and_batches_do_not_depend_on_the_shards(
    tmp_path_factory, lengths, shard_tokens, val_frac
):
    size = sum(lengths)
    folder = tmp_path_factory.mktemp("shards")
    borders = [0, *itertools.accumulate(lengths)]
    texts = [" ".join(map(str, range(a, b))) for a, b in itertools.pairwise(borders)]
    write_shards(texts, folder, tokenizer=Numbers(), shard_tokens=shard_tokens)
    whole = counting(size, *lengths[:-1])
    cut = _cut([whole], val_frac)
    for split, expected in (("train", (0, cut)), ("val", (cut, size))):
        if expected[0] == expected[1]:
            with pytest.raises(ValueError, match=f"the {split} part of"):
                open_tokens(folder, split, val_frac=val_frac)
            continue
        tokens = open_tokens(folder, split, val_frac=val_frac)
        assert (tokens.start, tokens.stop) == expected
        if len(tokens) > 3:
            ours = tokens.batch(2, batch_size=5, seq_len=3, seed=9)
            one = Tokens([whole], *expected).batch(2, batch_size=5, seq_len=3, seed=9)
            for a, b in zip(ours, one, strict=True):
                assert torch.equal(a, b)


BAD_BATCH = [
    ({"step": -1}, ValueError, "step must be at least 0, got -1"),
    ({"step": 1.0}, TypeError, r"step must be an int, got 1\.0"),
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
    ({"batch_size": True}, TypeError, "batch_size must be an int, got True"),
    ({"seq_len": 0}, ValueError, "seq_len must be at least 1, got 0"),
    ({"seq_len": 1_084_497}, ValueError, "1,084,498 tokens, and there are 1,084,497"),
    ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ({"seed": None}, TypeError, "seed must be an int, got None"),
    ({"micro": -1}, ValueError, "micro must be at least 0, got -1"),
    ({"micro": 1}, ValueError, "got 1 and 1; pass micros=grad_accum_steps"),
    ({"micros": 0}, ValueError, "micros must be at least 1, got 0"),
]


@pytest.mark.parametrize(("change", "kind", "message"), BAD_BATCH, ids=str)
def test_arguments_that_make_no_batch(book, change, kind, message):
    with pytest.raises(kind, match=message):
        book.batch(**{"step": 0, **SHAPE, **change})


BAD_OPEN = [
    ({"split": "test"}, ValueError, "one of train, val, all, got 'test'"),
    ({"val_frac": 1.0}, ValueError, r"val_frac must lie in \[0, 1\), got 1\.0"),
    ({"val_frac": -0.1}, ValueError, r"val_frac must lie in \[0, 1\), got -0\.1"),
    ({"val_frac": math.nan}, ValueError, "val_frac must lie in"),
    ({"val_frac": "0.1"}, TypeError, "val_frac must be a number, got '0.1'"),
    ({"split": "val", "val_frac": 0.0}, ValueError, "the val part of moby-dick is"),
    ({"val_frac": 0.9999999}, ValueError, "the train part of moby-dick is empty"),
]


@pytest.mark.parametrize(("change", "kind", "message"), BAD_OPEN, ids=str)
def test_arguments_that_open_nothing(change, kind, message):
    with pytest.raises(kind, match=message):
        open_tokens("moby-dick", **change)


def test_val_frac_0_gives_all_to_training():
    assert len(open_tokens("moby-dick", val_frac=0)) == 1_204_997


def test_reading_stays_inside_the_corpus(book):
    for begin, count in ((-1, 2), (1_204_996, 2), (0, -1)):
        with pytest.raises(ValueError, match="positions run from 0 to 1,204,997"):
            book.read(begin, count)


def test_tokens_are_a_stretch_of_one_vocabulary():
    shard = counting(10)
    for start, stop in ((5, 5), (-1, 5), (0, 11)):
        with pytest.raises(ValueError, match="a stretch must hold tokens"):
            Tokens([shard], start, stop)
    with pytest.raises(ValueError, match="must share one vocabulary"):
        Tokens([shard, in_memory(["abc"])])
