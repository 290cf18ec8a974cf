"""Newton–Schulz: move every singular value of a matrix close to 1, with products alone.

One step applies the odd quintic p to the singular values and leaves the singular
vectors as they are:

    p(sigma) = a*sigma + b*sigma**3 + c*sigma**5
    X <- a*X + (b*A + c*A@A) @ X,    A = X @ X.mT

Legend: K matrices of m x n; r x c is the same matrix laid wide, r = min(m, n).
Units: none, directions have no scale; a FLOP is one addition or one multiplication.
Source: Jordan 2024, "Muon: An optimizer for hidden layers in neural networks", the
section on Newton–Schulz and its coefficients. Taught in chapter 02 (this file) and
chapter 04 (stacks against loops, and the other forms, which plan.py chooses from).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stacklm.optim.checks import check_matrices
from stacklm.optim.gram import gram_iteration
from stacklm.optim.plan import MAX_STACK_BYTES, choose_method, plan_newton_schulz
from stacklm.optim.symmetric import full_product, mirrored_product

# Jordan 2024: chosen for slope at zero, so p(1) is 0.701 and the iteration ends in
# a band around 1, not at 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def quintic(sigma, coefficients=COEFFICIENTS):
    """What one step does to a singular value.

    Args:
        sigma: A float, or a tensor of any shape.
        coefficients: (a, b, c) of the polynomial.

    Returns:
        a*sigma + b*sigma**3 + c*sigma**5, of the type of ``sigma``.

    Example:
        >>> round(quintic(1.0), 3)
        0.701
    """
    a, b, c = coefficients
    return a * sigma + b * sigma**3 + c * sigma**5


def newton_schulz_step(X: Tensor, coefficients=COEFFICIENTS) -> Tensor:
    """One step: the quintic on every singular value of X.

    Args:
        X: (r, c) or (K, r, c) with r <= c and no singular value above 1.2.
        coefficients: (a, b, c) of the polynomial.

    Returns:
        A new tensor of the shape of ``X``.

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
    """
    a, b, c = coefficients
    fma = torch.addmm if X.ndim == 2 else torch.baddbmm
    A = X @ X.mT  # (K, r, r)
    B = fma(A, A, A, beta=b, alpha=c)  # b*A + c*A@A
    return fma(X, B, X, beta=a)  # a*X + B@X, (K, r, c)


def unit_norm(G: Tensor) -> Tensor:
    """Divide each matrix by its Frobenius norm, whatever its scale.

    The largest entry is divided out first: squares of 1e-30 or 1e30
    leave the range of fp32, entries of at most 1 do not. A zero matrix
    stays zero. A matrix with a NaN or an infinity becomes all NaN.

    Args:
        G: (m, n) or (K, m, n), floating point, not empty.

    Returns:
        A new tensor of the shape and dtype of ``G``.
    """
    peak = G.abs().amax(dim=(-2, -1), keepdim=True)  # (K, 1, 1)
    X = G / peak.masked_fill(peak == 0, 1)
    norm = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    return X / norm.clamp(min=1)  # below 1 only if X is zero


def _without_autocast(function: Callable) -> Callable:
    """Keep autocast from turning the products into bf16 behind ``ns_dtype``."""

    @functools.wraps(function)
    def wrapper(G, *args, **kwargs):
        kind = G.device.type if isinstance(G, Tensor) else "cpu"
        if not torch.amp.is_autocast_available(kind):
            return function(G, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(G, *args, **kwargs)

    return wrapper


@_without_autocast
def zeropower_via_newtonschulz5(
    G: Tensor,
    steps: int = 5,
    *,
    ns_dtype: torch.dtype | None = None,
    ns_method: str = "auto",
) -> Tensor:
    """Approximate the polar factor U V^T of G = U S V^T.

    After five steps most singular values lie in [0.68, 1.21]; those that
    were below about 1e-3 of the norm are still on their way up.

    Args:
        G: (m, n), floating point; read, never changed.
        steps: Number of Newton–Schulz steps; 0 only normalizes.
        ns_dtype: Dtype of the iteration; None means at least float32.
        ns_method: "auto", or a form by name: see ``stacklm.optim.plan``.

    Returns:
        (m, n) in the dtype of ``G``. The scale of ``G`` does not matter.

    Raises:
        TypeError: ``G`` is no tensor, or not of a real floating dtype.
        ValueError: ``G`` is sparse or not 2-D, or an option is unknown.

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
    """
    check_matrices(G, 2, steps, ns_dtype, ns_method)
    X = _iterate(_prepare(G[None], ns_dtype), steps, ns_method)  # (1, r, c), r <= c
    return _restore(X, G[None])[0]  # (m, n)


@_without_autocast
def zeropower_batched(
    G: Tensor,
    steps: int = 5,
    *,
    ns_dtype: torch.dtype | None = None,
    ns_method: str = "auto",
) -> Tensor:
    """Approximate the polar factor of every matrix of a stack.

    The same kernels as for one matrix, so both agree to the last bits.

    Args:
        G: (K, m, n), floating point; read, never changed.
        steps: Number of Newton–Schulz steps; 0 only normalizes.
        ns_dtype: Dtype of the iteration; None means at least float32.
        ns_method: "auto", or a form by name: see ``stacklm.optim.plan``.

    Returns:
        (K, m, n) in the dtype of ``G``.

    Raises:
        TypeError: ``G`` is no tensor, or not of a real floating dtype.
        ValueError: ``G`` is sparse or not 3-D, or an option is unknown.

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
    """
    check_matrices(G, 3, steps, ns_dtype, ns_method)
    X = _iterate(_prepare(G, ns_dtype), steps, ns_method)  # (K, r, c), r <= c
    return _restore(X, G)  # (K, m, n)


def orthogonalize_bucketed(
    dirs: Sequence[Tensor],
    steps: int = 5,
    *,
    ns_dtype: torch.dtype | None = None,
    ns_method: str = "auto",
    max_stack_bytes: int = MAX_STACK_BYTES,
) -> list[Tensor]:
    """Approximate the polar factor of many matrices, in few launches.

    Matrices of the same dtype, device and shape, once laid wide, go
    through one stack: the 210 of Stack-100M make three classes.

    Args:
        dirs: Matrices (m_i, n_i), floating point; read, never changed.
        steps: Number of Newton–Schulz steps.
        ns_dtype: Dtype of the iteration; None means at least float32.
        ns_method: "auto", or a form by name: see ``stacklm.optim.plan``.
        max_stack_bytes: Most bytes in a stack; 0: one matrix at a time.

    Returns:
        A list in the order of ``dirs``, each contiguous, in the shape
        and dtype of its input.

    Raises:
        TypeError: A direction is no tensor, or not of a real floating dtype.
        ValueError: A direction is sparse or not 2-D, or an option is
            unknown.
    """
    plans = plan_newton_schulz(
        dirs,
        steps,
        ns_dtype=ns_dtype,
        ns_method=ns_method,
        max_stack_bytes=max_stack_bytes,
    )
    out: list[Tensor] = [None] * len(dirs)
    for plan in plans:
        for some in plan.stacks():
            stack = torch.stack([_wide(dirs[i]) for i in some])  # (K, r, c)
            options = {"ns_dtype": ns_dtype, "ns_method": plan.method}
            X = zeropower_batched(stack, steps, **options)
            # One copy for all tall ones: contiguous, so that foreach
            # kernels over weights and directions stay fused.
            any_tall = any(_is_tall(dirs[i]) for i in some)
            tall = X.mT.contiguous() if any_tall else X  # (K, c, r)
            for k, i in enumerate(some):
                out[i] = tall[k] if _is_tall(dirs[i]) else X[k]
    return out


def _iterate(X: Tensor, steps: int, ns_method: str) -> Tensor:
    """The steps on a prepared stack (K, r, c), in the form that ``ns_method`` names."""
    _, r, c = X.shape
    if ns_method == "auto":
        ns_method = choose_method(r, c, X.dtype, X.device)
    form, _, mirrored = ns_method.partition("-")
    if mirrored and X.numel():  # matrix by matrix: products this large fill a CPU
        return torch.stack([_mirrored(x, steps, form) for x in X])
    if form == "gram":
        return gram_iteration(X, steps, COEFFICIENTS)
    for _ in range(steps):
        X = newton_schulz_step(X)
    return X


def _mirrored(X: Tensor, steps: int, form: str) -> Tensor:
    """The steps on one matrix (r, c), symmetric products by half."""
    if form == "gram":
        return gram_iteration(X, steps, COEFFICIENTS, mirrored_product)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        A = mirrored_product(X, X.mT)  # (r, r)
        B = mirrored_product(A, A, A, beta=b, alpha=c)
        X = full_product(B, X, X, beta=a)  # (r, c)
    return X


def _is_tall(G: Tensor) -> bool:
    return G.size(-2) > G.size(-1)


def _wide(G: Tensor) -> Tensor:
    """Rows and columns exchanged where that makes X @ X.mT the smaller product."""
    return G.mT if _is_tall(G) else G


def _at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _prepare(G: Tensor, ns_dtype: torch.dtype | None) -> Tensor:
    """(K, m, n) to (K, r, c): wide, of norm 1, in the dtype of the iteration.

    Contiguous, because BLAS rounds differently for other strides and one matrix would
    then depend on how it was handed in (5e-6 when one singular value dominates).
    Normalized before the cast, because fp16 cannot hold what fp32 can.
    """
    at_least = _at_least_fp32(G.dtype)
    if ns_dtype is not None:
        at_least = torch.promote_types(at_least, ns_dtype)
    X = _wide(G).to(at_least).contiguous()  # (K, r, c)
    return (unit_norm(X) if X.numel() else X).to(ns_dtype or at_least)


def _restore(X: Tensor, like: Tensor) -> Tensor:
    """(K, r, c) back to the orientation and dtype of ``like``, never aliasing it."""
    X = X.to(like.dtype)
    X = X.mT.contiguous() if _is_tall(like) else X
    return X if X.numel() else torch.empty_like(like)
