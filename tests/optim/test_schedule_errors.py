"""What is no schedule, and what the message says about it."""

import math

import pytest

from stacklm.optim import wsd_lr, wsd_lr_branch, wsd_multiplier

SHORT = {"peak_lr": 1.0, "warmup_steps": 10, "total_steps": 100}

BAD = [
    ({"warmup_steps": 4, "decay_steps": 6, "total_steps": 7}, r"4 \+ 6 steps are more"),
    ({"warmup_steps": 81}, r"81 \+ 20 steps are more than total_steps = 100"),
    ({"total_steps": 0, "warmup_steps": 0}, "total_steps must be at least 1, got 0"),
    ({"total_steps": -5}, "total_steps must be at least 1, got -5"),
    ({"warmup_steps": -1}, "warmup_steps must be at least 0, got -1"),
    ({"decay_steps": -1}, "decay_steps must be at least 0, got -1"),
    ({"step": -1}, "step must be at least 0, got -1"),
    ({"decay_frac": 1.1}, "decay_frac must lie between 0 and 1, got 1.1"),
    ({"decay_frac": -0.1}, "decay_frac must lie between 0 and 1, got -0.1"),
    ({"decay_frac": 2.0, "decay_steps": 5}, "decay_frac must lie between 0 and 1"),
    ({"final_frac": 1.5}, "final_frac must lie between 0 and 1, got 1.5"),
    ({"final_frac": math.nan}, "final_frac must lie between 0 and 1, got nan"),
    ({"peak_lr": -0.02}, "peak_lr must be finite and at least 0, got -0.02"),
    ({"peak_lr": math.inf}, "peak_lr must be finite and at least 0, got inf"),
    ({"peak_lr": math.nan}, "peak_lr must be finite and at least 0, got nan"),
    ({"shape": "sqrt"}, "one of 1-sqrt, linear, cosine, exponential, got 'sqrt'"),
    ({"shape": "exponential"}, "never reaches 0, got final_frac=0.0; name"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=lambda case: str(case)[:40])
def test_values_that_make_no_schedule(change, message):
    with pytest.raises(ValueError, match=message):
        wsd_lr(**{"step": 0, **SHORT, **change})


@pytest.mark.parametrize("value", [8.0, True, "8", None])
@pytest.mark.parametrize("name", ["step", "warmup_steps", "total_steps", "decay_steps"])
def test_steps_are_whole_steps(name, value):
    if name == "decay_steps" and value is None:
        assert wsd_lr(5, **SHORT, decay_steps=None) == 0.6
        return
    with pytest.raises(TypeError, match=f"{name} must be an int, got {value!r}"):
        wsd_lr(**{"step": 0, **SHORT, name: value})


@pytest.mark.parametrize("name", ["peak_lr", "decay_frac", "final_frac"])
@pytest.mark.parametrize("value", ["0.1", True, None, [0.1]])
def test_rates_and_fractions_are_numbers(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        wsd_lr(**{"step": 0, **SHORT, name: value})


def test_the_multiplier_refuses_early_and_its_steps_late():
    lengths = {"warmup_steps": 4, "total_steps": 20}
    with pytest.raises(ValueError, match=r"4 \+ 17 steps are more"):
        wsd_multiplier(**lengths, decay_steps=17)
    run = wsd_multiplier(**lengths)
    with pytest.raises(ValueError, match="step must be at least 0"):
        run(-1)
    with pytest.raises(TypeError, match=r"step must be an int, got 1\.0"):
        run(1.0)


def test_a_branch_names_what_is_wrong():
    good = {"peak_lr": 1.0, "warmup_steps": 1, "stable_steps": 1, "decay_steps": 1}
    for name in ("warmup_steps", "stable_steps", "decay_steps"):
        with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
            wsd_lr_branch(0, **{**good, name: -1})
        with pytest.raises(TypeError, match=rf"{name} must be an int, got 1\.5"):
            wsd_lr_branch(0, **{**good, name: 1.5})
    with pytest.raises(ValueError, match="shape must be one of"):
        wsd_lr_branch(0, **good, shape="square")
