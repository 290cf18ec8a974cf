"""The iteration on a stack, and how leaves become stacks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from stacklm.jax import orthogonalize_stack
from stacklm.jax.newton_schulz import group_leaves
from stacklm.optim import COEFFICIENTS
from tests.jax.trees import structs

FIVE = (COEFFICIENTS,) * 5


def by_svd(X, rows=FIVE):
    """The scalar polynomial on each singular value, in float64."""
    U, S, Vh = np.linalg.svd(np.asarray(X, np.float64), full_matrices=False)
    S = S / np.linalg.norm(S, axis=-1, keepdims=True)
    for a, b, c in rows:
        S = a * S + b * S**3 + c * S**5
    return U * S[:, None, :] @ Vh


@pytest.mark.parametrize("shape", [(3, 8, 24), (3, 24, 8), (2, 16, 16), (1, 2, 2)])
def test_it_is_the_polynomial_on_every_singular_value(shape):
    X = jax.random.normal(jax.random.key(0), shape)
    out = orthogonalize_stack(X, FIVE)
    assert out.shape == X.shape
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, by_svd(X), atol=2e-5)


def test_each_step_takes_its_own_triple():
    X = jax.random.normal(jax.random.key(1), (2, 6, 10))
    rows = ((4.0, -6.9, 2.9), (2.0, -1.5, 0.5))
    np.testing.assert_allclose(orthogonalize_stack(X, rows), by_svd(X, rows), atol=2e-5)


def test_one_matrix_is_what_optax_makes_of_it():
    X = jax.random.normal(jax.random.key(2), (1, 24, 8))
    stock = optax.contrib.scale_by_muon(
        beta=0.0,
        nesterov=False,
        weight_dimension_numbers=optax.contrib.MuonDimensionNumbers(),
    )
    theirs, _ = stock.update(X[0], stock.init(X[0]))
    np.testing.assert_allclose(orthogonalize_stack(X, FIVE)[0], theirs, atol=2e-6)


def test_matrices_of_a_stack_do_not_see_each_other():
    X = jax.random.normal(jax.random.key(3), (3, 8, 12))
    alone = [orthogonalize_stack(x[None], FIVE)[0] for x in X * 1e3]
    scaled = X * jnp.asarray([1e3, 1e-3, 1.0])[:, None, None]
    np.testing.assert_allclose(orthogonalize_stack(scaled, FIVE), alone, atol=1e-4)


def test_a_zero_matrix_stays_zero_beside_others():
    X = jax.random.normal(jax.random.key(4), (3, 8, 12)).at[1].set(0)
    out = orthogonalize_stack(X, FIVE)
    assert (out[1] == 0).all()
    assert jnp.isfinite(out).all()
    assert float(jnp.linalg.norm(out[2])) > 2


def test_bf16_rounds_what_is_multiplied_and_returns_float32():
    X = jax.random.normal(jax.random.key(5), (4, 32, 64))
    exact = by_svd(X)
    low = orthogonalize_stack(X, FIVE, dtype=jnp.bfloat16)
    assert low.dtype == jnp.float32
    error = np.linalg.norm(low - exact) / np.linalg.norm(exact)
    assert 1e-4 < error < 3e-2  # more than fp32's, and no more than a few roundings


def test_leaves_of_one_shape_share_a_stack_and_tall_stays_apart_from_wide():
    named = structs(
        {"a": (8, 4), "b": (4, 8), "c": (8, 4), "d": (3, 8, 4), "e": (8, 8)}
    )
    groups = group_leaves(named, None, 2**30)
    assert [g.names for g in groups] == [("a", "c"), ("b",), ("d",), ("e",)]
    assert [g.matrices for g in groups] == [2, 1, 3, 1]


def test_equal_numbers_of_entries_are_not_one_shape():
    named = structs({"a": (16, 64), "b": (32, 32)})
    assert len(group_leaves(named, None, 2**30)) == 2


def test_a_cap_on_bytes_cuts_groups_but_no_leaf():
    named = structs({f"m{i}": (8, 8) for i in range(5)} | {"s": (7, 8, 8)})
    one = 4 * 8 * 8
    pairs = group_leaves(named, None, 2 * one)
    assert [g.matrices for g in pairs] == [2, 2, 1, 7]
    assert [g.matrices for g in group_leaves(named, None, 1)] == [1, 1, 1, 1, 1, 7]
