"""What the ranks of chapter 13 run, on two of them; and the facts of exercise 10."""

import os

import pytest
import torch
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from stacklm.bench import Ranks, block_shapes, step_traffic
from stacklm.notebook import sharding, spans
from stacklm.notebook.checks import CHECKS, ex10

SHAPES = [(16, 16), (5, 12), (12, 5), (3, 8)]


@pytest.fixture(scope="module")
def two():
    with Ranks(2) as ranks:
        yield ranks


def gap(some, others):
    return max(float((some[name] - others[name]).abs().max()) for name in others)


def test_one_process_and_two_ranks_take_the_same_steps(two):
    alone = sharding.train(SHAPES, 3)
    start = sharding.train(SHAPES, 0)
    assert gap(start, alone) > 0.01  # they do step
    assert len(alone) == 2 * len(SHAPES)
    for replicas in (1, 2):
        for end in two.run(sharding.train, SHAPES, 3, replicas):
            assert gap(end, alone) <= 1e-6


def test_gradients_differ_from_step_to_step_and_not_from_rank_to_rank():
    _, params = sharding.build(SHAPES)
    sharding.give_gradients(params, 0)
    first = [p.grad.clone() for p in params.values()]
    sharding.give_gradients(params, 1)
    assert not any(map(torch.equal, first, [p.grad for p in params.values()]))
    sharding.give_gradients(params, 0)
    assert all(map(torch.equal, first, [p.grad for p in params.values()]))


def test_a_checkpoint_goes_on_with_two_ranks_and_with_one(two, tmp_path):
    folder = str(tmp_path)
    two.run(sharding.save_after, folder, SHAPES, 2)
    alone = sharding.train(SHAPES, 5)
    ends = [*two.run(sharding.go_on, folder, SHAPES, range(2, 5))]
    ends.append(sharding.go_on(folder, SHAPES, range(2, 5)))
    for end in ends:
        assert gap(end, alone) <= 1e-6


def test_rows_of_each_rank_are_enough_to_go_on(two):
    files = two.run(sharding.go_on_from_rows, None, SHAPES, range(2))
    assert [len(file["matrices.1"]) for file in files] == [3, 2]
    assert [len(file["matrices.3.momentum"]) for file in files] == [2, 1]
    ends = two.run(sharding.go_on_from_rows, files, SHAPES, range(2, 5))
    alone = sharding.train(SHAPES, 5)
    for name, whole in alone.items():
        rows = torch.cat([end[name] for end in ends])
        assert (rows - whole).abs().max() <= 1e-6


def test_a_missing_gradient_is_told_to_all_and_changes_nothing(two):
    answers = two.run(sharding.step_without, SHAPES, "matrices.1", rank=1)
    assert all(untouched for _, untouched in answers)
    for text, _ in answers:
        assert "matrices.1 with no gradient" in text
        assert "on rank 1" in text
    (text, untouched), *_ = two.run(sharding.step_without, SHAPES, "matrices.1", rank=7)
    assert (text, untouched) == ("no error", False)  # nobody lacked it


def test_options_reach_muon_and_are_counted_over_replicas(two):
    seen = two.run(sharding.traffic, SHAPES, 2, ns_steps=2)
    assert [each.counts for each in seen] == 2 * [{"all_reduce": 1, "all_to_all": 3}]
    with pytest.raises(TypeError, match="no_option"):
        sharding.build(SHAPES, no_option=1)


def test_replicas_that_clip_by_their_own_maximum_drift_apart(two):
    for together in (False, True):
        (_, one), (_, other) = two.run(sharding.clip, 100.0, together)
        assert torch.equal(one, other) == together
    tops, weights = zip(*two.run(sharding.clip, 1e6, True), strict=True)
    assert all(100 < top < 1e6 for top in tops)
    assert torch.equal(*weights)  # no clip, no difference


def test_spans_of_a_step_are_its_exchanges_and_its_products(two):
    for name, exchanges in {"stacklm": 3, "per leaf": 16}.items():
        products = []
        for seen in two.run(spans.watch_step, name, [(16, 24)]):
            kinds = [span.kind for span in seen]
            assert kinds.count("exchange") == exchanges
            assert all(0 <= span.begin <= span.end for span in seen)
            begins = [span.begin for span in seen]
            assert begins == sorted(begins)
            products.append(kinds.count("product"))
        # Three products in each of five steps: by the one owner, or by both ranks.
        assert sorted(products) == ([0, 15] if name == "stacklm" else [15, 15])


def test_a_profiled_step_writes_nothing_to_stderr(capfd):
    """Where ranks inherit a notebook's stderr, it would land on the page."""
    store = FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=2)
    try:
        assert spans.watch_step("per leaf", [(16, 24)])
    finally:
        torch.distributed.destroy_process_group()
    os.write(2, b"seen")
    assert capfd.readouterr().err == "seen"


def test_large_matrices_are_planned_otherwise_and_nothing_is_said_about_it(capfd):
    """The counts that chapter 13 and exercise 10 warn about."""
    store = FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=4)
    try:
        seen = [
            sharding.unplanned("torch.optim.Muon", [shape]).collectives
            for shape in [(64, 176), (512, 1408)]
        ]
    finally:
        torch.distributed.destroy_process_group()
    assert seen == [16, 26]
    assert capfd.readouterr().err == ""


def test_pretended_ranks_count_what_real_ones_do(two):
    """Exercise 10 counts with a process group that has no other ranks."""
    for shape in [(8, 16), (16, 8)]:
        seen = two.run(step_traffic, "torch.optim.Muon", [shape])[0]
        assert ex10.count_alone(*shape, 5) == seen.collectives
    assert not torch.distributed.is_initialized()


def test_exercise_10_is_about_stack_100m_at_an_eighth_of_its_width():
    narrow = [(m // 8, n // 8) for m, n in block_shapes()] * 30
    assert narrow == ex10.NARROW
    assert CHECKS["10b"].expected(narrow, 5) == 150 * 16 + 60 * 11 == 3060
    assert CHECKS["10c"].expected(narrow, 1, 4) == 6
