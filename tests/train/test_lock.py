"""Two processes and one folder: the second is told, and nothing is torn."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from stacklm.train import BusyError, checkpoints, pretrain, read_checkpoint
from stacklm.train.lock import only_one
from tests.train.runs import CFG, MODEL, RUN, assert_same_end

HOLD = """
import sys
from pathlib import Path
from stacklm.train.lock import only_one

with only_one(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(python_path, tmp_path):
    """A process that holds the lock of tmp_path / "run" until it is ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": python_path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_process_is_told_who_and_what_to_do(data, holder, tmp_path):
    out = tmp_path / "run"
    before = sorted(out.iterdir())
    message = (
        rf"{out} is in use by process {holder.pid} on .*; two runs .* "
        r"wait for it, stop it, or name another folder"
    )
    with pytest.raises(BusyError, match=message):
        pretrain(MODEL, CFG, data, out=out, run_cfg=RUN, device="cpu")
    assert sorted(out.iterdir()) == before


@pytest.mark.parametrize("killed", [True, False])
def test_a_process_that_ended_blocks_no_one(
    data, val, straight, holder, tmp_path, killed
):
    out = tmp_path / "run"
    if killed:
        holder.send_signal(signal.SIGKILL)
    else:
        holder.stdin.close()
    assert holder.wait() == (-signal.SIGKILL if killed else 0)
    assert (out / ".owner").exists() == killed  # what it left bars no one
    pretrain(MODEL, CFG, data, val=val, out=out, run_cfg=RUN, device="cpu")
    assert_same_end(out, straight[1])
    assert sorted(p.name for p in out.glob(".*")) == [".lock"]


def test_the_command_names_the_process(python_path, holder, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("Call me Ishmael. " * 99, encoding="utf-8")
    command = [sys.executable, "-m", "stacklm.train", "--out", str(tmp_path / "run")]
    small = ["--device", "cpu", "--set", "seq_len=16", "total_steps=2"]
    done = subprocess.run(
        [*command, "--data", str(book), *small, "warmup_steps=1"],
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"in use by process {holder.pid} on " in done.stderr
    assert "Traceback" not in done.stderr


def test_two_runs_of_one_process_are_kept_apart_too(data, tmp_path):
    seen = []

    def second():
        try:
            pretrain(MODEL, CFG, data, out=tmp_path, run_cfg=RUN, device="cpu")
        except BusyError as error:
            seen.append(str(error))

    with only_one(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        with pytest.raises(BusyError, match=f"process {os.getpid()} on "):
            pretrain(MODEL, CFG, data, out=tmp_path, run_cfg=RUN, device="cpu")
    assert len(seen) == 1
    assert not checkpoints(tmp_path)


def test_the_lock_ends_with_a_run_that_fails(data, tmp_path):
    class Breaks:
        vocab_size = 256

        def __len__(self):
            return len(data)

        def batch(self, step, **place):
            raise OSError("the cable is out")

    with pytest.raises(OSError, match="the cable is out"):
        pretrain(MODEL, CFG, Breaks(), out=tmp_path, run_cfg=RUN, device="cpu")
    pretrain(MODEL, CFG, data, out=tmp_path, run_cfg=RUN, device="cpu")
    assert read_checkpoint(checkpoints(tmp_path)[-1]).step == CFG.total_steps


def test_a_process_that_has_not_signed_yet_is_another_process(tmp_path):
    with only_one(tmp_path):
        (tmp_path / ".owner").write_text("", encoding="utf-8")
        with pytest.raises(BusyError, match="in use by another process; "):
            only_one(tmp_path).__enter__()
