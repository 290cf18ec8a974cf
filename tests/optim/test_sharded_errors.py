"""What ranks do when they differ: an error on all of them, and never a hang."""

import time

import pytest

from stacklm.bench.ranks import RankError, Ranks
from tests.optim import sharded_errors_cases as cases


@pytest.fixture(scope="module")
def four():
    with Ranks(4, timeout=30) as pool:
        yield pool


def test_a_gradient_missing_on_some_ranks_is_named_on_every_rank(four):
    for kind in ("fsdp", "plain"):
        messages = four.run(cases.missing_gradient, kind)
        assert len(set(messages)) == 1
        assert "parameter 1 with a gradient" in messages[0]
        assert "on ranks 0, 1, 3" in messages[0]
        assert "parameter 1 with no gradient" in messages[0]
        assert "on rank 2" in messages[0]
        assert "torch.zeros_like(p)" in messages[0]


def test_shapes_options_and_counts_that_differ_are_named_on_every_rank(four):
    for case, words in {
        "shape": ["(16, 16)", "(16, 24)", "rank 3"],
        "lr": ["lr 0.02", "lr 0.01", "rank 1"],
        "ns_steps": ["ns_steps 5", "ns_steps 6", "rank 1"],
        "count": ["parameter 3", "nothing on rank 2"],
    }.items():
        for message in four.run(cases.differ, case):
            assert all(word in message for word in words), message


def test_an_error_on_one_rank_reaches_the_others(four):
    messages = four.run(cases.sparse_on_one)
    assert "dense gradients" in messages[1]
    assert messages[1].startswith("TypeError")
    for rank in (0, 2, 3):
        assert messages[rank].startswith("ValueError")
        assert "dense gradients" in messages[rank]
        assert "rank 1" in messages[rank]


def test_nothing_changed_and_the_next_step_goes_on(four):
    assert all(four.run(cases.goes_on_after_an_error))


def test_placements_and_meshes_that_muon_cannot_use_are_refused(four):
    for errors in four.run(cases.refused):
        assert "Shard(dim=1)" in errors["columns"]
        assert "fully_shard" in errors["columns"]
        assert "Partial" in errors["partial"]
        assert "at most" in errors["twice"]
        assert "before that of shards" in errors["order"]
        assert "ascend" in errors["descending"]
        assert "DeviceMesh, got int" in errors["mesh"]
        assert "laid out as" in errors["gradient"]


def test_a_rank_that_never_steps_is_an_error_within_the_timeout():
    with Ranks(3, timeout=3) as pool:
        begin = time.monotonic()
        messages = pool.run(cases.one_stays_away)
        assert time.monotonic() - begin < 30
    for message in (messages[0], messages[2]):
        assert "one did not come" in message
        assert "start all of them again" in message


def test_a_rank_that_is_killed_is_an_error_on_the_others():
    with Ranks(3, timeout=20) as pool:
        begin = time.monotonic()
        with pytest.raises(RankError, match="rank 1 died"):
            pool.run(cases.one_is_killed)
        assert time.monotonic() - begin < 30


def test_ranks_may_be_in_other_numbers_of_groups():
    """A group that is made by its members alone waits in vain there."""
    with Ranks(3, timeout=20) as pool:
        assert pool.run(cases.step_beside_other_groups) == [""] * 3
