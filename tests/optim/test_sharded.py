"""Muon over 1 to 8 ranks, beside one process: equal whatever the layout."""

import math

import pytest
import torch

from stacklm.bench import Ranks
from tests.optim import sharded_cases as cases

SHAPES = cases.SHAPES
STACKS = [(6, 16, 24), (3, 24, 16)]


# (2, 4): two replicas of four shards.
FORMS = [(1,), (2,), (3,), (4,), (8,), (2, 2), (2, 4), (4, 2), (1, 3), (3, 1)]


@pytest.fixture(scope="module")
def pool():
    """A function: pool(n) has n ranks, started when first asked for."""
    pools = {}

    def of(count):
        if count not in pools:
            pools[count] = Ranks(count, timeout=30)
        return pools[count]

    yield of
    for each in pools.values():
        each.close()


@pytest.fixture(scope="module")
def four(pool):
    return pool(4)


def worst(results):
    """The largest gap on any rank; each must have compared something."""
    return max(gap for result in results for gap in result.values())


@pytest.mark.parametrize("kind", ["fsdp", "copies", "plain"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_ten_steps_equal_one_process_on_any_mesh(pool, form, kind):
    """Rows that do not divide, fewer rows and fewer matrices than ranks included."""
    ranks = pool(math.prod(form))
    assert worst(ranks.run(cases.compare, form, SHAPES, kind)) <= 1e-6


@pytest.mark.parametrize("kind", ["fsdp", "plain"])
@pytest.mark.parametrize("some", [[1, 3], [[1], [3]]], ids=str)
def test_some_of_the_ranks_step_and_wait_for_no_others(some, kind):
    with Ranks(4, timeout=20) as own:  # of its own: groups of some ranks stay
        found = own.run(cases.compare_on_some, some, kind)
    assert found[0] == found[2] == {}
    assert worst([found[1], found[3]]) <= 1e-6


@pytest.mark.parametrize(
    "case",
    [
        {"batched": False},
        {"batched": True, "nesterov": False},
        {"missing": (1, 3, 4)},  # None on all ranks: left alone on all
        # One matrix for four ranks.
        {"missing": tuple(range(1, len(SHAPES))), "ns_dtype": torch.float64},
        {"dtype": torch.bfloat16},
        {"dtype": torch.float64},
        {"ns_method": "gram"},
    ],
    ids=str,
)
def test_options_mean_the_same_over_ranks(four, case):
    for form in [(4,), (2, 2)]:
        assert worst(four.run(cases.compare, form, SHAPES, **case)) <= 1e-6


def test_a_group_may_mix_layouts_and_dtypes(four):
    assert max(four.run(cases.compare_mixed)) <= 1e-6


def test_iterating_in_bf16_differs_by_its_rounding_alone(four):
    """How bf16 products round depends on the size of the stack that they are in.

    Ten steps of 0.02 * 0.2 * sqrt(40), entries of at most one half, 8 bits each.
    """
    tolerance = 10 * 0.02 * 0.2 * 40**0.5 * 0.5 * 2**-8
    for form in [(4,), (2, 2)]:
        gaps = four.run(cases.compare, form, SHAPES, ns_dtype=torch.bfloat16)
        assert worst(gaps) <= tolerance
        assert all(gap["momentum"] == 0 for gap in gaps)


@pytest.mark.parametrize("kind", ["fsdp", "plain"])
def test_declared_stacks_are_dealt_by_whole_matrices(four, kind):
    """Six matrices over four ranks are 2, 2, 2, 0."""
    for form in [(4,), (2, 2)]:
        assert worst(four.run(cases.compare, form, STACKS, kind)) <= 1e-6


def test_parameters_of_fully_shard_in_a_training_loop_equal_one_process(four):
    gaps = four.run(cases.train_tiny_model)
    assert worst(gaps) <= 1e-6


def test_a_state_passes_between_layouts(four):
    """Whole, cut by rows, on a two-dimensional mesh and back: the same momentum."""
    assert all(four.run(cases.pass_state_around))


def test_one_exchange_in_and_one_out_whatever_the_number_of_matrices(four):
    """Counted by the dispatcher; point-to-point calls, which it misses, by patching."""
    for many in (1, 5):
        shapes = [(16, 16), (8, 24), (24, 8), (18, 40)] * many  # three classes
        counts = four.run(cases.count, (4,), "fsdp", shapes, 3)
        assert counts == [{"alltoall_base_": 2 * 3 * 3, "allreduce_": 3}] * 4
        counts = four.run(cases.count, (2, 2), "fsdp", shapes, 3)
        assert counts == [{"alltoall_base_": 3 * 3 * 3, "allreduce_": 3}] * 4
        counts = four.run(cases.count, (4,), "plain", shapes, 3)
        assert counts == [{"alltoall_base_": 1 * 3 * 3, "allreduce_": 3}] * 4


@pytest.mark.parametrize("form", [(4,), (2, 2)])
@pytest.mark.parametrize(
    ("ns_dtype", "back"), [(None, 4), (torch.bfloat16, 2), (torch.float64, 4)]
)
def test_bytes_are_those_that_whole_matrices_need(four, form, ns_dtype, back):
    """An owner lacks (S-1)/S of its matrix, and replicas lack what others made.

    Results in half precision are sent in half precision; fp32 momentum never is.
    """
    shapes = [(64, 64)] * 5 + [(18, 64), (64, 18), (6, 64)]
    R, S = (1, 4) if form == (4,) else form
    least = 0
    for m, n in shapes:
        kept = math.ceil(m / S)  # the largest piece stays where it is
        least += n * ((4 + back) * (m - kept) + back * (R - 1) * m)
    sent = four.run(cases.bytes_sent, form, shapes, ns_dtype)
    assert least <= sum(sent) <= 1.05 * least


def test_what_is_sent_as_half_arrives_in_the_dtype_of_the_pieces(four):
    assert four.run(cases.sent_as_half) == [(True, {torch.float32})] * 4


def test_a_state_dict_says_nothing_of_ranks(four):
    """State per parameter is momentum alone, and options do not name a mesh."""
    assert four.run(cases.state_keys) == [({"momentum_buffer"}, False)] * 4
