"""Speed is counted, not guessed: tokens, FLOPs and shares fit together."""

import time

import pytest
import torch

from stacklm.config import TrainConfig, flops_per_token, toy_config
from stacklm.notebook import throughput as module
from stacklm.notebook.throughput import Throughput, throughput

SHORT = TrainConfig(
    warmup_steps=1,
    total_steps=10,
    micro_batch_size=2,
    seq_len=16,
    grad_accum_steps=2,
)


def test_figures_fit_together():
    found = throughput(toy_config(), SHORT, steps=2)
    assert found.tokens_per_second > 0
    assert 0 < found.optimizer_share < 1
    per_token = found.flops_per_second / found.tokens_per_second
    assert per_token == pytest.approx(flops_per_token(toy_config(), 16))
    assert found.mfu(found.flops_per_second) == 1


def test_tokens_of_all_micro_batches_count_and_warmup_does_not(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(module._Clock, "now", lambda self: float(next(now)))
    found = throughput(toy_config(), SHORT, steps=3)
    # Each step reads the clock at its ends and around two optimizers: five ticks in
    # all, two of them inside.
    assert found.tokens_per_second == pytest.approx(2 * 2 * 16 / 5)
    assert found.optimizer_share == pytest.approx(2 / 5)


def test_waiting_in_an_optimizer_raises_its_share(monkeypatch):
    step = torch.optim.AdamW.step

    def slow(self, closure=None):
        time.sleep(0.3)
        return step(self, closure)

    monkeypatch.setattr(module, "WARMUP", 0)
    monkeypatch.setattr(torch.optim.AdamW, "step", slow)
    # The hooks are around the class's step, so the sleep is outside of them unless
    # the patched step is wrapped, which an instance does when it is made.
    assert throughput(toy_config(), SHORT, steps=1).optimizer_share > 0.3


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        throughput(toy_config(), SHORT, steps=0)


def test_mfu_is_a_fraction_of_the_peak():
    assert Throughput(1.0, 0.1, 5e12).mfu(1e13) == 0.5
