"""Newton–Schulz written out once more, for checks only.

The checks must not compare ``stacklm.optim`` with itself, so this shares nothing with
it: neither code nor constants.
"""

import torch

# Keller Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024).
A, B, C = 3.4445, -4.7750, 2.0315


def quintic_iterates(sigma: torch.Tensor, steps: int) -> torch.Tensor:
    """Apply p(σ) = Aσ + Bσ³ + Cσ⁵ ``steps`` times.

    Args:
        sigma: Singular values, any shape.
        steps: How often.

    Returns:
        A tensor of the same shape.
    """
    for _ in range(steps):
        sigma = A * sigma + B * sigma**3 + C * sigma**5
    return sigma


def spectrum_after(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    """Return the singular values after Newton–Schulz, without multiplying a matrix.

    Args:
        matrix: Not zero, of shape (m, n).
        steps: Newton–Schulz steps.

    Returns:
        min(m, n) singular values in float64, in no particular order.
    """
    sigma = torch.linalg.svdvals(matrix.double())
    return quintic_iterates(sigma / sigma.norm(), steps).abs()


def orthogonalize(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Run Newton–Schulz on one matrix or on a stack, in its own dtype.

    Args:
        matrix: Not zero, of shape (..., m, n).
        steps: Newton–Schulz steps.

    Returns:
        A tensor of the same shape.
    """
    x = matrix / matrix.norm(dim=(-2, -1), keepdim=True)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(steps):
        gram = x @ x.mT
        x = A * x + (B * gram + C * (gram @ gram)) @ x
    return x.mT if tall else x


def gaussian(
    m: int, n: int, seed: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return a standard normal matrix of shape (m, n), the same for the same seed.

    Args:
        m: Rows.
        n: Columns.
        seed: Seed of its own generator; the global one is left alone.
        dtype: Floating-point type.

    Returns:
        The matrix.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, n, generator=generator, dtype=torch.float64).to(dtype)
