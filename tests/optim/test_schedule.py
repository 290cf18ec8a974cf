"""Warmup–Stable–Decay: the book's numbers, its edges, and what drives an optimizer."""

import copy
import doctest
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import LambdaLR

import stacklm.optim.schedule as schedule
from stacklm.config import TrainConfig
from stacklm.optim import (
    SHAPES,
    build_optimizers,
    wsd_lr,
    wsd_lr_branch,
    wsd_multiplier,
)

RUN = {"warmup_steps": 2_000, "total_steps": 38_147, "decay_frac": 0.1}
RUN_30B = {"warmup_steps": 2_000, "total_steps": 57_220, "decay_frac": 0.1}
SHORT = {"peak_lr": 1.0, "warmup_steps": 10, "total_steps": 100}


def muon_lr(step, run=RUN):
    return wsd_lr(step, peak_lr=0.02, **run)


def test_the_warmup_trains_at_step_0_and_arrives_at_the_peak():
    assert muon_lr(0) == 0.02 / 2_000 == 1e-5
    assert muon_lr(999) == 0.01
    assert muon_lr(1_998) == pytest.approx(0.02 * 1_999 / 2_000, rel=1e-15)
    assert muon_lr(1_999) == muon_lr(2_000) == 0.02


def test_the_stable_phase_ends_at_step_34_333_which_still_runs_at_the_peak():
    assert TrainConfig().first_decay_step == 34_333
    assert muon_lr(34_332) == muon_lr(34_333) == 0.02
    assert muon_lr(34_334) == 0.02 * (1 - math.sqrt(1 / 3_814))


def test_the_last_step_is_small_and_the_next_is_zero_for_ever():
    assert f"{muon_lr(38_146):.2e}" == "2.62e-06"
    assert [muon_lr(step) for step in (38_147, 38_148, 10**9)] == [0, 0, 0]


def test_the_budget_of_30_billion_tokens():
    assert TrainConfig(total_steps=57_220).decay_steps == 5_722
    assert muon_lr(51_498, RUN_30B) == 0.02 > muon_lr(51_499, RUN_30B)
    quarter = 51_498 + 5_722 / 4  # 52,928.5: between two steps
    around = [int(quarter), int(quarter) + 1]
    muon = [muon_lr(step, RUN_30B) for step in around]
    adamw = [wsd_lr(step, peak_lr=3e-3, **RUN_30B) for step in around]
    assert sum(muon) / 2 == pytest.approx(0.01, rel=1e-6)
    assert sum(adamw) / 2 == pytest.approx(1.5e-3, rel=1e-6)
    assert schedule.decayed(0.25) == 0.5


def test_every_phase_against_the_formula_in_other_words():
    # The schedule of the whole run in arrays, without a branch on the step.
    steps = np.arange(120)
    ramp = np.minimum((steps + 1) / 10, 1)
    progress = np.clip((steps - 60) / 40, 0, 1)
    for shape, left in {
        "1-sqrt": 1 - np.sqrt(progress),
        "linear": 1 - progress,
        "cosine": np.cos(np.pi * progress / 2) ** 2,
        "exponential": None,
    }.items():
        for final in (0.05, 0.5):
            if left is None:
                tail = np.exp(np.log(final) * progress)
            else:
                tail = final + (1 - final) * left
            args = {"decay_steps": 40, "final_frac": final, "shape": shape}
            ours = [wsd_lr(int(t), **SHORT, **args) for t in steps]
            np.testing.assert_allclose(ours, ramp * tail, rtol=1e-12)


