"""The command: what a newcomer types, rightly and wrongly."""

import os
import subprocess
import sys
from dataclasses import fields

import pytest

from stacklm.config import StackConfig, TrainConfig
from stacklm.train import RunConfig, checkpoints, read_checkpoint, read_metrics
from stacklm.train.__main__ import main
from stacklm.train.presets import PRESETS, describe, override

SMALL = [
    *("--quiet", "--device", "cpu", "--set", "d_model=32", "n_layers=1", "seq_len=16"),
    *("total_steps=8", "warmup_steps=2", "micro_batch_size=2", "save_every=4"),
]


@pytest.fixture
def command(capsys):
    """Run the command in this process: (status, stdout, stderr)."""

    def run(*args):
        try:
            status = main([str(arg) for arg in args])
        except SystemExit as stopped:  # argparse
            status = stopped.code
        return status, *capsys.readouterr()

    return run


def test_help_in_a_process_of_its_own(python_path):
    done = subprocess.run(
        [sys.executable, "-m", "stacklm.train", "--help"],
        env={**os.environ, "PYTHONPATH": python_path, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "python -m stacklm.train --config toy\n",
        "torchrun --nproc-per-node 4 -m stacklm.train --config toy",
        "--timeout SECONDS",
        "goes on where it was stopped",
        "toy,s1,s2,s3,s4,stack100m",
        "--set FIELD=VALUE",
        "exit status",
    ):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_run_and_the_same_command_once_more(command, tmp_path):
    status, said, _ = command("--out", tmp_path, *SMALL)
    assert status == 0
    assert "8 steps of 32 tokens" in said
    assert "done: 8 steps, validation loss" in said
    assert [read_checkpoint(p).step for p in checkpoints(tmp_path)] == [4, 8]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 8
    assert command("--out", tmp_path, *SMALL)[0] == 0
    status, _, err = command("--out", tmp_path, *SMALL, "momentum=0.9")
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("error: train: momentum is 0.9, but ")
    status, _, err = command("--out", tmp_path, *SMALL, "--no-resume")
    assert status == 1
    assert "holds checkpoints" in err


def test_without_out_the_run_is_in_a_folder_of_its_configuration(
    command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "see runs/toy" in command("--config", "toy", *SMALL)[1]
    assert checkpoints(tmp_path / "runs" / "toy")


def test_progress_is_shown_unless_quiet(command, tmp_path):
    loud = [arg for arg in SMALL if arg != "--quiet"]
    last = command("--out", tmp_path / "loud", *loud)[2].splitlines()[-1]
    assert "| 8/8 [" in last
    assert "loss" in last
    assert command("--out", tmp_path / "quiet", *SMALL)[2] == ""


def test_a_branch_and_adamw_alone(command, tmp_path):
    trunk = tmp_path / "trunk"
    assert command("--out", trunk, *SMALL, "--adamw-alone")[0] == 0
    start = ["--branch-from", trunk / "step-00000004.safetensors"]
    branch = ["--out", tmp_path / "branch", *SMALL, "--adamw-alone", *start]
    status, said, _ = command(*branch, "--decay-steps", 3)
    assert status == 0
    assert "done: 7 steps" in said
    status, _, err = command(*branch)
    assert status == 1
    assert "belong together" in err


def test_ctrl_c_is_status_130(command, tmp_path, monkeypatch):
    from stacklm.train import __main__ as cli

    pretrain = cli.pretrain

    def interrupted(*args, **options):
        run = pretrain(*args, **options)
        run.interrupted = True
        return run

    monkeypatch.setattr(cli, "pretrain", interrupted)
    status, said, _ = command("--out", tmp_path, *SMALL)
    assert status == 130
    assert "the same command goes on from there" in said

    def at_once(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "pretrain", at_once)
    status, _, err = command("--out", tmp_path, *SMALL)
    assert (status, err) == (130, "stopped at once; the last checkpoint is whole\n")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("total_step=5", "there is no field total_step; the nearest is total_steps"),
        ("muonpeaklr=5", "the nearest is muon_peak_lr"),
        ("learning_rate=5", "the nearest is "),
        ("seq_len", "written field=value, got 'seq_len'"),
        ("seq_len=1.5", "seq_len takes a whole number, got '1.5'"),
        ("muon_peak_lr=fast", "muon_peak_lr takes a number, got 'fast'"),
        ("qk_norm=1", "qk_norm takes true or false, got '1'"),
        ("betas=0.9;0.95", "betas takes two numbers, as in 0.9,0.95"),
        ("betas=0.9", "betas must be a tuple of two floats"),
        ("total_steps=0", "total_steps must be finite and at least 1, got 0"),
        ("warmup_steps=9999", "warmup and decay must fit into the run"),
        ("keep_last=0", "keep_last must be finite and at least 1, got 0"),
        ("n_heads=3", "n_heads must be a multiple of n_kv_heads"),
    ],
)
def test_a_wrong_setting_is_one_line_of_help(command, tmp_path, setting, message):
    out = tmp_path / "run"
    status, _, err = command("--out", out, "--set", setting)
    assert status == 1
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_other_mistakes(command, tmp_path):
    branch = ["--branch-from", tmp_path / "a", "--decay-steps", 5]
    assert "a folder of its own; name it with --out" in command(*SMALL, *branch)[2]
    status, _, err = command("--config", "s5")
    assert status == 2
    assert "stack100m" in err
    assert command("--confg", "s4")[0] == 2
    assert command("--conf", "s4")[0] == 2  # no abbreviations: they break later
    assert "set twice" in command("--set", "seed=1", "seed=2", "--fields")[2]
    status, _, err = command("--out", tmp_path, "--data", tmp_path / "none", *SMALL)
    assert status == 1
    assert "none" in err
    odd = tmp_path / "book.pdf"
    odd.write_bytes(b"%PDF")
    status, _, err = command("--out", tmp_path, "--data", odd, *SMALL)
    assert status == 1
    assert "end in .txt, .jsonl, .parquet" in err


