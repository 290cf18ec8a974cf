"""What was recorded still says what the book claims, and the model explains it."""

import json

import pytest

from stacklm.bench import held_out, sharded
from stacklm.bench.cost_model import cpu_flops, work_of
from stacklm.bench.steps import OURS, PER_LEAF, TORCH


def recorded(root, tail):
    paths = sorted((root / "book/measured").glob(f"*-{tail}.json"))
    assert paths, f"nothing is recorded as *-{tail}.json"
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_the_model_predicts_the_recorded_steps(root, clock):
    for found in recorded(root, "cost-model"):
        judged = found["clocks"][clock]
        assert judged["worst_held_out"] <= held_out.ASKED
        # Calibrated again, by today's counting of the work.
        took = {(row["size"], row["ranks"]): row["seconds"] for row in judged["steps"]}
        works = {
            (size, ranks): work_of(held_out.SIZES[size], ranks, flops=cpu_flops)
            for size, ranks in took
        }
        known = [(r["size"], r["ranks"]) for r in judged["steps"] if not r["held_out"]]
        assert {ranks for _, ranks in known} == {2, 4}
        assert len({size for size, _ in known}) == 2
        again = held_out.judge(works, took, known, found["hardware"]["cores"])
        for then, now in zip(judged["steps"], again["steps"], strict=True):
            assert now["predicted"] == pytest.approx(then["predicted"], rel=1e-6)


def test_our_recorded_step_is_three_times_as_fast_as_leaf_by_leaf(root):
    for found in recorded(root, "4-ranks"):
        assert set(found["sizes"]) == set(sharded.SIZES)
        for size, row in found["sizes"].items():
            steps = row["steps"]
            assert steps[PER_LEAF]["of_ours"] >= sharded.ASKED
            pairs = zip(steps[PER_LEAF]["rounds"], steps[OURS]["rounds"], strict=True)
            assert all(leaf >= sharded.ASKED * ours for leaf, ours in pairs), size
            leaf = steps[PER_LEAF]["processor_seconds"]
            assert leaf >= sharded.ASKED * steps[OURS]["processor_seconds"]
            # Ours is told by its classes, the others by their matrices.
            matrices = row["matrices"]
            assert sum(steps[OURS]["collectives"].values()) == 7
            for name in (PER_LEAF, TORCH):
                count = sum(steps[name]["collectives"].values())
                assert 11 * matrices <= count <= 26 * matrices
