"""RoPE rotates and is relative; RMSNorm normalizes in enough precision."""

import pytest
import torch

from stacklm.model import RMSNorm, apply_rope, rope_tables


def turn(x, position, theta=10_000.0):
    """Rotate one vector as if it stood at `position`."""
    cos, sin = rope_tables(position + 1, len(x), theta=theta, dtype=torch.float64)
    return apply_rope(x[None], cos[-1:], sin[-1:])[0]


@pytest.fixture
def pair():
    torch.manual_seed(0)
    return torch.randn(2, 64, dtype=torch.float64)


@pytest.mark.parametrize("shift", [1, 17, 900])
def test_products_depend_on_the_distance_only(pair, shift):
    q, k = pair
    near = turn(q, 12) @ turn(k, 5)
    far = turn(q, 12 + shift) @ turn(k, 5 + shift)
    torch.testing.assert_close(near, far, rtol=0, atol=1e-11)
    assert abs(near - turn(q, 13) @ turn(k, 5)) > 1e-3


def test_position_zero_is_left_alone_and_norms_are_kept(pair):
    x = pair[0]
    torch.testing.assert_close(turn(x, 0), x, rtol=0, atol=0)
    assert not torch.allclose(turn(x, 100), x)
    torch.testing.assert_close(turn(x, 100).norm(), x.norm())


def test_angles_of_the_first_and_the_last_pair():
    cos, sin = rope_tables(3, 64, theta=10_000.0, dtype=torch.float64)
    angles = torch.atan2(sin, cos)
    assert angles.shape == (3, 32)
    assert angles[2, 0] == pytest.approx(2.0)
    assert angles[2, 31] == pytest.approx(2 * 10_000 ** (-62 / 64))


def test_tables_are_at_least_float32():
    for dtype in (None, torch.bfloat16, torch.float16):
        assert rope_tables(4, 8, theta=10.0, dtype=dtype)[0].dtype == torch.float32
    assert rope_tables(4, 8, theta=10.0, device="meta")[0].device.type == "meta"


def test_result_keeps_the_input_dtype():
    tables = rope_tables(4, 8, theta=10.0)
    assert apply_rope(torch.ones(4, 8).bfloat16(), *tables).dtype == torch.bfloat16


def test_odd_heads_are_refused():
    with pytest.raises(ValueError, match="must be even, got 7; use 8"):
        rope_tables(4, 7, theta=10.0)


def test_norm_equals_its_formula():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    norm = RMSNorm((16,), eps=0.1).double()
    torch.nn.init.normal_(norm.weight)
    by_hand = norm.weight * x / (x.pow(2).sum(-1, keepdim=True) / 16 + 0.1).sqrt()
    torch.testing.assert_close(norm(x), by_hand)


def test_norm_has_gains_of_its_own_per_head():
    norm = RMSNorm((2, 1, 4), eps=0.0)
    with torch.no_grad():
        norm.weight[1] = 3.0
    y = norm(torch.ones(5, 2, 7, 4))  # (B, H, T, d_h)
    assert y[:, 0].unique().tolist() == [1.0]
    assert y[:, 1].unique().tolist() == [3.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norm_does_not_overflow_in_low_precision(dtype):
    # 300 squared is beyond float16; the sum of 512 squares loses digits in bfloat16.
    x = torch.full((1, 512), 300.0, dtype=dtype)
    y = RMSNorm((512,))(x)
    assert y.dtype == dtype
    assert y.unique().tolist() == [1.0]


def test_norm_rounds_to_bfloat16_once():
    torch.manual_seed(0)
    x = torch.randn(64, 512).bfloat16()
    norm = RMSNorm((512,))
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    right = norm.double()(x.double()).bfloat16()
    # Rounding before the gains as well would miss a quarter of the entries.
    missed = (norm.float()(x) != right).double().mean()
    assert missed < 0.001


def test_norm_of_zero_is_zero_with_a_finite_gradient():
    x = torch.zeros(1, 8, requires_grad=True)
    y = RMSNorm((8,))(x)
    y.sum().backward()
    assert y.abs().max() == 0
    assert x.grad.isfinite().all()
