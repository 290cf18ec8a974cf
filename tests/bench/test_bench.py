"""The benchmark counts, times by turns, and reports what could not run."""

import json
import sys
from pathlib import Path

import pytest
import torch

from stacklm.bench import __main__ as command
from stacklm.bench import measure, peers, report
from stacklm.bench.cases import (
    block_shapes,
    hard_matrices,
    plain_newton_schulz,
    random_matrices,
    with_spectrum,
)
from stacklm.bench.clock import CLOCKS, Times, by_turns, ratio
from stacklm.optim import newton_schulz_flops, zeropower_via_newtonschulz5


def test_the_matrices_are_those_of_stack_100m():
    shapes = block_shapes()
    assert len(shapes) == 7
    assert shapes.count((1408, 512)) == 2
    assert shapes.count((512, 1408)) == 1
    total = 30 * sum(newton_schulz_flops(*shape) for shape in shapes)
    assert total == pytest.approx(1.038e12, rel=1e-3)
    assert [tuple(G.shape) for G in random_matrices(2)] == shapes * 2


def test_the_plain_form_is_newton_schulz():
    torch.manual_seed(0)
    for shape in ((12, 20), (20, 12)):
        G = torch.randn(shape, dtype=torch.float64)
        want = zeropower_via_newtonschulz5(G)
        # The plain form adds 1e-7 to a norm of 15.
        torch.testing.assert_close(plain_newton_schulz(G), want, atol=1e-6, rtol=0)


def test_spectra_are_what_they_are_called():
    sigma = torch.logspace(0, -3, 8)
    got = torch.linalg.svdvals(with_spectrum(8, 12, sigma))
    torch.testing.assert_close(got, sigma.double())
    hard = hard_matrices(16, 24)
    assert set(hard) > {"random", "one dominant", "tiny", "huge", "rank deficient"}
    assert hard["tiny"].abs().max() < 1e-27 < 1e29 < hard["huge"].abs().max()
    assert torch.linalg.matrix_rank(hard["rank deficient"]) == 4


def test_by_turns_runs_every_candidate_once_a_round(monkeypatch):
    ran, now = [], iter(range(100))
    monkeypatch.setitem(CLOCKS, "wall", lambda: float(next(now)))
    candidates = {"a": lambda: ran.append("a"), "b": lambda: ran.append("b")}
    times = by_turns(candidates, rounds=3)
    assert ran == ["a", "b"] * 3
    assert times["a"].seconds == (1.0, 1.0, 1.0)
    for rounds, clock, message in ((0, "wall", "at least 1"), (1, "sun", "sun")):
        with pytest.raises(ValueError, match=message):
            by_turns(candidates, rounds, clock=clock)


