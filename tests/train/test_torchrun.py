"""The command under torchrun: killed, started again, and wrong in one line."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
import torch

from stacklm.train import World, checkpoints, launch, read_checkpoint, read_metrics
from stacklm.train.__main__ import main

TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node"]
SMALL = [
    *("--quiet", "--device", "cpu", "--timeout", "60", "--set", "d_model=32"),
    *("n_layers=1", "seq_len=16", "micro_batch_size=3", "warmup_steps=2"),
    *("total_steps=80", "save_every=20", "validate_every=0"),
]


WORK_IS_LEFT = """
import atexit, runpy, torch, torch.distributed as dist
from stacklm.train import loop

pretrain, kept = loop.pretrain, []

def and_more(*args, **options):
    run = pretrain(*args, **options)
    for _ in range(1000):
        kept.append(torch.ones(2000))
        dist.all_reduce(kept[-1], async_op=True)
    return run

loop.pretrain = and_more
atexit.register(print, "Python takes itself apart")
runpy.run_module("stacklm.train", run_name="__main__")
"""


def torchrun(python_path, cwd, ranks, *args, run=("-m", "stacklm.train")):
    """A launcher; --out is left to its default, runs/toy in `cwd`."""
    return subprocess.Popen(
        [sys.executable, *TORCHRUN, str(ranks), *run, *args],
        env={**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def worker(launcher, rank):
    """The process of a rank."""
    children = f"/proc/{launcher.pid}/task/{launcher.pid}/children"
    with open(children, encoding="utf-8") as file:
        pids = file.read().split()
    for pid in pids:
        with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
            if f"RANK={rank}" in file.read().split("\0"):
                return int(pid)
    raise ProcessLookupError(f"rank {rank} is not among {pids}")


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="finds ranks in /proc")
def test_a_killed_rank_ends_the_others_and_the_same_command_goes_on(
    python_path, tmp_path
):
    out = tmp_path / "runs" / "toy"
    with torchrun(python_path, tmp_path, 3, "--config", "toy", *SMALL) as launcher:
        while not checkpoints(out):
            assert launcher.poll() is None
            time.sleep(0.02)
        os.kill(worker(launcher, 1), signal.SIGKILL)
        killed = time.monotonic()
        said = launcher.communicate(timeout=100)[0]
    assert launcher.returncode != 0
    assert time.monotonic() - killed < 60  # the timeout of the groups
    errors = [line for line in said.splitlines() if line.startswith("error")]
    assert len(errors) == 2, said  # of the ranks that are left
    for line in errors:
        assert "a step needs all 3 ranks, and one of them ended" in line
        assert "give the same command again" in line
    left = read_checkpoint(checkpoints(out)[-1]).step
    assert 20 <= left < 80
    with torchrun(python_path, tmp_path, 3, "--config", "toy", *SMALL) as launcher:
        said = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 0, said
    assert len(re.findall("80 steps of 48 tokens, on 3 ranks", said)) == 1
    assert len(re.findall("done: 80 steps", said)) == 1
    assert read_checkpoint(checkpoints(out)[-1]).step == 80
    alone = tmp_path / "alone"
    assert main(["--config", "toy", "--out", str(alone), *SMALL]) == 0
    both = [read_metrics(folder / "metrics.jsonl") for folder in (out, alone)]
    assert [r["step"] for r in both[0]] == list(range(80))
    assert max(abs(a["loss"] - b["loss"]) for a, b in zip(*both, strict=True)) < 1e-3


def test_gloo_at_work_does_not_end_a_run_that_is_done(python_path, tmp_path):
    """Left to Python's own end, most such runs are ended by SIGABRT."""
    script = tmp_path / "script.py"
    script.write_text(WORK_IS_LEFT, encoding="utf-8")
    short = [arg for arg in SMALL if not arg.startswith("total")] + ["total_steps=4"]
    with torchrun(python_path, tmp_path, 3, *short, run=(str(script),)) as launcher:
        said = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 0, said
    assert "done: 4 steps" in said
    assert "takes itself apart" not in said


def test_an_error_of_rank_0_is_said_by_rank_0_alone(
    place, monkeypatch, tmp_path, capsys
):
    """Ranks 1 and up raise a copy of it, which is marked (see test_ranks.py)."""
    from stacklm.train import __main__ as cli

    for told, said in ((True, ""), (False, "error on rank 1: the cable is out\n")):
        error = OSError("the cable is out")
        error.told = told

        def fails(*_args, error=error, **_options):
            raise error

        monkeypatch.setattr(cli, "launched", lambda *_: nullcontext(World()))
        monkeypatch.setattr(cli, "pretrain", fails)
        place(1, 2)
        assert main(["--out", str(tmp_path), *SMALL]) == 1
        assert capsys.readouterr().err == said


@pytest.fixture
def place(monkeypatch):
    """Set the variables by which torchrun tells a process its place."""

    def set_to(rank, size):
        for name in ("RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, str(rank))
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            monkeypatch.setenv(name, str(size))

    return set_to


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--timeout", "0"], "--timeout must be finite and above 0 seconds, got 0.0"),
        (["--timeout", "inf"], "--timeout must be finite and above 0 seconds, got inf"),
        (["--replicas", "3"], "--replicas must divide the 4 ranks evenly, got 3"),
        (["--replicas", "0"], "--replicas must divide the 4 ranks evenly, got 0"),
        (
            ["--device", "cuda:1"],
            "takes the GPU of its own number, got --device cuda:1",
        ),
        (["--device", "cuda"], "a GPU of its own, got 4 ranks and 3 GPUs on this mach"),
    ],
)
def test_what_does_not_fit_the_ranks_is_refused_before_they_meet(
    place, monkeypatch, tmp_path, capsys, args, message
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    place(0, 4)
    assert main(["--out", str(tmp_path / "run"), *args]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_each_rank_takes_the_gpu_of_its_number(place, monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    place(3, 4)
    assert launch._device("cuda") == torch.device("cuda", 3)
    assert taken == [torch.device("cuda", 3)]
    assert launch._device("cpu") == torch.device("cpu")


def test_one_rank_is_one_process_and_other_ranks_say_nothing(place, tmp_path, capsys):
    place(0, 1)
    short = [arg for arg in SMALL if not arg.startswith("total")] + ["total_steps=8"]
    assert main(["--out", str(tmp_path), *short]) == 0
    assert not torch.distributed.is_initialized()
    assert "8 steps of 48 tokens\n" in capsys.readouterr().out
    place(1, 2)
    assert main(["--set", "seq_len=0"]) == 1
    assert main(["--fields"]) == 0
    assert capsys.readouterr() == ("", "")
