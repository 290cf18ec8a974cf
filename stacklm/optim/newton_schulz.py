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

from collections.abc import Sequence

import torch
from torch import Tensor

from stacklm.optim.checks import check_matrices, check_out
from stacklm.optim.gram import gram_iteration
from stacklm.optim.plan import choose_method, plan_newton_schulz
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


def unit_norm(G: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Divide each matrix by its Frobenius norm, whatever its scale.

    The largest entry is divided out first: squares of 1e-30 or 1e30
    leave the range of fp32, entries of at most 1 do not. A zero matrix
    stays zero. A matrix with a NaN or an infinity becomes all NaN.

    Args:
        G: (m, n) or (K, m, n), floating point, not empty.
        out: Where to write the result; ``G`` itself will do.

    Returns:
        ``out``, or a new tensor of the shape and dtype of ``G``.
    """
    lowest = G.amin(dim=(-2, -1), keepdim=True)  # (K, 1, 1)
    highest = G.amax(dim=(-2, -1), keepdim=True)
    peak = torch.maximum(-lowest, highest)  # abs() would copy G
    X = torch.div(G, peak.masked_fill(peak == 0, 1), out=out)
    norm = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    # The largest entry is 1 by now: the norm is below 1 only if X is zero.
    return torch.div(X, norm.clamp(min=1), out=out)


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
    X = _orthogonalize(G[None], steps, ns_dtype, ns_method)  # (1, r, c), r <= c
    return _restore(X, G[None])[0]  # (m, n)


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
    X = _orthogonalize(G, steps, ns_dtype, ns_method)  # (K, r, c), r <= c
    return _restore(X, G)  # (K, m, n)


def orthogonalize_bucketed(
    dirs: Sequence[Tensor],
    steps: int = 5,
    *,
    ns_dtype: torch.dtype | None = None,
    ns_method: str = "auto",
    max_stack_bytes: int | None = None,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Approximate the polar factor of many matrices, in few launches.

    Matrices of the same dtype, device and shape, once laid wide, go
    through one stack: the 210 of Stack-100M make three classes.

    Args:
        dirs: Matrices (m_i, n_i), floating point; read, never changed.
        steps: Number of Newton–Schulz steps.
        ns_dtype: Dtype of the iteration; None means at least float32.
        ns_method: "auto", or a form by name: see ``stacklm.optim.plan``.
        max_stack_bytes: Most bytes in a stack; 0: one matrix at a time;
            None: what is fastest on the device.
        out: Where to write the results, shapes as in ``dirs``; ``dirs``
            itself will do, and is then changed.

    Returns:
        A list in the order of ``dirs``: ``out``, or new contiguous
        tensors of the shape and dtype of each input.

    Raises:
        TypeError: A direction is no tensor, or not of a real floating dtype.
        ValueError: A direction is sparse or not 2-D, an option is
            unknown, or ``out`` does not fit ``dirs``. Nothing is written.
    """
    plans = plan_newton_schulz(
        dirs,
        steps,
        ns_dtype=ns_dtype,
        ns_method=ns_method,
        max_stack_bytes=max_stack_bytes,
    )
    if out is not None:
        check_out(dirs, out)
    else:
        out = [torch.empty_like(G, memory_format=torch.contiguous_format) for G in dirs]
    for plan in plans:
        for some in plan.stacks():
            stack = torch.stack([_wide(dirs[i]) for i in some])  # (K, r, c)
            _restore_each(
                _orthogonalize(
                    stack,
                    steps,
                    ns_dtype,
                    plan.method,
                    writes=not stack.requires_grad,  # nothing else reads it
                ),
                [out[i] for i in some],
            )
    return list(out)


def _orthogonalize(
    G: Tensor, steps: int, ns_dtype, ns_method: str, *, writes: bool = False
) -> Tensor:
    """(K, m, n) to its polar factors (K, r, c), in the dtype of the iteration.

    Autocast would turn the products into bf16 behind ``ns_dtype``. With ``writes``, G
    may be written to.
    """
    X = _prepare(G, ns_dtype, writes)
    if not torch.amp.is_autocast_available(X.device.type):
        return _iterate(X, steps, ns_method)
    with torch.autocast(X.device.type, enabled=False):
        return _iterate(X, steps, ns_method)


def _iterate(X: Tensor, steps: int, ns_method: str) -> Tensor:
    """The steps on a prepared stack (K, r, c), in the form that ``ns_method`` names."""
    _, r, c = X.shape
    if ns_method == "auto":
        ns_method = choose_method(r, c, X.dtype, X.device)
    form, _, mirrored = ns_method.partition("-")
    if form == "gram":
        product = mirrored_product if mirrored else full_product
        return gram_iteration(X, steps, COEFFICIENTS, product)
    for _ in range(steps):
        X = (_mirrored_step if mirrored else newton_schulz_step)(X)
    return X


def _mirrored_step(X: Tensor) -> Tensor:
    """``newton_schulz_step`` with its two symmetric products computed by half."""
    a, b, c = COEFFICIENTS
    A = mirrored_product(X, X.mT)
    B = mirrored_product(A, A, A, beta=b, alpha=c)
    return full_product(B, X, X, beta=a)


def _is_tall(G: Tensor) -> bool:
    return G.size(-2) > G.size(-1)


def _wide(G: Tensor) -> Tensor:
    """Rows and columns exchanged where that makes X @ X.mT the smaller product."""
    return G.mT if _is_tall(G) else G


def _at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _prepare(G: Tensor, ns_dtype: torch.dtype | None, writes: bool) -> Tensor:
    """(K, m, n) to (K, r, c): wide, of norm 1, in the dtype of the iteration.

    Contiguous, because BLAS rounds differently for other strides and one matrix would
    then depend on how it was handed in (5e-6 when one singular value dominates).
    Normalized before the cast, because fp16 cannot hold what fp32 can.
    """
    at_least = _at_least_fp32(G.dtype)
    if ns_dtype is not None:
        at_least = torch.promote_types(at_least, ns_dtype)
    X = _wide(G).to(at_least).contiguous()  # (K, r, c)
    if X.numel():
        X = unit_norm(X, out=X if writes else None)
    return X.to(ns_dtype or at_least)


def _restore_each(X: Tensor, out: list[Tensor]) -> None:
    """(K, r, c) into K matrices, each of its own orientation and dtype."""
    for x, o in zip(X, out, strict=True):
        o.copy_(x.mT if _is_tall(o) else x)


def _restore(X: Tensor, like: Tensor) -> Tensor:
    """(K, r, c) back to the orientation and dtype of ``like``, never aliasing it."""
    X = X.to(like.dtype)
    X = X.mT.contiguous() if _is_tall(like) else X
    return X if X.numel() else torch.empty_like(like)
