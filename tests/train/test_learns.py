"""It learns, shortly; and the arithmetic of the long comparison is right."""

import math
from dataclasses import replace

import pytest
import torch

from stacklm.train import (
    RunConfig,
    adamw_alone,
    bench_loop,
    learns,
    muon_and_adamw,
    open_tokens,
    pretrain,
)
from stacklm.train.learns import steps_to, sweep
from stacklm.train.presets import PRESETS, override


def test_forty_steps_learn_and_muon_is_ahead():
    preset = PRESETS["toy"]
    short = replace(preset.train, total_steps=40, warmup_steps=5, seq_len=64)
    run_cfg = RunConfig(validate_every=20, validate_batches=2)
    data, val = (open_tokens("moby-dick", split) for split in ("train", "val"))
    ends = {}
    for build in (muon_and_adamw, adamw_alone):
        run = pretrain(
            preset.model,
            short,
            data,
            val=val,
            run_cfg=run_cfg,
            optimizers=build,
            device="cpu",
        )
        first = run.records[0]["loss"]
        assert first == pytest.approx(math.log(256), abs=0.2)  # knows nothing yet
        (_, middle), (_, ends[build]) = run.validation
        assert first - 1.5 > middle > ends[build]
    assert ends[muon_and_adamw] < ends[adamw_alone] < 3.6


@pytest.mark.parametrize("start", [1.0, 4.0, 0.125, 64.0])
def test_the_sweep_ends_between_two_worse_neighbours(start):
    tried = []

    def loss_at(lr):
        tried.append(lr)
        return abs(math.log2(lr) - 2.2)

    assert sweep(loss_at, start) == 4.0
    assert {2.0, 8.0} <= set(tried)
    assert len(tried) == len(set(tried))


def test_steps_to_a_loss_lie_on_the_line_between_two_points():
    curve = [(10, 4.0), (20, 3.0), (30, 2.0), (40, 2.5)]
    assert steps_to(curve, 2.75) == pytest.approx(22.5)
    assert steps_to(curve, 3.0) == 20
    assert steps_to(curve, 5.0) == 10
    assert steps_to(curve, 1.0) == math.inf


def test_both_commands_say_what_they_measure(capsys):
    for command, words in ((learns, "AdamW's final loss"), (bench_loop, "plain one")):
        with pytest.raises(SystemExit, match="0"):
            command.main(["--help"])
        assert words in capsys.readouterr().out


def test_the_clock_splits_a_step_into_outside_and_inside():
    tokens = open_tokens("moby-dick")
    small = ["micro_batch_size=1", "seq_len=8", "total_steps=5", "warmup_steps=1"]
    preset = override(PRESETS["toy"], small)
    for loop in bench_loop.LOOPS:
        steps = bench_loop.measure(loop, preset, tokens, bench_loop.Clock("cpu"))
        assert len(steps) == 3  # five begin; the first warms up, the last has no end
        assert all(outside > 0 and inside > 0 for outside, inside in steps)


def test_outside_is_what_the_optimizers_leave_of_a_step():
    ticks = iter([0.0, 1.0, 3.0, 10.0, 12.0, 17.0, 24.0])
    clock = bench_loop.Clock("cpu", lambda: next(ticks))
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    clock.watch(optimizer)
    for _ in range(2):
        clock.begin()
        optimizer.step()
    clock.begin()
    assert clock.steps() == [(9.0, 5.0)]  # from 10 to 24, inside from 12 to 17


def test_both_rates_of_the_pair_are_swept_until_neither_moves():
    asked = []

    def final(muon, adamw):
        asked.append((muon, adamw))
        x, y = math.log2(muon / 1e-2), math.log2(adamw / 4e-3)
        return (x - 2.2) ** 2 + (y + 1.2) ** 2 + 0.8 * (x - 2.2) * (y + 1.2)

    muon, adamw = learns._sweep_pair(final)
    assert (muon, adamw) == (0.04, 0.002)
    best = final(muon, adamw)
    for factor in (0.5, 2.0):  # interior in both directions, and both were looked at
        for other in ((muon * factor, adamw), (muon, adamw * factor)):
            assert other in asked
            assert final(*other) > best
