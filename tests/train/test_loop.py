"""Whole runs: resumed, interrupted, branched, diverged; always the same bits."""

import signal
from dataclasses import replace

import pytest
import torch

from stacklm.train import (
    CheckpointError,
    DivergedError,
    adamw_alone,
    checkpoints,
    open_tokens,
    pretrain,
    read_checkpoint,
    read_metrics,
    validate,
)
from stacklm.train.validation import validation_batches
from tests.train.runs import (
    CFG,
    MODEL,
    RUN,
    Interrupting,
    assert_same_end,
    spoiling,
    untimed,
)


def test_a_run_leaves_what_it_promises(straight, val):
    run, out = straight
    assert sorted(p.name for p in out.iterdir()) == [
        ".lock",
        "metrics.jsonl",
        *(f"step-{step:08d}.safetensors" for step in (12, 18, 24)),
    ]
    assert run.step == 24
    assert not run.interrupted
    assert run.checkpoint == checkpoints(out)[-1]
    assert run.records == read_metrics(out / "metrics.jsonl")
    assert [record["step"] for record in run.records] == list(range(24))
    assert [step for step, _ in run.validation] == [4, 8, 12, 16, 20, 24]
    fixed = validation_batches(val, CFG, RUN.validate_batches)
    assert run.validation[-1][1] == validate(run.model, fixed)
    assert run.records[-1]["muon_lr"] < run.records[17]["muon_lr"] == CFG.muon_peak_lr
    assert run.records[0]["tokens"] == CFG.tokens_per_step


@pytest.mark.parametrize("stop", [5, 11])
def test_ctrl_c_saves_and_the_run_goes_on_to_the_same_bits(
    data, val, straight, tmp_path, stop, capsys
):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    number = signal.SIGINT if stop == 5 else signal.SIGTERM
    args = {"val": val, "out": tmp_path, "run_cfg": RUN, "device": "cpu"}
    run = pretrain(MODEL, CFG, Interrupting(data, stop, number), **args)
    assert run.interrupted
    assert run.step == stop + 1
    assert read_checkpoint(checkpoints(tmp_path)[-1]).step == stop + 1
    assert "stopping after this step" in capsys.readouterr().err
    after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert after == before
    done = pretrain(MODEL, CFG, data, **args)
    assert not done.interrupted
    assert_same_end(tmp_path, straight[1])
    assert untimed(done.records) == untimed(straight[0].records)
    assert untimed(read_metrics(tmp_path / "metrics.jsonl")) == untimed(done.records)


def test_a_second_ctrl_c_stops_at_once(data):
    class Twice(Interrupting):
        def batch(self, step, **place):
            super().batch(step, **place)
            return super().batch(step, **place)

    with pytest.raises(KeyboardInterrupt):
        pretrain(MODEL, CFG, Twice(data, 3), device="cpu")


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(
    data, val, straight, tmp_path
):
    args = {"val": val, "out": tmp_path, "run_cfg": RUN, "device": "cpu"}
    pretrain(MODEL, CFG, Interrupting(data, 13), **args)
    newest = checkpoints(tmp_path)[-1]
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match=r"step-00000014.*Trying the one before"):
        pretrain(MODEL, CFG, data, **args)
    assert_same_end(tmp_path, straight[1])
    assert (tmp_path / f"{newest.name}.damaged").exists()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert untimed(lines) == untimed(straight[0].records)


def test_a_run_with_only_damaged_checkpoints_does_not_begin_again(data, tmp_path):
    (tmp_path / "step-00000006.safetensors").write_bytes(b"not one")
    with (
        pytest.warns(UserWarning, match="cannot be read"),
        pytest.raises(CheckpointError, match=r"all checkpoints in .* are damaged"),
    ):
        pretrain(MODEL, CFG, data, out=tmp_path, device="cpu")


def test_a_finished_run_is_left_alone(data, val, straight):
    run, out = straight
    files = {path: path.stat().st_mtime_ns for path in checkpoints(out)}
    again = pretrain(MODEL, CFG, data, val=val, out=out, run_cfg=RUN, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in checkpoints(out)} == files
    assert again.step == 24
    assert again.records == run.records
    for a, b in zip(again.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_resume_false_overwrites_nothing(data, straight):
    with pytest.raises(FileExistsError, match="holds checkpoints, and resume is False"):
        pretrain(MODEL, CFG, data, out=straight[1], resume=False, device="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"train_cfg": replace(CFG, muon_peak_lr=0.03)},
            r"train: muon_peak_lr is 0.03",
        ),
        ({"train_cfg": replace(CFG, seed=1)}, "train: seed is 1"),
        ({"train_cfg": replace(CFG, betas=(0.8, 0.95))}, r"train: betas is \[0.8"),
        ({"model_cfg": replace(MODEL, d_model=64)}, "model: d_model is 64"),
        ({"data": open_tokens("moby-dick", "val")}, "data: tokens is 120500"),
    ],
)
def test_a_configuration_that_differs_is_named(data, straight, change, message):
    args = {"model_cfg": MODEL, "train_cfg": CFG, "data": data, **change}
    with pytest.raises(ValueError, match=message):
        pretrain(**args, out=straight[1], device="cpu")


def test_other_optimizers_are_refused(data, straight):
    with pytest.raises(CheckpointError, match="this run has"):
        pretrain(
            MODEL, CFG, data, out=straight[1], optimizers=adamw_alone, device="cpu"
        )


def test_a_full_disk_ends_the_run_and_keeps_the_older_checkpoint(
    data, tmp_path, monkeypatch
):
    from stacklm.train import checkpoint

    real, saved = checkpoint.write_atomically, []

    def fills_up(path, payload):
        if saved:
            raise OSError(28, "No space left on device")
        saved.append(path)
        real(path, payload)

    monkeypatch.setattr(checkpoint, "write_atomically", fills_up)
    with pytest.raises(OSError, match=r"step-00000006.* is intact.*Make room"):
        pretrain(MODEL, CFG, data, out=tmp_path, run_cfg=RUN, device="cpu")
    assert [read_checkpoint(path).step for path in checkpoints(tmp_path)] == [6]


def test_skipped_steps_in_a_row_end_the_run(data, tmp_path):
    build = spoiling(7, 8, *range(10, 20))
    run_cfg = replace(RUN, max_skips=3)
    with pytest.raises(DivergedError, match=r"steps 10 to 12 .* 3 in a row"):
        pretrain(
            MODEL,
            CFG,
            data,
            out=tmp_path,
            run_cfg=run_cfg,
            optimizers=build,
            device="cpu",
        )
    records = read_metrics(tmp_path / "metrics.jsonl")
    skipped = [record["step"] for record in records if record["skipped"]]
    assert skipped == [7, 8, 10, 11, 12]  # 9 was good, so the count began again
    assert records[-1]["grad_norm"] is None
    newest = read_checkpoint(checkpoints(tmp_path)[-1])
    assert (newest.step, newest.state["skips"]) == (12, 2)
    assert all(t.isfinite().all() for t in newest.tensors.values())


def test_the_count_of_skipped_steps_survives_a_stop(data, tmp_path):
    args = {"out": tmp_path, "run_cfg": replace(RUN, max_skips=3), "device": "cpu"}
    stopped = Interrupting(data, 5)
    run = pretrain(MODEL, CFG, stopped, optimizers=spoiling(4, 5), **args)
    assert (run.step, run.skips) == (6, 2)
    with pytest.raises(DivergedError, match=r"steps 4 to 6 .* 3 in a row"):
        pretrain(MODEL, CFG, data, optimizers=spoiling(0), **args)
