"""Newton–Schulz against an SVD, and against the numbers the book prints."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stacklm.optim
from stacklm.optim import (
    COEFFICIENTS,
    muon_scale,
    newton_schulz_flops,
    newton_schulz_step,
    orthogonalize_bucketed,
    quintic,
    unit_norm,
    zeropower_batched,
    zeropower_via_newtonschulz5,
)

quick = settings(max_examples=25, deadline=None, derandomize=True, database=None)
shapes = st.tuples(st.integers(1, 24), st.integers(1, 24))


@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (16, 16), (1, 7), (7, 1), (1, 1)])
@pytest.mark.parametrize("steps", [0, 1, 5, 7])
def test_equals_the_scalar_polynomial_on_the_singular_values(shape, steps, by_svd):
    torch.manual_seed(0)
    G = torch.randn(shape, dtype=torch.float64)
    got = zeropower_via_newtonschulz5(G, steps)
    # float64: 1e-16 of rounding, at most 3.4445**7 = 5,754 times larger.
    torch.testing.assert_close(got, by_svd(G, steps), atol=1e-11, rtol=0)


@given(shapes, st.integers(0, 2**31))
@quick
def test_equals_the_svd_for_any_shape(by_svd, shape, seed):
    G = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()
    torch.testing.assert_close(
        zeropower_via_newtonschulz5(G), by_svd(G), atol=1e-10, rtol=0
    )


@pytest.mark.parametrize("shape", [(48, 160), (160, 48), (32, 33)])
def test_fp32_is_within_its_rounding_of_float64(shape, spectra, matrix, by_svd):
    for name, sigma in spectra.items():
        G = matrix(*shape, sigma(min(shape))).float()
        got = zeropower_via_newtonschulz5(G)
        # 6e-8 of rounding grows by at most 3.4445**5 = 485: 3e-5.
        error = (got - by_svd(G)).abs().max().item()
        assert error < 3e-5, f"{name}: {error}"


def test_coefficients_are_jordans():
    assert COEFFICIENTS == (3.4445, -4.7750, 2.0315)


def test_quintic_is_the_polynomial_and_does_not_keep_one():
    a, b, c = COEFFICIENTS
    assert quintic(1.0) == pytest.approx(a + b + c) == pytest.approx(0.701, abs=1e-12)
    assert quintic(0.5) == pytest.approx(a / 2 + b / 8 + c / 32)
    sigma = torch.linspace(-1, 1, 9, dtype=torch.float64)
    torch.testing.assert_close(quintic(-sigma), -quintic(sigma))  # odd
    assert quintic(2.0, (1, 0, 1)) == 34


def test_one_step_is_the_quintic_for_a_matrix_and_for_a_stack(matrix):
    sigma = torch.linspace(0.1, 1, 6, dtype=torch.float64)
    X = torch.stack([matrix(6, 9, sigma, seed) for seed in range(3)])
    stepped = newton_schulz_step(X)  # (3, 6, 9)
    for k in range(3):
        got = torch.linalg.svdvals(stepped[k]).sort().values
        torch.testing.assert_close(got, quintic(sigma).sort().values)
        torch.testing.assert_close(newton_schulz_step(X[k]), stepped[k])
    other = newton_schulz_step(X, (2.0, -1.5, 0.5))
    torch.testing.assert_close(
        torch.linalg.svdvals(other[0]).sort().values,
        quintic(sigma, (2.0, -1.5, 0.5)).sort().values,
    )


def test_trace_of_an_ill_conditioned_matrix(matrix):
    """Smallest and largest singular value, step by step, as chapter 02 prints them."""
    G = matrix(256, 128, torch.logspace(-1, 1, 128, dtype=torch.float64))
    want = [
        (0.0026, 0.2645),
        (0.0091, 0.8253),
        (0.0314, 1.2021),
        (0.1079, 1.2022),
        (0.3658, 1.2023),
        (0.6818, 1.2023),
        (0.6819, 1.1344),
    ]
    for steps, (low, high) in enumerate(want):
        S = torch.linalg.svdvals(zeropower_via_newtonschulz5(G, steps))
        assert S.min().item() == pytest.approx(low, abs=6e-5)
        assert S.max().item() == pytest.approx(high, abs=6e-5)


@pytest.mark.parametrize(
    ("shape", "rms"), [((128, 512), 0.174), ((512, 512), 0.188), ((512, 1408), 0.190)]
)
def test_measured_rms_of_a_scaled_step_is_below_0_2(shape, rms):
    torch.manual_seed(0)
    O = zeropower_via_newtonschulz5(torch.randn(shape))  # noqa: E741
    got = (muon_scale(*shape) * O).square().mean().sqrt().item()
    assert got == pytest.approx(rms, abs=1e-3)  # the last digit the book prints
    U, _, Vh = torch.linalg.svd(torch.randn(64, 96), full_matrices=False)
    exact = (muon_scale(64, 96) * U @ Vh).square().mean().sqrt().item()
    assert exact == pytest.approx(0.2, rel=1e-5)  # only the exact factor gives 0.2


def test_muon_scale():
    assert muon_scale(512, 1408) == muon_scale(1408, 512) == 0.2 * 1408**0.5


def test_flops_of_stack_100m():
    per_shape = {
        (512, 512): (60, 4.027e9),
        (128, 512): (60, 0.189e9),
        (1408, 512): (60, 8.724e9),
        (512, 1408): (30, 8.724e9),
    }
    total = 0
    for shape, (count, flops) in per_shape.items():
        assert newton_schulz_flops(*shape) == pytest.approx(flops, rel=3e-3)
        total += count * newton_schulz_flops(*shape)
    assert total == pytest.approx(1.038e12, rel=1e-3)
    assert newton_schulz_flops(32_768, 512) == pytest.approx(173e9, rel=3e-3)


@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (16, 16)])
def test_flops_are_those_that_torch_counts(shape):
    from torch.utils.flop_counter import FlopCounterMode

    G = torch.randn(shape)
    with FlopCounterMode(display=False) as counter:
        zeropower_via_newtonschulz5(G, 3)
    assert counter.get_total_flops() == newton_schulz_flops(*shape, steps=3)


def test_launches_are_per_class_not_per_matrix():
    """Products of the 7 matrices of a block: 3 classes, 3 products, 5 steps."""
    shapes = [(8, 8), (8, 8), (4, 8), (4, 8), (12, 8), (12, 8), (8, 12)]
    dirs = [torch.randn(shape) for shape in shapes]

    def products(max_stack_bytes):
        with torch.profiler.profile(acc_events=True) as profile:
            orthogonalize_bucketed(dirs, max_stack_bytes=max_stack_bytes)
        names = ("aten::bmm", "aten::baddbmm")
        return sum(e.count for e in profile.key_averages() if e.key in names)

    assert products(2**20) == 3 * 3 * 5
    assert products(0) == 7 * 3 * 5


def test_unit_norm_is_the_frobenius_norm():
    torch.manual_seed(0)
    G = torch.randn(3, 5, 7, dtype=torch.float64)
    want = torch.stack([g / torch.linalg.matrix_norm(g) for g in G])
    torch.testing.assert_close(unit_norm(G), want)


def test_is_differentiable_in_float64():
    """A pure function: gradients flow, as for any torch function."""
    torch.manual_seed(0)
    G = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda g: zeropower_via_newtonschulz5(g, 2), (G,))


def test_every_public_name_has_a_docstring_and_exists():
    for name in stacklm.optim.__all__:
        thing = getattr(stacklm.optim, name)
        assert name == "COEFFICIENTS" or inspect.getdoc(thing), name
    assert zeropower_batched.__name__ == "zeropower_batched"
