"""All three forms train the toy alike; the judge of that is right."""

from dataclasses import replace

import pytest

from stacklm.jax import parity
from stacklm.optim import wsd_lr

SHORT = replace(parity.RUN, total_steps=40, warmup_steps=5)


def test_forty_steps_of_every_form_stay_within_two_percent():
    curves = {name: parity.train(f, SHORT, every=8) for name, f in parity.FORMS.items()}
    reference = curves["optax"]
    assert [step for step, _ in reference] == [8, 16, 24, 32, 40]
    assert reference[0][1] - 0.8 > reference[-1][1]  # it learns
    until = SHORT.first_decay_step
    for curve in curves.values():
        assert parity.largest_gap(curve, reference, until) < parity.TOLERANCE
    assert parity.largest_gap(curves["stacked fp32"], reference, until) < 1e-3
    assert curves["stacked bf16"] != reference  # its iteration is another one


def test_the_schedule_is_that_of_torch():
    rate = parity.schedule(SHORT, 0.01)
    for step in (0, 4, 5, 31, 32, 39):
        expected = wsd_lr(
            step, peak_lr=0.01, warmup_steps=5, total_steps=40, decay_frac=0.2
        )
        assert float(rate(step)) == pytest.approx(expected, rel=1e-6)


def test_the_gap_is_the_largest_of_the_constant_part():
    reference = [(10, 4.0), (20, 2.0), (30, 1.0)]
    curve = [(10, 4.04), (20, 1.9), (30, 5.0)]
    assert parity.largest_gap(curve, reference, 20) == pytest.approx(0.05)
    assert parity.largest_gap(curve, reference, 10) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="no validation up to step 5"):
        parity.largest_gap(curve, reference, 5)
    with pytest.raises(ValueError, match="must have the same steps"):
        parity.largest_gap(curve[:2], reference, 20)


def test_the_command_prints_the_curves_and_its_status(capsys, monkeypatch):
    losses = {"float32": 2.0, "bfloat16": 2.1}

    def train(form, run, every):
        assert (run.total_steps, every) == (30, 3)
        return [(3, 3.0), (24, losses[form.ns_dtype])]

    monkeypatch.setattr(parity, "train", train)
    assert parity.main(["--steps", "30"]) == 1
    out = capsys.readouterr().out
    assert "stacked bf16: at most 5.00% from optax up to step 24" in out
    losses["bfloat16"] = 2.01
    assert parity.main(["--steps", "30"]) == 0
