"""Newton–Schulz on stacks in JAX: one loop for all matrices of a shape.

    X <- a*X + (b*A + c*A@A) @ X,    A = X @ X.T

as in ``stacklm.optim.newton_schulz``, on a stack whose first axis may be sharded: each
device iterates on matrices of its own and needs nothing from any other.

Legend: K matrices of m x n; r x c is the same matrix laid wide. Source: Jordan 2024.
The norm is taken as optax takes it, with eps added, so that both agree to rounding.
Taught in chapter 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from stacklm.jax.sharding import constrain, padded, spec_of, stages


def orthogonalize_stack(X, coefficients, *, eps=1e-8, dtype=jnp.float32):
    """Approximate the polar factor of every matrix of a stack.

    Args:
        X: (K, m, n), float32; sharded on K or not at all.
        coefficients: (steps, 3), a triple of the quintic for every step.
        eps: Added to the Frobenius norm.
        dtype: Of the products; the norm is taken in the dtype of ``X``.

    Returns:
        (K, m, n) in the dtype of ``X``. A zero matrix stays zero.

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
    """
    out, tall = X.dtype, X.shape[1] > X.shape[2]
    X = X.mT if tall else X  # (K, r, c), r <= c
    norm = jnp.linalg.norm(X, axis=(1, 2), keepdims=True)  # (K, 1, 1)
    X = (X / (norm + eps)).astype(dtype)

    def product(A, B):  # entries of dtype, sums in float32
        return jnp.matmul(A, B, preferred_element_type=jnp.float32)

    def step(X, abc):
        a, b, c = abc
        A = product(X, X.mT)  # (K, r, r)
        low = A.astype(dtype)
        B = (b * A + c * product(low, low)).astype(dtype)
        return (a * X + product(B, X)).astype(dtype), None  # (K, r, c)

    X, _ = jax.lax.scan(step, X, jnp.asarray(coefficients))
    X = X.astype(out)
    return X.mT if tall else X


@dataclass(frozen=True)
class Group:
    """Leaves that share a stack.

    Attributes:
        names: Of the leaves, in order.
        counts: Matrices in each: 1, or E of a stack (E, m, n).
        shape: (m, n), as the leaves have it. Tall and wide stay apart: in one stack
            they would need an exchange more each.
        spec: How each leaf is cut, as ``spec_of`` says.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    shape: tuple[int, int]
    spec: tuple

    @property
    def matrices(self) -> int:
        """K, how many matrices the stack holds before padding."""
        return sum(self.counts)


def group_leaves(named, mesh: Mesh | None, max_bytes: int) -> list[Group]:
    """Sort leaves into stacks: same matrix shape, same cut.

    Args:
        named: {name: leaf (m, n) or (E, m, n)}.
        mesh: The optimizer's mesh, or None.
        max_bytes: Most bytes of a float32 stack on one device. A single leaf may be
            larger; it is never cut.

    Returns:
        Groups, in the order of their first leaves.
    """
    alike: dict[tuple, list[str]] = {}
    for name, leaf in named.items():
        key = (tuple(leaf.shape[-2:]), len(leaf.shape), spec_of(leaf, mesh))
        alike.setdefault(key, []).append(name)
    groups = []
    for (shape, ndim, spec), names in alike.items():
        sizes = [named[name].shape[0] if ndim == 3 else 1 for name in names]
        devices = padded(1, mesh)
        most = devices * max(1, max_bytes // (4 * shape[0] * shape[1]))
        for some in _chunks(sizes, most):
            members, counts = ([xs[i] for i in some] for xs in (names, sizes))
            groups.append(Group(tuple(members), tuple(counts), shape, spec))
    return groups


def _chunks(sizes: list[int], most: int) -> list[list[int]]:
    """Indices in runs whose sizes sum to at most ``most``, one at least in each."""
    runs, filled = [[]], 0
    for i, size in enumerate(sizes):
        if runs[-1] and filled + size > most:
            runs.append([])
            filled = 0
        runs[-1].append(i)
        filled += size
    return runs


def orthogonalize_group(
    leaves: Sequence, group: Group, coefficients, *, mesh, eps, dtype
) -> list:
    """Stack, exchange, iterate, exchange back, unstack.

    Args:
        leaves: The group's, (m, n) or (E, m, n), float32.
        group: Which they are.
        coefficients: (steps, 3).
        mesh: The optimizer's mesh, or None: then nothing is exchanged.
        eps: As in ``orthogonalize_stack``.
        dtype: As in ``orthogonalize_stack``.

    Returns:
        The approximate polar factors, in the shapes of ``leaves``.
    """
    X = jnp.concatenate([leaf.reshape(-1, *group.shape) for leaf in leaves])
    # Zero matrices fill up to the number of devices; they stay zero and are dropped.
    spare = padded(group.matrices, mesh) - group.matrices
    X = jnp.pad(X, ((0, spare), (0, 0), (0, 0)))  # (K', m, n)
    path = stages(mesh, group.spec) if mesh is not None else []
    X = constrain(X, path)
    X = orthogonalize_stack(X, coefficients, eps=eps, dtype=dtype)
    X = constrain(X, path[::-1])
    ends = [sum(group.counts[: i + 1]) for i in range(len(leaves))]
    parts = [
        X[end - count : end] for end, count in zip(ends, group.counts, strict=True)
    ]
    return [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
