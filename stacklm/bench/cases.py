"""The matrices that are orthogonalized, and the baseline.

Legend: K matrices of m x n, r = min(m, n). Source of the baseline: Jordan 2024, the
listing of Newton–Schulz, in the precision of its input.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from stacklm.config import StackConfig
from stacklm.optim.newton_schulz import COEFFICIENTS


def block_shapes(cfg: StackConfig | None = None) -> list[tuple[int, int]]:
    """Shapes of the matrices of one block, in the order in which the model has them.

    Args:
        cfg: Of the model; left out, Stack-100M.

    Returns:
        Seven shapes (m, n): wq, wk, wv, wo, w_gate, w_up, w_down.
    """
    cfg = cfg or StackConfig()
    d, inner = cfg.d_model, cfg.intermediate
    q, kv = cfg.n_heads * cfg.head_dim, cfg.n_kv_heads * cfg.head_dim
    return [(q, d), (kv, d), (kv, d), (d, q), (inner, d), (inner, d), (d, inner)]


def random_matrices(blocks: int, device="cpu", seed: int = 0) -> list[Tensor]:
    """Gaussian matrices in fp32, as many as ``blocks`` blocks of Stack-100M have.

    Args:
        blocks: 30 for all 210 matrices, 3 for a tenth.
        device: Where they are put.
        seed: Of the random numbers.

    Returns:
        7*blocks matrices.
    """
    rng = torch.Generator().manual_seed(seed)
    shapes = block_shapes() * blocks
    return [torch.randn(s, generator=rng).to(device) for s in shapes]


def plain_newton_schulz(G: Tensor, steps: int = 5) -> Tensor:
    """The form that one writes first: one matrix, sums apart from the products.

    Args:
        G: (m, n).
        steps: Number of Newton–Schulz steps.

    Returns:
        (m, n) in the dtype of ``G``.

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
    """
    a, b, c = COEFFICIENTS
    X = G.mT if G.size(0) > G.size(1) else G
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.mT if G.size(0) > G.size(1) else X


def with_spectrum(m: int, n: int, sigma: Tensor, seed: int = 0) -> Tensor:
    """A float64 m x n matrix with chosen singular values and random directions.

    Args:
        m: Rows.
        n: Columns.
        sigma: (min(m, n),) singular values.
        seed: Of the directions.

    Returns:
        (m, n) in float64.
    """
    rng = torch.Generator().manual_seed(seed)
    r = min(m, n)
    U, V = (
        torch.linalg.qr(torch.randn(k, r, generator=rng, dtype=torch.float64)).Q
        for k in (m, n)
    )
    return U * sigma.double() @ V.mT


def _one_dominant(r: int) -> Tensor:
    return torch.cat([torch.ones(1), torch.full((r - 1,), 1e-4)])


# {name: r -> singular values}: what breaks careless code.
SPECTRA: dict[str, Callable[[int], Tensor]] = {
    "condition 1e10": lambda r: torch.logspace(0, -10, r),
    "rank deficient": lambda r: (torch.arange(r) < (r + 3) // 4).float(),
    "one dominant": _one_dominant,
    "tiny": lambda r: 1e-28 * torch.linspace(0.1, 1, r),
    "huge": lambda r: 1e30 * torch.linspace(0.1, 1, r),
}


def hard_matrices(m: int, n: int) -> dict[str, Tensor]:
    """One fp32 matrix per spectrum of ``SPECTRA``, and a Gaussian one.

    Args:
        m: Rows.
        n: Columns.

    Returns:
        {name of the spectrum: (m, n)}.
    """
    r = min(m, n)
    rng = torch.Generator().manual_seed(0)
    found = {"random": torch.randn(m, n, generator=rng)}
    for name, sigma in SPECTRA.items():
        found[name] = with_spectrum(m, n, sigma(r)).float()
    return found