def test_the_peak_is_that_of_the_fastest_product_and_round():
    flops = {n: 2 * n**3 * max(1, 2 * 2048**3 // n**3) for n in measure.PEAK_SIZES}
    times = {f"GEMM {n}": Times((2.0, 1.0, 4.0)) for n in flops}
    assert measure.peak(times) == max(flops.values())


def test_a_ratio_is_taken_within_rounds():
    times = {"a": Times((2.0, 20.0, 4.0)), "b": Times((1.0, 10.0, 1.0))}
    assert times["a"].median == 4.0
    assert times["a"].spread == 18 / 4
    assert ratio(times, "a", "b") == 2.0


def test_a_peer_that_fails_is_reported_with_its_reason(monkeypatch):
    def broken(params, device):
        raise ImportError("no module named triton\nand more")

    monkeypatch.setattr(measure, "CLASSES", ((4, 6),))
    monkeypatch.setattr(
        measure,
        "PEERS",
        (
            peers.Peer("torch", "", peers._torch),
            peers.Peer("numpy", "", broken),
            peers.Peer("no-such-package", "", broken),
        ),
    )
    grads = [torch.randn(4, 6), torch.randn(6, 4)]
    times, distance, failed = measure.time_peers(grads, 2, "cpu", lambda text: None)
    ours = {measure.PLAIN, measure.STEP, measure.HALF_STEP}
    assert set(times) == {*ours, "torch"}
    assert failed == {
        "numpy": "ImportError: no module named triton",
        "no-such-package": "not installed: pip install stacklm[peers]",
    }
    assert distance[measure.STEP] < 1e-5
    for half in ("torch", measure.HALF_STEP):
        assert 1e-5 < distance[half] < 0.1


def test_gradients_stay_as_they_are_when_a_peer_writes_to_its_own():
    class Zeroing(torch.optim.SGD):
        def step(self):
            super().step()
            for p in self.param_groups[0]["params"]:
                p.grad.zero_()

    grads = [torch.ones(4, 6), torch.ones(6, 4)]
    peer = peers.Peer("zeroing", "", lambda params, device: Zeroing(params, lr=1.0))
    step = peers.prepare(peer, grads)
    for count in (1, 2):
        for weight in step():
            assert torch.equal(weight, torch.full_like(weight, -count))
    assert all(torch.equal(g, torch.ones_like(g)) for g in grads)


def test_a_peer_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(measure, "CLASSES", ((4, 6),))
    monkeypatch.setattr(measure, "PEERS", (peers.Peer("torch", "", peers._torch),))
    monkeypatch.setattr(measure, "foretold", lambda make, grads, clock: 100.0)
    grads = [torch.randn(4, 6)]
    times, _, failed = measure.time_peers(grads, 1, "cpu", lambda text: None, 99.0)
    assert "torch" not in times
    assert failed["torch"] == "too slow here: a step would take 100 s"


def test_a_step_is_foretold_by_its_flops(monkeypatch):
    monkeypatch.setattr(
        measure, "by_turns", lambda *args, **options: {"it": Times((2.0,))}
    )
    ten = [torch.ones(256, 128)] * 10
    assert measure.foretold(lambda grads: lambda: None, ten, "cpu") == 20.0


def test_every_form_gives_the_same_directions():
    dirs = [torch.randn(8, 12), torch.randn(12, 8)]
    exact = [zeropower_via_newtonschulz5(G.double()).float() for G in dirs]
    named = measure.forms()
    assert {measure.PLAIN, measure.AUTO, "direct", "gram-mirrored"} <= set(named)
    for form in named.values():
        torch.testing.assert_close(form(dirs), exact, atol=1e-5, rtol=0)


def test_the_command_prints_a_table_and_writes_what_it_measured(
    monkeypatch, tmp_path, capsys
):
    few = [torch.randn(8, 8), torch.randn(4, 8), torch.randn(8, 20)]
    monkeypatch.setattr(command, "random_matrices", lambda *args: few)
    monkeypatch.setattr(measure, "CLASSES", ((8, 8), (4, 8), (8, 20)))
    monkeypatch.setattr(measure, "PEAK_SIZES", (32, 64))
    monkeypatch.setattr(measure, "_products", lambda A, count: A @ A)
    for module in (measure, report):
        monkeypatch.setattr(module, "PEERS", peers.PEERS[:1])
    loads = iter([1.5, 2.5])
    monkeypatch.setattr(command, "load", lambda: next(loads))
    assert command.main(["--rounds", "2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "auto takes" in printed
    assert "torch, the fastest peer" in printed
    assert "The machine was busy before this began (load 1.5)." in printed
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["matrices"] == 3
    assert found["load"] == {"before": 1.5, "after": 2.5}
    assert found["versions"]["torch"] == torch.__version__
    assert found["hardware"]["threads"] == torch.get_num_threads()
    row = found["newton_schulz"]["auto"]
    assert row["seconds"] > 0
    assert len(row["rounds"]) == 2
    assert found["newton_schulz"][measure.PLAIN]["relative"] == 1
    flops = sum(newton_schulz_flops(*G.shape) for G in few)
    assert row["flop_per_second"] == pytest.approx(flops / row["seconds"])
    errors = found["largest_difference_from_float64"]["auto"]
    assert max(errors.values()) < 3e-5  # eight rows; 1e-5 is for those of Stack-100M
    assert found["could_not_run"] == {}


def test_a_file_is_named_after_the_hardware():
    cpu = {"device": "cpu", "processor": "AMD EPYC 7B13", "threads": 2}
    assert report.file_name(cpu) == "amd-epyc-7b13-2-threads.json"
    gpu = cpu | {"accelerator": "NVIDIA H200"}
    assert report.file_name(gpu) == "nvidia-h200.json"


def test_importing_stacklm_imports_no_benchmark_and_no_peer():
    source = Path(sys.modules["stacklm.optim"].__file__).parent
    for path in source.glob("*.py"):
        assert "stacklm.bench" not in path.read_text(encoding="utf-8"), path
