"""The cost model counts what a step does, finds rates it was not told, and predicts."""

import json
import random

import pytest

from stacklm.bench import block_shapes, held_out, least_bytes, step_traffic
from stacklm.bench.cost_model import (
    AT_HOME,
    AT_OWNER,
    Machine,
    Work,
    calibrate,
    cpu_flops,
    predict,
    work_of,
)
from stacklm.config import LADDER
from stacklm.optim import newton_schulz_flops

SMALL = [(m // 8, n // 8) for m, n in block_shapes()] * 3
LARGE = block_shapes(LADDER["S2"]) * 4
TRUE = Machine(1e-11, 4e-9, 1e-4, 1e-10, cores=2)


@pytest.mark.parametrize("replicas", [1, 2])
def test_bytes_and_messages_are_those_that_ranks_send(four, replicas):
    shapes = [*SMALL, (50, 30), (3, 8), (30, 50)]
    found = four.run(step_traffic, "stacklm", shapes, replicas)
    work = work_of(shapes, 4 // replicas, replicas)
    _, wire, messages, _ = work.total
    assert wire == sum(t.sent["all_to_all"] for t in found)
    # A rank's phases follow one another: no less than all it sends or receives.
    both = [(t.sent["all_to_all"], t.received["all_to_all"]) for t in found]
    assert max(map(max, both)) <= work.busiest[1] <= max(map(sum, both))
    evenly = four.run(step_traffic, "stacklm", [(64, 64)] * 8, replicas)
    work_evenly = work_of([(64, 64)] * 8, 4 // replicas, replicas)
    assert work_evenly.busiest[1] == evenly[0].sent["all_to_all"]
    # With everyone in the exchange it has peers for, and two rounds of agreement.
    peers = (4 // replicas - 1) * 2 + (replicas - 1)
    exchanges = found[0].counts["all_to_all"] // (2 if replicas == 1 else 3)
    assert messages <= 4 * (exchanges * peers + 4)
    even = work_of(SMALL * 4, 4 // replicas, replicas).total[2]
    assert even == 4 * (3 * peers + 4)  # three classes, everyone owns some of each


def test_one_rank_sends_nothing_and_does_everything():
    work = work_of(SMALL, 1)
    entries = sum(m * n for m, n in SMALL)
    flops = sum(newton_schulz_flops(m, n) for m, n in SMALL)
    touched = 4 * (AT_HOME + AT_OWNER) * entries
    assert work == Work(1, (flops, 0, 0, touched), (flops, 0, 0, touched))


def test_work_is_that_of_all_matrices_and_the_busiest_has_one_more_than_even():
    for replicas, shards in ((1, 8), (2, 4), (1, 64)):
        work = work_of(LARGE, shards, replicas)
        flops = [newton_schulz_flops(m, n) for m, n in LARGE]
        assert work.total[0] == sum(flops)
        even = sum(flops) / (replicas * shards)
        assert even <= work.busiest[0] <= even + max(flops)
        least = least_bytes(LARGE, replicas, shards)
        assert least <= work.total[1] <= 1.05 * least
    narrow = work_of(LARGE, 4, out_itemsize=2)
    assert narrow.total[1] == work_of(LARGE, 4).total[1] * 0.75


def test_cores_are_shared_and_devices_are_not():
    work = Work(4, (10.0, 1.0, 1.0, 1.0), (30.0, 4.0, 2.0, 4.0))
    assert work.amounts(None) == (10.0, 1.0, 1.0, 1.0)
    assert work.amounts(2) == (15.0, 2.0, 1.0, 2.0)
    assert work.amounts(8) == work.amounts(None)
    terms = predict(work, Machine(2.0, 3.0, 5.0, 7.0, cores=2))
    assert terms == {"products": 30.0, "wire": 6.0, "messages": 5.0, "memory": 14.0}


def observations(machine, noise=0.0):
    """Steps at two sizes on 2 and 4 ranks, as a machine would take them."""
    rng = random.Random(0)
    for shapes in (SMALL, LARGE):
        for ranks in (2, 4):
            work = work_of(shapes, ranks, flops=cpu_flops)
            took = sum(predict(work, machine).values())
            yield work, took * (1 + noise * rng.uniform(-1, 1))


def test_rates_are_found_and_held_out_steps_predicted():
    found = calibrate(list(observations(TRUE)), cores=2)
    assert found.cores == 2
    for name in ("per_flop", "per_wire_byte", "per_message", "per_memory_byte"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)
    noisy = calibrate(list(observations(TRUE, noise=0.02)), cores=2)
    for shapes, ranks in ((SMALL, 8), (LARGE, 8), (block_shapes(), 4)):
        work = work_of(shapes, ranks, flops=cpu_flops)
        want = sum(predict(work, TRUE).values())
        assert sum(predict(work, found).values()) == pytest.approx(want, rel=1e-6)
        assert sum(predict(work, noisy).values()) == pytest.approx(want, rel=0.3)


def test_no_rate_is_below_zero():
    # Steps that got faster with every message: least squares alone would say -0.2.
    counts = [(4.0, 1.0, 1.0, 2.0), (5.0, 1.0, 3.0, 1.0), (6.0, 2.0, 1.0, 1.0)]
    counts += [(7.0, 1.0, 2.0, 3.0), (9.0, 3.0, 4.0, 2.0)]
    steps = [(Work(1, c, c), c[0] + 0.1 * c[1] - 0.2 * c[2]) for c in counts]
    found = calibrate(steps)
    assert found.per_message == 0
    assert min(found.per_wire_byte, found.per_memory_byte) >= 0
    assert found.per_flop == pytest.approx(1.0, rel=0.2)


def test_too_few_steps_and_times_that_cannot_be_are_errors():
    steps = list(observations(TRUE))
    with pytest.raises(ValueError, match=r"4 rates, so it takes .* got 3"):
        calibrate(steps[:3])
    with pytest.raises(ValueError, match="seconds must be positive"):
        calibrate([*steps, (steps[0][0], 0.0)])


class Lent:
    """A pool that pretends to take steps, as the true machine would."""

    asked = 0

    def __init__(self, count, timeout):
        self.count = count

    def run(self, function, name, shapes):
        if function is held_out.make_ready:
            return None
        Lent.asked += 1
        took = sum(predict(work_of(shapes, self.count, flops=cpu_flops), TRUE).values())
        cpu = took * min(self.count, 2) / self.count
        late = 2.0 if self.count == 8 and "slow at 8" in name else 1.0
        return [(took * late, cpu)] * self.count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(held_out, "Ranks", Lent)
    monkeypatch.setattr(held_out.os, "cpu_count", lambda: 2)
    sizes = {"S1": tuple(SMALL), "S2": tuple(LARGE[:7])}
    sizes["Stack-100M, 3 of 30 blocks"] = tuple(LARGE)
    monkeypatch.setattr(held_out, "SIZES", sizes)


def test_the_command_holds_out_eight_ranks_and_a_third_size(
    pretended, monkeypatch, tmp_path, capsys
):
    assert held_out.main(["--rounds", "2", "--out", str(tmp_path)]) == 0
    assert "largest error held out: 0%" in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert len(found["rounds"]) == 9
    assert all(len(row["wall"]) == len(row["cpu"]) == 2 for row in found["rounds"])
    for judged in found["clocks"].values():
        unseen = {(r["size"], r["ranks"]) for r in judged["steps"] if r["held_out"]}
        assert unseen == {
            *((size, 8) for size in held_out.SIZES),
            *(("S2", ranks) for ranks in (2, 4)),
        }
        assert judged["machine"]["per_flop"] == pytest.approx(TRUE.per_flop, rel=1e-6)
    # A machine that is twice as slow on eight ranks is not what was calibrated.
    monkeypatch.setattr(held_out, "OURS", "slow at 8")
    assert held_out.main(["--rounds", "1", "--out", str(tmp_path)]) == 1
    judged_by_cpu = ["--rounds", "1", "--clock", "cpu", "--out", str(tmp_path)]
    assert held_out.main(judged_by_cpu) == 0
