"""Sweeps: what a rung trains, what the line holds fixed, what answer it refuses."""

import math
from dataclasses import replace

import pytest

from stacklm.config import TrainConfig, toy_config
from stacklm.notebook import sweep as sweep_module
from stacklm.notebook.sweep import RATIO, Rung, lowest, spread, sweep
from stacklm.train import DivergedError, adamw_alone, open_tokens, pretrain

MODEL = toy_config(
    d_model=16, n_layers=1, n_heads=1, n_kv_heads=1, intermediate=16, max_seq_len=16
)
TRAIN = TrainConfig(
    warmup_steps=2,
    total_steps=6,
    micro_batch_size=2,
    seq_len=16,
    grad_accum_steps=1,
)


@pytest.fixture(scope="module")
def rung():
    text, held_out = (open_tokens("moby-dick", split) for split in ("train", "val"))
    return Rung(MODEL, TRAIN, text, held_out, val_batches=2)


@pytest.fixture(scope="module")
def run(rung):
    return rung.run(0.02, seed=1)


def test_a_run_holds_the_ratio_of_the_peaks(run):
    assert pytest.approx(20 / 3) == RATIO
    for record in run.records:
        assert record["muon_lr"] / record["adamw_lr"] == pytest.approx(RATIO)
    assert max(record["muon_lr"] for record in run.records) == 0.02


def test_a_run_is_that_of_pretrain(rung, run):
    train = replace(TRAIN, muon_peak_lr=0.02, adamw_peak_lr=0.02 / RATIO, seed=1)
    same = pretrain(MODEL, train, rung.data, device=None)
    ours = [record["loss"] for record in run.records]
    assert ours == [record["loss"] for record in same.records]


def test_it_validates_once_at_the_end(run):
    assert [done for done, _ in run.validation] == [TRAIN.total_steps]


def test_either_rate_and_any_field_can_be_set(rung):
    run = rung.run(0.02, 1e-3, warmup_steps=0)
    assert (run.records[0]["muon_lr"], run.records[0]["adamw_lr"]) == (0.02, 1e-3)
    with pytest.raises(TypeError, match="warm"):
        rung.run(0.02, warm=0)


def test_the_fallback_has_no_muon(rung):
    run = rung.run(0.02, 6e-4, optimizers=adamw_alone)
    assert run.muon is None
    assert run.records[2]["adamw_lr"] == 6e-4
    assert {record["muon_lr"] for record in run.records} == {0.0}


def test_a_sweep_has_one_loss_per_rate_and_seed(rung, run):
    losses = sweep(rung, [0.02, 0.04], seeds=(0, 1))
    assert list(losses) == [0.02, 0.04]
    assert losses[0.02][1] == run.validation[-1][1]
    assert len({loss for each in losses.values() for loss in each}) == 4


@pytest.mark.parametrize("grid", [[0.04, 0.02], [0.02, 0.02]])
def test_a_grid_must_ascend(rung, grid):
    with pytest.raises(ValueError, match="sort the grid"):
        sweep(rung, grid)
    with pytest.raises(ValueError, match="at least one seed"):
        sweep(rung, [0.02], seeds=())


def test_a_diverged_run_is_never_the_lowest(rung, monkeypatch):
    def diverge(*_args, **_fields):
        raise DivergedError("no finite loss")

    monkeypatch.setattr(sweep_module, "pretrain", diverge)
    assert rung.final_loss(1.0) == math.inf
    losses = {0.1: [3.0], 0.2: [2.0], 0.4: [rung.final_loss(0.4)]}
    assert lowest(losses) == 0.2


def test_a_loss_that_is_not_finite_is_infinite(rung, run, monkeypatch):
    last = {**run.records[-1], "val_loss": None}  # as JSON writes NaN
    broken = replace(run, records=[last])
    monkeypatch.setattr(sweep_module, "pretrain", lambda *_args, **_fields: broken)
    assert rung.final_loss(1.0) == math.inf


@pytest.mark.parametrize("losses", [[1, 2, 3], [3, 2, 1], [1]])
def test_a_lowest_point_at_an_end_is_refused(losses):
    with pytest.raises(ValueError, match="add grid points beyond"):
        lowest({0.01 * 2**k: [loss] for k, loss in enumerate(losses)})


def test_lowest_goes_by_the_mean_of_the_seeds():
    losses = {0.1: [3, 3], 0.2: [2.4, 2.4], 0.4: [1, 4], 0.8: [5, 5]}
    assert lowest(losses) == 0.2


def test_spread_is_best_to_worst():
    assert spread([2.5, 2.25, 3.0]) == 0.75
