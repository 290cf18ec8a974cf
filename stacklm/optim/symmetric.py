"""Products that come out symmetric, computed by half and mirrored.

    S = alpha*P@Q + beta*T,    S = S.mT

holds for X @ X.mT and for products of matrices that commute and are symmetric, such as
two polynomials of one Gram matrix. The blocks on and below the diagonal are multiplied,
those above are copied: (n + 1)/(2n) of the work, with n blocks to a side.

Legend: r x r is the product. BLOCK is in rows. Taught in chapter 04.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows of a block. A product with a side of 128 still runs at the speed of a large one
# on a CPU; with 64 it does not, and with 256 fewer blocks are saved.
BLOCK = 128


def full_product(
    P: Tensor, Q: Tensor, T: Tensor | None = None, *, beta=1.0, alpha=1.0
) -> Tensor:
    """alpha*P@Q + beta*T, every entry computed.

    Args:
        P: (r, k) or (K, r, k).
        Q: (k, c) or (K, k, c).
        T: (r, c) or (K, r, c); left out, the product alone, without ``alpha``.
        beta: Factor of ``T``.
        alpha: Factor of the product.

    Returns:
        A new tensor, (r, c) or (K, r, c).
    """
    if T is None:
        return P @ Q
    fma = torch.addmm if P.ndim == 2 else torch.baddbmm
    return fma(T, P, Q, beta=beta, alpha=alpha)


def mirrored_product(
    P: Tensor, Q: Tensor, T: Tensor | None = None, *, beta=1.0, alpha=1.0
) -> Tensor:
    """alpha*P@Q + beta*T for a result known to be symmetric: lower blocks, mirrored.

    Args:
        P: (r, k) or (K, r, k).
        Q: (k, r) or (K, k, r), such that P @ Q is symmetric; this is not checked.
        T: (r, r) or (K, r, r), symmetric; left out, the product alone, without
            ``alpha``.
        beta: Factor of ``T``.
        alpha: Factor of the product.

    Returns:
        A new tensor, (r, r) or (K, r, r), equal to its transpose bit by bit but for its
        diagonal blocks.
    """
    r = P.size(-2)
    S = P.new_empty(*P.shape[:-1], r)
    for start in range(0, r, BLOCK):
        end = min(start + BLOCK, r)
        below = None if T is None else T[..., start:, start:end]
        rows, columns = P[..., start:, :], Q[..., start:end]
        # A tensor of its own: written into a part of another, a batched
        # product runs matrix by matrix, which costs more than a copy.
        column = full_product(rows, columns, below, beta=beta, alpha=alpha)
        S[..., start:, start:end] = column  # (K, r - start, block)
        S[..., start:end, end:] = column[..., end - start :, :].mT
    return S


def mirrored_flops(r: int, k: int) -> int:
    """FLOPs of ``mirrored_product``: (r, k) times (k, r).

    Args:
        r: Rows of the product.
        k: Length of the sums.

    Returns:
        Additions plus multiplications.

    Example:
        >>> mirrored_flops(512, 512) / (2 * 512**3)  # four blocks: 10 of 16
        0.625
    """
    return sum(2 * (r - j) * k * min(BLOCK, r - j) for j in range(0, r, BLOCK))
