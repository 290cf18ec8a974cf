"""Scale, dtypes, layouts, stacks against loops, and what is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.optim import (
    orthogonalize_bucketed,
    unit_norm,
    zeropower_batched,
    zeropower_via_newtonschulz5,
)

quick = settings(max_examples=20, deadline=None, derandomize=True, database=None)


def close(a, b):
    """Looped against batched: the bound that every other variant must keep too."""
    return (a - b).abs().max() < 1e-6


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-7, 1.0, 1e12, 1e30])
@pytest.mark.parametrize("shape", [(128, 352), (48, 16)])
def test_scale_does_not_matter_from_1e_30_to_1e30(scale, shape):
    torch.manual_seed(0)
    G = torch.randn(shape)
    want = zeropower_via_newtonschulz5(G.double()).float()
    for got in (
        zeropower_via_newtonschulz5(G * scale),
        zeropower_batched((G * scale)[None])[0],
        orthogonalize_bucketed([G * scale])[0],
    ):
        # G * scale is rounded (6e-8 relative), and five steps let that grow.
        torch.testing.assert_close(got, want, atol=5e-6, rtol=0)


@given(st.integers(-100, 90), st.integers(0, 2**31))
@quick
def test_powers_of_two_change_no_bit(exponent, seed):
    """Multiplying by a power of two is exact, so nothing at all may change."""
    G = torch.randn(6, 9, generator=torch.Generator().manual_seed(seed))
    G = G.sign() * (G.abs() + 0.1)  # no entry that would become subnormal
    want = zeropower_via_newtonschulz5(G)
    assert torch.equal(zeropower_via_newtonschulz5(G * 2.0**exponent), want)


def test_subnormal_entries_and_the_largest_float():
    torch.manual_seed(0)
    ones = torch.ones(3, 4)  # rank one: the answer is known, p^5(1)/sqrt(12)
    want = zeropower_via_newtonschulz5(ones)
    assert want[0, 0].item() == pytest.approx(0.7 / 12**0.5, rel=0.1)
    for scale in (1e-44, 1e-40, 3e38):
        torch.testing.assert_close(zeropower_via_newtonschulz5(ones * scale), want)
    for scale in (1e-300, 1e300):
        G = torch.full((3, 4), scale, dtype=torch.float64)
        torch.testing.assert_close(zeropower_via_newtonschulz5(G).float(), want)


def test_zero_stays_zero_alone_and_in_a_stack():
    zero = torch.zeros(4, 6)
    assert torch.equal(zeropower_via_newtonschulz5(zero), zero)
    stack = torch.stack([zero, torch.randn(4, 6), zero])
    got = zeropower_batched(stack)
    assert torch.equal(got[0], zero)
    assert torch.equal(got[2], zero)
    assert close(got[1], zeropower_via_newtonschulz5(stack[1]))
    assert torch.equal(unit_norm(zero), zero)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_entry_makes_its_own_matrix_nan_and_no_other(bad):
    torch.manual_seed(0)
    stack = torch.randn(3, 4, 6)
    stack[1, 2, 3] = bad
    got = zeropower_batched(stack)
    assert got[1].isnan().all()  # loud, not 0 and not a plausible number
    assert close(got[0], zeropower_via_newtonschulz5(stack[0]))
    assert close(got[2], zeropower_via_newtonschulz5(stack[2]))


@pytest.mark.parametrize("shape", [(4, 5), (17, 23), (64, 24), (32, 33), (64, 96)])
def test_looped_and_batched_agree_to_1e_6(shape, spectra, matrix):
    """For every spectrum, also where fp32 is 1e-5 off the truth: same kernels."""
    stacks = {
        name: torch.stack([matrix(*shape, s(min(shape)), k) for k in range(3)]).float()
        for name, s in spectra.items()
    }
    for name, stack in stacks.items():
        looped = torch.stack([zeropower_via_newtonschulz5(G) for G in stack])
        bucketed = torch.stack(orthogonalize_bucketed(list(stack)))
        one_by_one = torch.stack(orthogonalize_bucketed(list(stack), max_stack_bytes=0))
        for got in (zeropower_batched(stack), bucketed, one_by_one):
            assert close(got, looped), name


def test_result_does_not_depend_on_how_the_input_lies_in_memory(spectra, matrix):
    for sigma in spectra.values():
        G = matrix(12, 40, sigma(12)).float()
        want = zeropower_via_newtonschulz5(G)
        column_major = G.mT.contiguous().mT
        strided = torch.zeros(24, 80)[::2, ::2].copy_(G)
        for view in (column_major, strided):
            assert not view.is_contiguous()
            assert torch.equal(zeropower_via_newtonschulz5(view), want)
            assert torch.equal(zeropower_batched(view[None])[0], want)
        # A tall matrix is its transpose's answer, transposed: the same numbers.
        assert torch.equal(zeropower_via_newtonschulz5(G.mT), want.mT)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(3, 5), (5, 3), (4, 4), (2, 8), (1, 16), (16, 1)]),
            st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
        ),
        max_size=9,
    ),
    st.sampled_from([0, 100, 2**30]),
)
@quick
def test_buckets_keep_order_shape_and_dtype(kinds, cap):
    torch.manual_seed(0)
    dirs = [torch.randn(shape).to(dtype) for shape, dtype in kinds]
    before = [d.clone() for d in dirs]
    got = orthogonalize_bucketed(dirs, max_stack_bytes=cap)
    assert len(got) == len(dirs)
    for out, G, saved in zip(got, dirs, before, strict=True):
        assert out.shape == G.shape
        assert out.dtype == G.dtype
        assert out.is_contiguous()
        assert torch.equal(G, saved)
        # One bf16 rounding, or fp32 rounding grown by five steps.
        atol = 1e-2 if G.dtype == torch.bfloat16 else 3e-5
        want = zeropower_via_newtonschulz5(G.double()).to(G.dtype)
        torch.testing.assert_close(out, want, atol=atol, rtol=0)


def test_equal_element_counts_do_not_share_a_bucket():
    """256 x 1024 and 512 x 512 have as many elements; scaled down by 32."""
    dirs = [torch.randn(8, 32), torch.randn(16, 16), torch.randn(4, 64)]
    for out, G in zip(orthogonalize_bucketed(dirs), dirs, strict=True):
        assert torch.equal(out, zeropower_via_newtonschulz5(G))


def test_several_devices_in_one_list():
    meta = torch.empty(4, 6, device="meta")
    cpu = torch.randn(4, 6)
    got = orthogonalize_bucketed([meta, cpu, meta.mT])
    assert [g.device.type for g in got] == ["meta", "cpu", "meta"]
    assert got[2].shape == (6, 4)
    assert torch.equal(got[1], zeropower_via_newtonschulz5(cpu))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_compute_in_fp32(dtype):
    torch.manual_seed(0)
    G = torch.randn(16, 40).to(dtype)
    got = zeropower_via_newtonschulz5(G)
    assert got.dtype == dtype
    assert torch.equal(got, zeropower_via_newtonschulz5(G.float()).to(dtype))


def test_ns_dtype_rules_the_iteration_and_only_that():
    torch.manual_seed(0)
    G = torch.randn(16, 40)
    exact = zeropower_via_newtonschulz5(G.double())
    wide = zeropower_via_newtonschulz5(G, ns_dtype=torch.float64)
    assert wide.dtype == torch.float32
    assert torch.equal(wide, exact.float())
    coarse = zeropower_via_newtonschulz5(G, ns_dtype=torch.bfloat16)
    assert coarse.dtype == torch.float32
    gap = (coarse - exact).abs().max()
    assert 1e-3 < gap < 0.1  # bf16: 4e-3 of rounding, and it shows
    # Normalized before the cast: fp16 ends at 65,504.
    half = zeropower_via_newtonschulz5(G * 1e30, ns_dtype=torch.float16)
    assert (half - exact).abs().max() < 0.02
    # Of a stack and of many as well.
    for dtype, want in ((torch.float64, wide), (torch.bfloat16, coarse)):
        assert torch.equal(zeropower_batched(G[None], ns_dtype=dtype)[0], want)
        assert torch.equal(orthogonalize_bucketed([G], ns_dtype=dtype)[0], want)


def test_results_are_contiguous_though_the_input_is_not():
    G = torch.randn(6, 4).mT
    assert not G.is_contiguous()
    (got,) = orthogonalize_bucketed([G])
    assert got.is_contiguous()


def test_autocast_does_not_reach_the_iteration():
    torch.manual_seed(0)
    G = torch.randn(16, 40)
    want = zeropower_via_newtonschulz5(G)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (G @ G.mT).dtype == torch.bfloat16  # autocast is really on
        assert torch.equal(zeropower_via_newtonschulz5(G), want)
        assert torch.equal(zeropower_batched(G[None])[0], want)
        assert torch.equal(orthogonalize_bucketed([G])[0], want)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_matrices_come_back_empty(shape):
    G = torch.empty(shape)
    assert zeropower_via_newtonschulz5(G).shape == shape
    assert zeropower_batched(torch.empty(2, *shape)).shape == (2, *shape)
    assert orthogonalize_bucketed([G, torch.ones(2, 2)])[0].shape == shape
    stack = torch.empty(2, *shape)
    assert zeropower_batched(stack, 0) is not stack  # a result is never the input


def test_empty_stacks_and_lists():
    assert zeropower_batched(torch.empty(0, 3, 5)).shape == (0, 3, 5)
    assert orthogonalize_bucketed([]) == []


def test_steps_zero_returns_a_copy_not_the_input():
    G = torch.eye(3)
    out = zeropower_via_newtonschulz5(G, 0)
    out.zero_()
    assert torch.equal(G, torch.eye(3))


COMPLEX = torch.ones(2, 2, dtype=torch.complex64)
REFUSED = [
    (torch.ones(3), ValueError, r"shape \(3,\); reshape it to matrices"),
    (torch.ones(2, 3, 4, 5), ValueError, r"\(2, 3, 4, 5\); reshape it"),
    (torch.ones(2, 2).to_sparse(), ValueError, r"sparse_coo; call \.to_dense"),
    (torch.ones(2, 2, dtype=torch.int64), TypeError, "got torch.int64; cast it first"),
    (torch.ones(2, 2, dtype=torch.bool), TypeError, "got torch.bool; cast it first"),
    (COMPLEX, TypeError, "got torch.complex64; cast it first"),
    ([[1.0, 2.0]], TypeError, "as a tensor, got list"),
]
ONE, STACK = r"takes one \(m, n\) matrix ", r"takes a \(K, m, n\) stack of matrices "


@pytest.mark.parametrize(("G", "error", "message"), REFUSED)
def test_what_is_no_matrix_is_refused(G, error, message):
    for function in (zeropower_via_newtonschulz5, zeropower_batched):
        with pytest.raises(error, match=message):
            function(G)
    with pytest.raises(error, match=message):
        orthogonalize_bucketed([torch.ones(2, 2), G])


def test_a_stack_for_one_and_one_for_a_stack_name_the_other_function():
    use = r"here, got shape \(1, 2, 3\); use zeropower_batched"
    with pytest.raises(ValueError, match=ONE + use):
        zeropower_via_newtonschulz5(torch.ones(1, 2, 3))
    use = r"here, got shape \(2, 3\); use zeropower_via_newtonschulz5"
    with pytest.raises(ValueError, match=STACK + use):
        zeropower_batched(torch.ones(2, 3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": -1}, ValueError, "ns_steps must be at least 0, got -1"),
        ({"steps": 5.0}, TypeError, r"ns_steps must be an int, got 5\.0"),
        ({"steps": True}, TypeError, "ns_steps must be an int, got True"),
        ({"ns_dtype": "bf16"}, TypeError, "ns_dtype must be a torch dtype"),
        ({"ns_dtype": torch.int32}, ValueError, "torch.float64, got torch.int32"),
        ({"ns_method": "svd"}, ValueError, r'"auto", "direct", .*, got \'svd\''),
    ],
)
def test_options_that_the_iteration_cannot_use(options, error, message):
    G = torch.ones(2, 3)
    for call in (
        lambda: zeropower_via_newtonschulz5(G, **options),
        lambda: zeropower_batched(G[None], **options),
        lambda: orthogonalize_bucketed([G], **options),
    ):
        with pytest.raises(error, match=message):
            call()
    assert torch.equal(
        zeropower_via_newtonschulz5(G, ns_method="direct"),
        zeropower_via_newtonschulz5(G, ns_method="auto"),
    )
