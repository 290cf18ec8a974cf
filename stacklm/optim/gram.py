"""Newton–Schulz on the Gram matrix: iterate on A = X @ X.mT, apply the result once.

Every step multiplies X from the left by a polynomial of A, so the steps can be run on
r x r matrices alone and collected in Z:

    q <- a*I + b*A + c*A@A,    Z <- q @ Z,    A <- q @ A @ q,    at the end X <- Z @ X

All of these are polynomials of one symmetric matrix: they commute, and their products
are symmetric. Legend: X is r x c with r <= c, one or K of them.

What it costs is accuracy. A holds squares of singular values, so its rounding drowns
the small ones, and each step lets that grow by up to a**2 = 11.9. Computing A anew from
X after RESTART steps stops the growth.

Source: our derivation, chapter 04.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from stacklm.optim.symmetric import full_product

# Three steps, then two: at most 7e-6 from float64 in fp32 on every spectrum tried; two,
# then three, give 2e-5, and five without a restart 6e-4.
RESTART = 3


def gram_iteration(
    X: Tensor,
    steps: int,
    coefficients: tuple[float, float, float],
    product: Callable = full_product,
    restart: int = RESTART,
) -> Tensor:
    """Newton–Schulz steps by way of the Gram matrix.

    Args:
        X: (r, c) or (K, r, c) with r <= c and no singular value above 1.2.
        steps: Number of Newton–Schulz steps.
        coefficients: (a, b, c) of the quintic.
        product: How symmetric results are multiplied: ``full_product`` or
            ``mirrored_product``.
        restart: Steps before the Gram matrix is computed anew.

    Returns:
        A new tensor of the shape of ``X``, or ``X`` itself if ``steps`` is 0.
    """
    for start in range(0, steps, restart):
        Z = _collect(X, min(restart, steps - start), coefficients, product)
        X = Z @ X  # (K, r, c)
    return X


def _collect(
    X: Tensor,
    steps: int,
    coefficients: tuple[float, float, float],
    product: Callable,
) -> Tensor:
    """The r x r matrix that ``steps`` steps multiply X by."""
    a, b, c = coefficients
    A = product(X, X.mT)  # (K, r, r)
    Z = None
    for step in range(steps):
        q = product(A, A, A, beta=b, alpha=c)
        q.diagonal(dim1=-2, dim2=-1).add_(a)
        Z = q if Z is None else product(q, Z)
        if step < steps - 1:
            # Under the name of the old A, so that the old one is freed.
            A = product(q, A)
            A = product(A, q)  # the Gram matrix after this step
    return Z
