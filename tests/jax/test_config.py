"""What a configuration refuses, and what it works out."""

import dataclasses

import pytest

from stacklm.jax import MuonConfig
from stacklm.optim import COEFFICIENTS


def test_the_defaults_are_those_of_torch():
    config = MuonConfig()
    assert (config.impl, config.ns_steps, config.ns_dtype) == ("stacked", 5, "float32")
    assert (config.learning_rate, config.adam_learning_rate) == (0.02, 3e-3)
    assert (config.momentum, config.weight_decay, config.betas) == (
        0.95,
        0.1,
        (0.9, 0.95),
    )
    assert config.consistent_rms == 0.2
    assert config.coefficient_rows == (COEFFICIENTS,) * 5


def test_a_triple_per_step_is_kept():
    rows = ((4.0, -6.0, 2.0), (2.0, -1.5, 0.5))
    assert MuonConfig(ns_steps=2, coefficients=rows).coefficient_rows == rows


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        ("impl", "pytorch", ValueError, 'impl must be "optax" or "stacked", got'),
        ("ns_dtype", "float16", ValueError, 'must be "float32" or "bfloat16", got'),
        ("ns_steps", 0, ValueError, "at least 1, got 0"),
        ("ns_steps", 5.0, TypeError, "ns_steps must be of type int, got 5.0"),
        ("nesterov", 1, TypeError, "nesterov must be of type bool"),
        ("momentum", 1.0, ValueError, r"momentum must lie in \[0, 1\), got 1.0"),
        ("betas", (0.9, 1.0), ValueError, r"betas must lie in \[0, 1\)"),
        ("betas", 0.9, TypeError, "a tuple of two floats"),
        ("weight_decay", -0.1, ValueError, "at least 0, got -0.1"),
        ("adam_weight_decay", float("nan"), ValueError, "at least 0, got nan"),
        ("eps", "small", TypeError, "eps must be of type float"),
        ("learning_rate", "fast", TypeError, "a number or a schedule, got 'fast'"),
        ("adam_learning_rate", -1.0, ValueError, "at least 0, got -1.0"),
        ("learning_rate", float("inf"), ValueError, "finite"),
        ("consistent_rms", True, TypeError, "a number or None"),
        ("consistent_rms", -0.2, ValueError, "at least 0"),
        ("max_stack_bytes", 0, ValueError, "at least 1"),
        ("coefficients", (1.0, 2.0), ValueError, r"must be \(a, b, c\)"),
        ("coefficients", (), ValueError, r"must be \(a, b, c\)"),
        ("coefficients", (COEFFICIENTS,) * 4, ValueError, "got 4 for ns_steps=5"),
    ],
)
def test_a_wrong_value_is_refused(field, value, error, words):
    with pytest.raises(error, match=words):
        MuonConfig(**{field: value})


def test_bf16_is_for_stacks_only():
    with pytest.raises(ValueError, match='needs impl="stacked", got impl="optax"'):
        MuonConfig("optax", ns_dtype="bfloat16")
    assert MuonConfig("optax", ns_dtype="float32").ns_dtype == "float32"


def test_a_schedule_is_a_rate_and_a_config_cannot_be_changed():
    config = MuonConfig(learning_rate=lambda step: 0.1 / (step + 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.impl = "optax"
