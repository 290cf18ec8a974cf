"""Which form of Newton–Schulz each shape gets, and how many matrices share a stack.

    direct            X <- a*X + (b*A + c*A@A) @ X, in stacks
    direct-mirrored   the same, with A and A@A computed by half (symmetric.py)
    gram              on A alone, applied once (gram.py), in stacks
    gram-mirrored     the same, with every r x r product computed by half

"auto" looks at shape, dtype and device, never at how many matrices there are: one rank
with five matrices and another with two hundred must get the same numbers.

Legend: r x c is a matrix laid wide, r = min(m, n). Units: bytes; a FLOP is an addition
or a multiplication. Taught in chapter 04.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stacklm.optim.checks import check_matrices
from stacklm.optim.gram import RESTART
from stacklm.optim.symmetric import BLOCK, mirrored_flops

# Most bytes that one stack may take. On an accelerator few large launches win, and the
# cap only bounds memory. On a CPU each thread multiplies a matrix of its own, so there
# must be a few per thread; more fall out of the cache, which costs 10 % (512 x 512).
MAX_STACK_BYTES = 2**30
CPU_STACK_BYTES_PER_THREAD = 3 * 2**20

# The longest that a matrix may be, c/r, before the Gram form needs fewer FLOPs.
BREAK_EVEN = 1.5


@dataclass(frozen=True)
class Plan:
    """How the matrices of one shape, dtype and device are orthogonalized.

    Args:
        rows: r, the short side.
        cols: c, the long side.
        dtype: Of the iteration.
        device: Where the matrices are.
        method: One of ``NS_METHODS``, but "auto".
        steps: Number of Newton–Schulz steps.
        per_stack: Most matrices in a stack.
        members: Positions of the matrices in the list that was planned for.
    """

    rows: int
    cols: int
    dtype: torch.dtype
    device: torch.device
    method: str
    steps: int
    per_stack: int
    members: tuple[int, ...]

    @property
    def flops(self) -> int:
        """FLOPs for one of the matrices."""
        return newton_schulz_flops(self.rows, self.cols, self.steps, self.method)

    def stacks(self) -> list[tuple[int, ...]]:
        """The members, cut into stacks."""
        size = self.per_stack
        starts = range(0, len(self.members), size)
        return [self.members[start : start + size] for start in starts]


def choose_method(r: int, c: int, dtype: torch.dtype, device: torch.device) -> str:
    """What "auto" means for r x c matrices, r <= c.

    Direct unless another form is faster and as good. Half precision cannot hold a Gram
    matrix (see gram.py), nor can TF32, which rounds as coarsely as fp16; products by
    half lose nothing in bf16. float64 stays the plain reference.

    Args:
        r: The short side.
        c: The long side.
        dtype: Of the iteration.
        device: Where it runs.

    Returns:
        One of ``NS_METHODS``, but "auto".
    """
    single = dtype is torch.float32
    gram = single and c > BREAK_EVEN * r
    mirrors = r >= 2 * BLOCK  # fewer rows have no block to mirror
    if device.type == "cpu" and mirrors and (single or dtype is torch.bfloat16):
        return "gram-mirrored" if gram else "direct-mirrored"
    if device.type == "cuda" and gram and not allows_tf32():
        return "gram"
    return "direct"


def allows_tf32() -> bool:
    """Whether CUDA may round the factors of fp32 products to ten bits."""
    return torch.backends.cuda.matmul.allow_tf32


def newton_schulz_flops(m: int, n: int, steps: int = 5, method: str = "direct") -> int:
    """FLOPs of the products of Newton–Schulz on one m x n matrix.

    Directly 4*r*r*c + 2*r**3 a step, with r = min(m, n) and c = max(m, n).

    Args:
        m: Rows.
        n: Columns.
        steps: Number of Newton–Schulz steps.
        method: One of ``NS_METHODS``, but "auto".

    Returns:
        Additions plus multiplications.

    Example:
        >>> newton_schulz_flops(512, 512)
        4026531840
        >>> newton_schulz_flops(512, 1408, method="gram-mirrored")
        4747952128
    """
    form, _, mirrored = method.partition("-")
    r, c = min(m, n), max(m, n)
    square = mirrored_flops(r, r) if mirrored else 2 * r**3  # A@A, q@Z, q@A, ...
    first = mirrored_flops(r, c) if mirrored else 2 * r * r * c  # X @ X.mT
    apply = 2 * r * r * c
    if form == "direct":
        return steps * (first + square + apply)
    # Of s steps collected, each squares A; all but the first multiply into Z; all but
    # the last take two products to the next A.
    parts = [min(RESTART, steps - done) for done in range(0, steps, RESTART)]
    return sum(first + (4 * s - 3) * square + apply for s in parts)


def fastest_stack_bytes(device: torch.device) -> int:
    """How large a stack is fastest.

    Args:
        device: Where the matrices are.

    Returns:
        Bytes; on a CPU they go with the number of torch's threads.
    """
    if device.type == "cpu":
        return CPU_STACK_BYTES_PER_THREAD * torch.get_num_threads()
    return MAX_STACK_BYTES


def plan_newton_schulz(
    dirs: Sequence[Tensor],
    steps: int = 5,
    *,
    ns_dtype: torch.dtype | None = None,
    ns_method: str = "auto",
    max_stack_bytes: int | None = None,
) -> list[Plan]:
    """Sort matrices into classes and choose how each class is orthogonalized.

    A class is one shape, once laid wide, of one dtype on one device. While a stack is
    worked on, at most eight times its bytes are held beside the results.

    Args:
        dirs: Matrices (m_i, n_i), floating point; only looked at, "meta" will do.
        steps: Number of Newton–Schulz steps.
        ns_dtype: Dtype of the iteration; None means at least float32.
        ns_method: "auto", or the form to take for all of them.
        max_stack_bytes: Most bytes in a stack; 0: one matrix at a time; None: what is
            fastest on the device.

    Returns:
        A plan per class, in the order in which the classes appear.

    Raises:
        TypeError: A direction is no tensor, or not of a real floating dtype.
        ValueError: A direction is sparse or not 2-D, or an option is unknown.
    """
    classes: dict[tuple, list[int]] = {}
    for i, G in enumerate(dirs):
        check_matrices(G, 2, steps, ns_dtype, ns_method)
        key = (*sorted(G.shape), G.dtype, G.device)
        classes.setdefault(key, []).append(i)
    plans = []
    for (r, c, dtype, device), members in classes.items():
        dtype = ns_dtype or torch.promote_types(dtype, torch.float32)
        method = ns_method
        if method == "auto":
            method = choose_method(r, c, dtype, device)
        most = max_stack_bytes
        if most is None:
            most = fastest_stack_bytes(device)
        # Norms are taken in at least fp32, also for an iteration in half precision.
        itemsize = max(dtype.itemsize, torch.float32.itemsize)
        per_stack = max(1, most // max(1, r * c * itemsize))
        plans.append(
            Plan(r, c, dtype, device, method, steps, per_stack, tuple(members))
        )
    return plans


def format_plans(plans: Sequence[Plan]) -> str:
    """A table of plans: a row per class.

    Args:
        plans: What ``plan_newton_schulz`` returned.

    Returns:
        Lines of text: how many matrices, their shape, dtype, device and method, how
        many share a stack, the GFLOP of one, and its share of the direct form's.
    """
    head = (
        "count",
        "shape",
        "dtype",
        "device",
        "method",
        "stack",
        "GFLOP",
        "of direct",
    )
    rows = [head]
    for p in plans:
        direct = newton_schulz_flops(p.rows, p.cols, p.steps)
        rows.append(
            (
                f"{len(p.members)}",
                f"{p.rows} x {p.cols}",
                str(p.dtype).removeprefix("torch."),
                str(p.device),
                p.method,
                f"{p.per_stack}",
                f"{p.flops / 1e9:.3f}",
                f"{p.flops / max(1, direct):.3f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