def hugging_face_wsd(step, warmup, stable, decay, decay_type, min_lr_ratio):
    """What transformers documents for get_wsd_schedule (Optimization, Schedules,
    https://huggingface.co/docs/transformers/main_classes/optimizer_schedules), with its
    linear warmup: from the minimum up to the peak, a plateau, a decay down to the
    minimum. Its warmup is step / warmup, so its step 0 stands still where the minimum
    is 0.
    """

    def floor(left):
        return min_lr_ratio + (1 - min_lr_ratio) * left

    if step < warmup:
        return floor(step / warmup)
    done = min(1.0, max(0, step - warmup - stable) / decay)
    if decay_type == "cosine":
        return floor(0.5 + 0.5 * math.cos(math.pi * done))
    return floor({"linear": 1 - done, "1-sqrt": 1 - done**0.5}[decay_type])


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("shape", ["1-sqrt", "linear", "cosine"])
def test_agrees_with_hugging_face_from_the_end_of_the_warmup_on(shape, floor):
    length = {"warmup_steps": 10, "total_steps": 70, "decay_steps": 20}
    ours = wsd_multiplier(**length, final_frac=floor, shape=shape)
    theirs = [hugging_face_wsd(t, 10, 40, 20, shape, floor) for t in range(100)]
    for step in range(10, 100):
        assert ours(step) == pytest.approx(theirs[step], abs=1e-15)
    if floor == 0:  # theirs is one step late
        assert [ours(t) for t in range(10)] == pytest.approx(theirs[1:11])


def test_decay_steps_win_over_decay_frac():
    args = {"decay_frac": 0.5, "decay_steps": 10}
    assert wsd_lr(90, **SHORT, **args) == 1.0 > wsd_lr(91, **SHORT, **args)


def test_decay_frac_is_cut_to_whole_steps_as_in_train_config():
    cfg = TrainConfig(total_steps=37, warmup_steps=0, decay_frac=0.3)
    args = {"peak_lr": 1.0, "warmup_steps": 0, "total_steps": 37, "decay_frac": 0.3}
    falling = [t for t in range(37) if wsd_lr(t, **args) < 1]
    assert falling[0] == cfg.first_decay_step + 1 == 27
    assert wsd_lr(99, **SHORT) < wsd_lr(81, **SHORT) < wsd_lr(80, **SHORT)  # 0.2


@pytest.mark.parametrize("off", [{"decay_steps": 0}, {"decay_frac": 0.0}])
def test_without_decay_the_peak_holds_until_the_end(off):
    assert [wsd_lr(t, **SHORT, **off) for t in (98, 99, 100)] == [1, 1, 0]


def test_without_warmup_step_0_runs_at_the_peak():
    args = {"peak_lr": 1.0, "warmup_steps": 0, "total_steps": 10, "decay_steps": 2}
    assert [wsd_lr(t, **args) for t in (0, 7, 8, 10)] == [1, 1, 1, 0]


def test_the_shortest_runs():
    for lengths, rates in [
        ((0, 1, 0), [1, 0]),
        ((1, 1, 0), [1, 0]),
        ((0, 1, 1), [1, 0]),
        ((2, 4, 2), [0.5, 1, 1, 1 - math.sqrt(0.5), 0]),
    ]:
        names = ("warmup_steps", "total_steps", "decay_steps")
        run = wsd_multiplier(**dict(zip(names, lengths, strict=True)))
        assert [run(t) for t in range(len(rates))] == rates


def test_numpy_integers_are_steps_too():
    assert wsd_lr(np.int64(5), **SHORT) == wsd_lr(5, **SHORT) == 0.6


def test_a_branch_equals_the_run_whose_length_was_known():
    branch = {"warmup_steps": 2_000, "stable_steps": 32_333, "decay_steps": 3_814}
    for step in (0, 1_999, 20_000, 34_332, 34_333, 34_334, 36_000, 38_146, 38_147):
        assert wsd_lr_branch(step, peak_lr=0.02, **branch) == muon_lr(step)


def test_a_branch_has_its_own_floor_and_shape():
    branch = {"peak_lr": 1.0, "warmup_steps": 5, "decay_steps": 20}
    known = {"peak_lr": 1.0, "warmup_steps": 5, "decay_steps": 20, "total_steps": 55}
    form = {"final_frac": 0.1, "shape": "exponential"}
    for step in (34, 35, 45, 54, 55, 70):
        rate = wsd_lr_branch(step, stable_steps=30, **branch, **form)
        assert rate == wsd_lr(step, **known, **form)
    assert rate == 0.1


