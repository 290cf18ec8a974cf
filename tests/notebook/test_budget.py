"""The helpers of the budget: reasons of knobs, the noise scale, recorded figures."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from stacklm.config import TrainConfig
from stacklm.notebook.budget import REASONS, knobs, noise_scale, recorded

MEASURED = Path(__file__).parents[2] / "book" / "measured"


def test_every_knob_has_a_reason_and_no_reason_is_left_over():
    assert list(REASONS) == [field.name for field in fields(TrainConfig)]


def test_knobs_shows_the_values_of_the_run_it_is_given():
    lines = knobs(TrainConfig(muon_peak_lr=0.5, seed=7)).splitlines()
    assert "muon_peak_lr = 0.5" in lines
    assert "seed = 7" in lines
    assert max(map(len, lines)) <= 75


def test_noise_scale_of_gradients_with_a_known_one():
    rng = torch.Generator().manual_seed(3)
    samples = 2 + 6 * torch.randn(4096, 50, generator=rng, dtype=torch.float64)
    for size in (4, 32):
        means = list(samples.view(-1, size, 50).mean(1))
        assert noise_scale(means, size) == pytest.approx(9, rel=0.1)


def test_noise_scale_without_signal_is_infinite():
    assert noise_scale([torch.ones(2), -torch.ones(2)], 1) == float("inf")


def test_noise_scale_needs_two_gradients():
    with pytest.raises(ValueError, match=r"at least two gradients, got 1; cut"):
        noise_scale([torch.ones(2)], 1)


def test_recorded_figures_are_those_of_the_book_and_name_their_source():
    for file in MEASURED.glob("*.json"):
        assert recorded(file.stem)
    for gpu in recorded("published")["gpus"].values():
        assert gpu["source"]


def test_an_unknown_file_of_figures_is_named_with_those_that_are_there():
    with pytest.raises(FileNotFoundError, match=r"'nothing' .* only .*published"):
        recorded("nothing")
