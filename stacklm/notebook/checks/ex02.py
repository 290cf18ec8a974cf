"""Exercise 2: the RMS of a Muon update, before and after its shape factor."""

import functools

import torch

from stacklm.notebook.checking import Check, Mistake
from stacklm.notebook.checks import plain

SHAPES = ((1408, 512), (512, 1408), (96, 96), (32, 128))


def _rms(matrix: torch.Tensor) -> float:
    return matrix.double().square().mean().sqrt().item()


def _rms_of_orthogonal(m: int, n: int) -> float:
    """Measure the RMS of a matrix with orthonormal short side, made by QR."""
    return _rms_of_columns(max(m, n), min(m, n))


@functools.cache
def _rms_of_columns(long: int, short: int) -> float:
    q, _ = torch.linalg.qr(plain.gaussian(long, short, seed=0, dtype=torch.float64))
    return _rms(q)


IDEAL = Check(
    key="02a",
    task="ideal_rms(m, n)",
    cases=lambda: list(SHAPES),
    expected=_rms_of_orthogonal,
    verified=(
        "Your formula gives the RMS measured on orthonormal matrices from a QR "
        "decomposition, for all four shapes."
    ),
    mistakes=(
        Mistake(
            "min for max",
            lambda m, n: min(m, n) ** -0.5,
            "There are min(m, n) singular values of 1, so the squares sum to min(m, "
            "n); divided by m·n entries that leaves the larger side below the root.",
        ),
        Mistake(
            "√(mn)",
            lambda m, n: (m * n) ** -0.5,
            "1/√(mn) is the RMS of a matrix of Frobenius norm 1. A semi-orthogonal "
            "matrix has Frobenius norm √min(m, n).",
        ),
        Mistake(
            "no square root",
            lambda m, n: 1 / max(m, n),
            "That is the mean of the squares; the RMS is its square root.",
        ),
        Mistake(
            "rows",
            lambda m, n: m**-0.5,
            "You divide by the number of rows. That is right for a tall matrix only: a "
            "wide one has more columns than rows.",
        ),
        Mistake(
            "columns",
            lambda m, n: n**-0.5,
            "You divide by the number of columns. That is right for a wide matrix "
            "only; w_gate is tall.",
        ),
    ),
)

FACTOR = Check(
    key="02b",
    task="muon_factor(m, n)",
    cases=lambda: list(SHAPES),
    expected=lambda m, n: 0.2 / _rms_of_orthogonal(m, n),
    verified=(
        "Multiplied by your factor, orthonormal matrices of all four shapes have an "
        "RMS of 0.2."
    ),
    mistakes=(
        Mistake(
            "min for max",
            lambda m, n: 0.2 * min(m, n) ** 0.5,
            "You scale by the smaller side. The RMS to undo is 1/√max(m, n).",
        ),
        Mistake(
            "√(mn)",
            lambda m, n: 0.2 * (m * n) ** 0.5,
            "√(mn) would undo the RMS of a matrix of Frobenius norm 1; yours has "
            "Frobenius norm √min(m, n).",
        ),
        Mistake(
            "0.2 left out",
            lambda m, n: max(m, n) ** 0.5,
            "That brings the RMS to 1. AdamW's updates, which share the learning "
            "rate's scale, have about 0.2.",
        ),
        Mistake(
            "√max(1, m/n)",
            lambda m, n: max(1, m / n) ** 0.5,
            "That is the factor of the original Muon, which does not make the RMS "
            "equal between shapes. Asked is the one that brings it to 0.2.",
        ),
        Mistake(
            "divided",
            lambda m, n: 0.2 / max(m, n) ** 0.5,
            "You divide by √max(m, n). The RMS is 1/√max(m, n) already; to undo it, "
            "multiply.",
        ),
    ),
)


def _rms_from_spectrum(matrix: torch.Tensor) -> float:
    """Compute the RMS from the singular values, which the quintic moves one by one."""
    m, n = matrix.shape
    squares = plain.spectrum_after(matrix, steps=5).square().sum()
    return (0.2 * max(m, n) ** 0.5 * (squares / (m * n)).sqrt()).item()


def _scaled(matrix: torch.Tensor, side=max, gain: float = 0.2) -> torch.Tensor:
    return gain * side(matrix.shape) ** 0.5 * plain.orthogonalize(matrix)


def _exact(matrix: torch.Tensor) -> float:
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    return 0.2 * max(matrix.shape) ** 0.5 * _rms(u @ vh)


MEASURED = Check(
    key="02c",
    task="measured_rms(G)",
    cases=lambda: [
        (plain.gaussian(352, 128, seed=0),),  # w_gate at a quarter of its size
        (plain.gaussian(32, 128, seed=1),),
        (plain.gaussian(96, 96, seed=2),),
    ],
    expected=_rms_from_spectrum,
    rtol=1e-3,
    verified=(
        "Your RMS agrees with the one computed from the singular values alone, each "
        "sent through the quintic five times."
    ),
    mistakes=(
        Mistake(
            "exact polar factor",
            _exact,
            "That is the RMS for the exact polar factor, 0.2 by construction. Measure "
            "what five Newton–Schulz steps return.",
        ),
        Mistake(
            "not scaled",
            lambda G: _rms(plain.orthogonalize(G)),
            "That is the RMS before the factor 0.2·√max(m, n).",
        ),
        Mistake(
            "min for max",
            lambda G: _rms(_scaled(G, side=min)),
            "You scale by the smaller side: with it the RMS depends on the shape.",
        ),
        Mistake(
            "0.2 left out",
            lambda G: _rms(_scaled(G, gain=1.0)),
            "The factor is 0.2·√max(m, n); the 0.2 is missing.",
        ),
        Mistake(
            "no square root",
            lambda G: _rms(_scaled(G)) ** 2,
            "That is the mean of the squares; the RMS is its square root.",
        ),
        Mistake(
            "Frobenius norm",
            lambda G: _scaled(G).norm().item(),
            "That is the Frobenius norm. The RMS divides it by √(m·n), the root of the "
            "number of entries.",
        ),
    ),
)

CHECKS = (IDEAL, FACTOR, MEASURED)