def test_branches_of_one_trunk_share_it():
    for stable in (0, 1, 500):
        for decay in (0, 1, 200):
            lengths = {"stable_steps": stable, "decay_steps": decay}
            trunk = {"peak_lr": 1.0, "warmup_steps": 10}
            rates = [wsd_lr_branch(t, **trunk, **lengths) for t in range(720)]
            assert rates[:10] == [(t + 1) / 10 for t in range(10)]
            assert set(rates[10 : 10 + stable]) <= {1.0}
            left = [1 - math.sqrt(k / decay) for k in range(decay)]
            assert rates[10 + stable : 10 + stable + decay] == pytest.approx(left)
            assert set(rates[10 + stable + decay :]) == {0.0}


def test_plotting_a_schedule_changes_nothing():
    run = wsd_multiplier(warmup_steps=10, total_steps=100, final_frac=0.1)
    forwards = [run(t) for t in range(130)]
    assert [run(t) for t in reversed(range(130))] == forwards[::-1]
    assert [run(t) for t in range(130)] == forwards
    clones = (pickle.loads(pickle.dumps(run)), copy.deepcopy(run))
    assert all([clone(t) for t in range(130)] == forwards for clone in clones)


def test_lambda_lr_keeps_the_peak_of_every_group_over_both_optimizers():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    muon, adamw = build_optimizers(
        model,
        muon_lr=0.02,
        adamw_lr=3e-3,
        route={"0.weight": "muon", "1.weight": "adamw"},
    )
    extra = [("extra", torch.nn.Parameter(torch.ones(2)))]
    adamw.add_param_group({"params": extra, "lr": 0.5})
    run = wsd_multiplier(warmup_steps=3, total_steps=12, decay_steps=4)
    both = [LambdaLR(optimizer, run) for optimizer in (muon, adamw)]
    groups = [group for o in (muon, adamw) for group in o.param_groups]
    peaks = [0.02] * len(muon.param_groups) + [3e-3] * (len(groups) - 2) + [0.5]
    seen = []
    for step in range(14):
        lrs = [group["lr"] for group in groups]
        assert lrs == [peak * run(step) for peak in peaks]
        seen.append(lrs)
        model(torch.ones(1, 4)).sum().backward()
        for optimizer, scheduler in zip((muon, adamw), both, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    assert len(set(map(tuple, seen))) == 7  # 1/3, 2/3, 1, three of the decay, and 0
    assert muon.param_groups[0]["initial_lr"] == 0.02


def test_lambda_lr_resumes_from_its_state():
    run = wsd_multiplier(warmup_steps=3, total_steps=12, decay_steps=4)
    rates = []
    for resume in (False, True):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.02)
        scheduler = LambdaLR(optimizer, run)
        rates.append([])
        for step in range(12):
            if resume and step == 6:
                saved = scheduler.state_dict(), optimizer.state_dict()
                optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
                scheduler = LambdaLR(optimizer, run)
                scheduler.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
            rates[-1].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    assert rates[0] == rates[1]


@st.composite
def runs(draw):
    warmup, stable, decay = (draw(st.integers(0, 60)) for _ in range(3))
    shape = draw(st.sampled_from(SHAPES))
    least = 1e-6 if shape == "exponential" else 0.0
    return {
        "warmup_steps": warmup,
        "total_steps": max(1, warmup + stable + decay),
        "decay_steps": decay,
        "final_frac": draw(st.floats(least, 1.0)),
        "shape": shape,
    }


@settings(derandomize=True, max_examples=150, deadline=None)
@given(runs(), st.floats(0, 1e3))
def test_any_run_rises_holds_and_falls_between_its_bounds(run, peak):
    multiplier = wsd_multiplier(**run)
    total, warmup = run["total_steps"], run["warmup_steps"]
    first_decay = total - run["decay_steps"]
    values = [multiplier(t) for t in range(total + 5)]
    assert all(0 <= v <= 1 for v in values)
    assert all(v > 0 for v in values[:total])  # every step of the run trains
    assert values[:warmup] == sorted(values[:warmup])
    if run["decay_steps"]:
        assert set(values[max(0, warmup - 1) : first_decay + 1]) == {1.0}
    tail = values[first_decay:]
    assert tail == sorted(tail, reverse=True)
    assert min(tail) == run["final_frac"] == values[total]
    assert wsd_lr(total // 2, peak_lr=peak, **run) == peak * values[total // 2]


def test_examples_in_the_docstrings():
    result = doctest.testmod(schedule)
    assert result.attempted >= 8
    assert result.failed == 0
