"""The estimates for GPUs are the arithmetic that they claim to be."""

import math

import pytest

from stacklm.bench import clusters
from stacklm.config import count_params
from stacklm.optim import newton_schulz_flops


def test_the_models_have_as_many_parameters_as_their_names_say():
    # Published counts; ours have the gains of QK-norm besides.
    named = {
        "Stack-100M": 101_353_728,
        "1.1B": 1_100_048_384,
        "8B": 8_030_261_248,
        "70B": 70_553_706_496,
    }
    assert set(clusters.MODELS) == set(named)
    for model, cfg in clusters.MODELS.items():
        assert count_params(cfg).total == pytest.approx(named[model], rel=5e-6)


def test_eight_gpus_share_everything_evenly():
    found = clusters.estimate("Stack-100M", 8)
    reached = 0.40 * 989e12
    assert found.matrices == 210
    assert found.idle == 0
    # 1.038 TFLOP by eight; no rank has more than one matrix above that.
    even = 1.038e12 / 8 / reached
    most = newton_schulz_flops(512, 1408) / reached
    assert even * 0.999 <= found.terms["products"] <= even + most
    # In at 4 bytes, out at 2, seven eighths of 84,541,440 entries, by eight.
    wire = 84_541_440 / 8 * 7 / 8 * 6 / (450e9 * 0.84)
    assert wire <= found.terms["wire"] <= 1.1 * wire
    # Seven peers, six exchanges, and three rounds of agreement there and back.
    assert found.terms["messages"] == pytest.approx((7 * 6 + 6) * 6e-6)
    assert found.seconds == sum(found.terms.values())
    assert found.held == 12 * 84_541_440 / 8


def test_more_gpus_than_matrices_wait_for_the_largest():
    found = clusters.estimate("Stack-100M", 1024)
    assert found.idle == 1 - 210 / 1024
    largest = newton_schulz_flops(512, 1408) / (0.40 * 989e12)
    assert found.terms["products"] == pytest.approx(largest)
    assert found.terms["messages"] > 0.9 * found.seconds
    # The bytes of one whole matrix come in over the network, and go out.
    rows = 1408 - math.ceil(1408 / 1024)
    wire = rows * 512 * 6 / (50e9 * 0.84)
    assert found.terms["wire"] == pytest.approx(wire, rel=0.01)


def test_training_is_six_flops_per_parameter_and_token():
    found = clusters.estimate("8B", 64, tokens=1_000_000)
    parameters = count_params(clusters.MODELS["8B"]).total
    want = 6 * parameters * 1e6 / 64 / (0.40 * 989e12)
    assert found.training == pytest.approx(want)
    assert found.share == found.seconds / (found.seconds + found.training)


def test_the_table_has_every_model_on_every_number_of_gpus():
    lines = clusters.table().splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [
        [model, str(gpus)] for model in clusters.MODELS for gpus in (8, 64, 1024)
    ]
    step = float(lines[0].split()[7])
    assert step == pytest.approx(1e3 * clusters.estimate("Stack-100M", 8).seconds, 0.01)
