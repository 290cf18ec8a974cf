"""kill -9 at random moments, many times in a row: the run ends with the same bits.

The command runs in children of a small process that has imported everything already,
so that a kill costs no start-up. The variable STACKLM_KILLS sets how many.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from stacklm.train import checkpoints, read_checkpoint, read_metrics

KILLS = int(os.environ.get("STACKLM_KILLS", "20"))
ARGS = [
    *("--config", "toy", "--quiet", "--device", "cpu", "--set", "d_model=32"),
    *("n_layers=1", "warmup_steps=10", "total_steps=100", "micro_batch_size=2"),
    *("seq_len=16", "grad_accum_steps=2", "validate_batches=1", "validate_every=7"),
]
FORKS = """
import json, os, random, signal, sys, time
import torch._dynamo  # what an optimizer imports when it is built; takes seconds
from stacklm.train.__main__ import main

def start(args):
    child = os.fork()
    if not child:
        os.dup2(2, 1)
        os._exit(main(args))
    return child

def newest(out):
    names = [n for n in os.listdir(out) if n.startswith("step-")]
    return int(max(names)[5:13]) if names else 0

def kill(args, out, chance):
    before, child = newest(out), start(args)
    while newest(out) == before and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.001)  # let it get somewhere
    time.sleep(chance.uniform(0, 0.03))
    try:
        os.kill(child, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        killed = False  # it was faster
    return newest(out), killed

reports = []
for kills, out, args in json.loads(sys.argv[1]):
    chance, seen = random.Random(kills), []
    os.makedirs(out, exist_ok=True)
    while len(seen) < kills and newest(out) < 100:
        seen.append(kill([*args, "--out", out], out, chance))
    status = os.waitpid(start([*args, "--out", out]), 0)[1]
    reports.append({"seen": seen, "status": os.waitstatus_to_exitcode(status)})
print(json.dumps(reports))
"""


@pytest.fixture(scope="module")
def runs(python_path, tmp_path_factory):
    """{name: (folder, report)} of one run without kills, with one, with many."""
    wanted = {"straight": (0, 50), "once": (1, 50), "often": (KILLS, 1)}
    outs = {name: tmp_path_factory.mktemp(name) for name in wanted}
    jobs = [
        (kills, str(outs[name]), [*ARGS, f"save_every={every}"])
        for name, (kills, every) in wanted.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(jobs)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    reports = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(wanted, zip(outs.values(), reports, strict=True), strict=True))


def untimed(path):
    timed = ("seconds", "tokens_per_second")
    return [
        {name: value for name, value in record.items() if name not in timed}
        for record in read_metrics(path / "metrics.jsonl")
    ]


def assert_same(out, other):
    ends = [read_checkpoint(checkpoints(folder)[-1]) for folder in (out, other)]
    assert [end.step for end in ends] == [100, 100]
    assert ends[0].state == ends[1].state
    assert ends[0].tensors.keys() == ends[1].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name]), name
    assert untimed(out) == untimed(other)
    assert not list(other.glob("*.damaged"))


def test_killed_at_step_50_and_resumed_is_the_straight_run(runs):
    straight, report = runs["straight"]
    assert report == {"seen": [], "status": 0}
    out, report = runs["once"]
    assert report == {"seen": [[50, True]], "status": 0}
    assert_same(straight, out)


def test_killed_at_random_moments_is_the_straight_run(runs):
    out, report = runs["often"]
    killed = [step for step, was_killed in report["seen"] if was_killed]
    assert len(killed) >= min(KILLS, 10), report
    assert killed == sorted(set(killed))
    assert report["status"] == 0
    assert_same(runs["straight"][0], out)
