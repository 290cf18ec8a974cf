"""The benchmark of sharded steps times all by turns and says what it found."""

import json

import pytest
import torch

from stacklm.bench import RankError, Traffic, sharded
from stacklm.bench.clock import Times, told_by_turns
from stacklm.bench.steps import OURS, PER_LEAF, TORCH
from stacklm.optim import newton_schulz_flops

FEW = ((16, 16), (16, 32), (32, 16), (16, 16))


def test_candidates_that_tell_their_time_take_turns():
    told, ran = iter(range(1, 100)), []

    def candidate(name):
        ran.append(name)
        return float(next(told))

    candidates = {name: lambda name=name: candidate(name) for name in "ab"}
    times = told_by_turns(candidates, rounds=2)
    assert ran == ["a", "b"] * 2
    assert times == {"a": Times((1.0, 3.0)), "b": Times((2.0, 4.0))}
    assert times["b"].fastest == 2.0
    with pytest.raises(ValueError, match="at least 1, got 0"):
        told_by_turns(candidates, rounds=0)


@pytest.fixture
def small(monkeypatch, four, one):
    """The command on four small matrices, by the ranks that are there already."""
    pools = {4: four, 1: one}
    monkeypatch.setattr(sharded, "Ranks", lambda count, timeout: Lent(pools[count]))
    monkeypatch.setattr(sharded, "SIZES", {"few": FEW})


class Lent:
    def __init__(self, pool):
        self.pool = pool

    def __enter__(self):
        return self.pool

    def __exit__(self, *_):
        pass


def test_the_command_records_every_candidate(small, tmp_path, capsys):
    status = sharded.main(["--rounds", "3", "--sizes", "few", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert path.name.endswith("-4-ranks.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["ranks"], found["hardware"]["threads"]) == (4, 1)
    assert set(found["load"]) == {"before", "after"}
    assert found["versions"]["torch"] == torch.__version__
    row = found["sizes"]["few"]
    assert (row["matrices"], row["entries"]) == (4, 1536)
    assert row["flop"] == sum(newton_schulz_flops(*shape) for shape in FEW)
    steps = row["steps"]
    assert set(steps) >= {OURS, PER_LEAF, TORCH, "one process, 1 thread"}
    for step in steps.values():
        assert len(step["rounds"]) == 3
        assert 0 < step["fastest"] <= step["seconds"]
        assert step["processor_seconds"] > 0
    assert steps[OURS]["collectives"] == {"all_reduce": 1, "all_to_all": 4}
    for name in (PER_LEAF, TORCH):  # three wide or square, one tall
        assert sum(steps[name]["collectives"].values()) == 3 * 16 + 11
    assert steps[OURS]["of_ours"] == 1
    ratio = steps[PER_LEAF]["of_ours"]
    assert f"few: leaf by leaf takes {ratio:.1f} times our step" in printed
    assert status == (0 if ratio >= sharded.ASKED else 1)


def test_ranks_free_what_they_prepared(four):
    four.run(sharded.make_ready, OURS, FEW)
    assert min(min(both) for both in four.run(sharded.timed_step, OURS, FEW)) > 0
    four.run(sharded.forget_steps)
    with pytest.raises(RankError, match="KeyError"):
        four.run(sharded.timed_step, OURS, FEW)


def test_our_step_is_at_least_three_times_as_fast_as_leaf_by_leaf(four, one):
    # 172 collectives against 5: on a busy machine too, the ratio is far from 3.
    row = sharded.measure(four, one, ((64, 64), (64, 160), (160, 64)) * 4, rounds=3)
    assert row["steps"][PER_LEAF]["of_ours"] > sharded.ASKED


class Pretended:
    """Two ranks of which the second is the slower."""

    def run(self, function, *args, **kwargs):
        if function is sharded.timed_step:
            return [(1.0, 0.5), (3.0, 0.25)]
        if function is sharded.step_traffic:
            return [Traffic({"all_to_all": 2}, {"all_to_all": n}, {}) for n in (6, 8)]
        return None


def test_a_step_lasts_until_the_slowest_rank_is_done():
    pool = Pretended()
    found = sharded.measure(pool, pool, ((4, 4), (4, 8)), rounds=3)
    assert (found["matrices"], found["entries"]) == (2, 48)
    ours = found["steps"][OURS]
    assert (ours["seconds"], ours["of_ours"], ours["processor_seconds"]) == (3, 1, 0.75)
    assert (ours["collectives"], ours["bytes_sent_per_rank"]) == ({"all_to_all": 2}, 7)