def test_a_text_file_is_enough(command, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("Call me Ishmael. " * 300, encoding="utf-8")
    out = tmp_path / "run"
    for _ in range(2):
        status, said, err = command("--out", out, "--data", book, *SMALL)
        assert (status, err) == (0, "")
        assert "4,590 tokens" in said
    assert (out / "shards" / "index.json").exists()


def test_every_field_is_listed_with_its_meaning_and_can_be_set(command):
    status, text, _ = command("--config", "s2", "--fields")
    assert status == 0
    for kind in (StackConfig, TrainConfig, RunConfig):
        for field in fields(kind):
            (line,) = [x for x in text.splitlines() if x.startswith(f"  {field.name}=")]
            assert line.rstrip().endswith(")."), line  # the unit closes the sentence
    # What is listed can be given back.
    settings = [x.split()[0] for x in text.splitlines() if x.startswith("  ")]
    assert override(PRESETS["toy"], settings) == PRESETS["s2"]
    assert describe(PRESETS["s2"]) == text.strip()


def test_every_preset_is_a_run_that_fits():
    assert list(PRESETS) == ["toy", "s1", "s2", "s3", "s4", "stack100m"]
    for preset in PRESETS.values():
        assert preset.train.seq_len <= preset.model.max_seq_len
    assert PRESETS["s4"].train.tokens_per_step == 65_536
    assert PRESETS["stack100m"].model == StackConfig()
    assert PRESETS["stack100m"].train == TrainConfig()
    values = "qk_norm=False", "betas=0.8,0.9", "rope_theta=5e5", "seed=1_000"
    changed = override(PRESETS["toy"], list(values))
    assert (changed.model.qk_norm, changed.model.rope_theta) == (False, 5e5)
    assert (changed.train.betas, changed.train.seed) == ((0.8, 0.9), 1000)
