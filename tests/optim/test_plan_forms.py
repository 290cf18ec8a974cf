"""Every form against float64 and an SVD, alone and in stacks; what it costs beside."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stacklm.bench.cases import hard_matrices
from stacklm.optim import (
    COEFFICIENTS,
    Muon,
    choose_method,
    newton_schulz_step,
    orthogonalize_bucketed,
    zeropower_batched,
    zeropower_via_newtonschulz5,
)
from stacklm.optim.gram import gram_iteration
from stacklm.optim.symmetric import full_product, mirrored_product

METHODS = ("direct", "direct-mirrored", "gram", "gram-mirrored")
CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(256, 384), (1408, 512), (300, 300), (128, 512)])
def test_every_form_is_within_1e_5_of_float64(shape, spectra, matrix):
    torch.manual_seed(0)
    inputs = {
        name: matrix(*shape, sigma(min(shape)).double(), seed=1).float()
        for name, sigma in spectra.items()
    }
    inputs["random"] = torch.randn(shape)
    for name, G in inputs.items():
        exact = zeropower_via_newtonschulz5(G.double())  # direct, in float64
        for method in (*METHODS, "auto"):
            got = zeropower_via_newtonschulz5(G, ns_method=method)
            error = (got - exact).abs().max().item()
            assert error < 1e-5, f"{method}, {name}: {error}"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(256, 300), (300, 256), (20, 48), (1, 5)])
@pytest.mark.parametrize("steps", [0, 1, 4, 7])
def test_every_form_is_the_polynomial_of_the_svd(method, shape, steps, by_svd):
    torch.manual_seed(0)
    G = torch.randn(shape, dtype=torch.float64)
    got = zeropower_via_newtonschulz5(G, steps, ns_method=method)
    # A Gram matrix lets 1e-16 grow by 11.9 a step, three steps long, twice.
    torch.testing.assert_close(got, by_svd(G, steps), atol=1e-9, rtol=0)


def test_a_restart_is_what_keeps_the_gram_form_accurate(spectra, matrix):
    sigma = spectra["one dominant"](128)
    G = matrix(128, 512, sigma.double()).float()
    X = G / G.norm()
    exact = zeropower_via_newtonschulz5(G.double())
    restarted = (gram_iteration(X, 5, COEFFICIENTS) - exact).abs().max()
    never = (gram_iteration(X, 5, COEFFICIENTS, restart=5) - exact).abs().max()
    assert restarted < 1e-5 < never


@pytest.mark.parametrize("r", [1, 127, 128, 129, 300])
def test_a_mirrored_product_is_the_product(r):
    torch.manual_seed(0)
    X = torch.randn(r, 70, dtype=torch.float64)
    A = X @ X.mT
    S = mirrored_product(X, X.mT)
    torch.testing.assert_close(S, A)
    torch.testing.assert_close(
        mirrored_product(A, A, A, beta=-2.0, alpha=0.5), 0.5 * A @ A - 2 * A
    )
    torch.testing.assert_close(full_product(A, X, X, beta=3.0), A @ X + 3 * X)
    for product in (full_product, mirrored_product):  # both factors are 1 by default
        torch.testing.assert_close(product(A, A, A), A @ A + A)
    assert torch.equal(S[128:, :128], S[:128, 128:].mT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_stack_of_mirrored_products_is_each_of_them_bit_by_bit(dtype):
    """Ranks with stacks of other sizes must get the same numbers."""
    torch.manual_seed(0)
    X = (torch.randn(5, 300, 320) / 18).to(dtype)
    S = mirrored_product(X, X.mT)
    B = mirrored_product(S, S, S, beta=-4.7, alpha=2.0)
    assert S.shape == B.shape == (5, 300, 300)
    for some in ([0], [1, 2], [3, 4, 0]):
        x, s = X[some], S[some]
        assert torch.equal(mirrored_product(x, x.mT), s)
        assert torch.equal(mirrored_product(s, s, s, beta=-4.7, alpha=2.0), B[some])


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_results_may_be_written_over_what_was_given(method):
    torch.manual_seed(0)
    dirs = [torch.randn(s) for s in ((300, 256), (256, 300), (0, 3), (256, 300))]
    want = orthogonalize_bucketed(dirs, ns_method=method)
    kept = [G.clone() for G in dirs]
    elsewhere = [torch.empty_like(G) for G in dirs]
    got = orthogonalize_bucketed(dirs, ns_method=method, out=elsewhere)
    assert all(map(torch.equal, dirs, kept))  # read, never changed
    assert all(a is b for a, b in zip(got, elsewhere, strict=True))
    orthogonalize_bucketed(dirs, ns_method=method, out=dirs)
    for over, there, new in zip(dirs, elsewhere, want, strict=True):
        assert torch.equal(over, new)
        assert torch.equal(there, new)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([], "a tensor for each of 2 matrices, got 0"),
        ([torch.zeros(2, 3), torch.zeros(3, 2)], r"out\[1\] must .*\(2, 3\).*\(3, 2\)"),
        ([torch.zeros(2, 3), torch.zeros(2, 3).half()], r"out\[1\] .*32.*got .*16"),
        ([torch.zeros(2, 3), torch.zeros(2, 3, device="meta")], "cpu, got .* meta"),
    ],
)
def test_places_that_do_not_fit_are_refused_and_nothing_is_written(out, message):
    with pytest.raises(ValueError, match=message):
        orthogonalize_bucketed([torch.ones(2, 3)] * 2, out=out)
    assert all(not place.any() for place in out if place.device.type == "cpu")


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("shape", [(256, 512), (256, 256), (64, 160)])
def test_looped_batched_and_capped_agree_to_1e_6(method, shape, spectra, matrix):
    for name, sigma in spectra.items():
        stack = torch.stack(
            [matrix(*shape, sigma(shape[0]).double(), k) for k in range(3)]
        ).float()
        looped = torch.stack(
            [zeropower_via_newtonschulz5(G, ns_method=method) for G in stack]
        )
        forms = [zeropower_batched(stack, ns_method=method)]
        for cap in (0, 2 * stack[0].nbytes, 2**30):
            some = orthogonalize_bucketed(
                list(stack), ns_method=method, max_stack_bytes=cap
            )
            forms.append(torch.stack(some))
        for got in forms:
            assert (got - looped).abs().max() < 1e-6, name


@pytest.mark.parametrize("block", [2, 128])
@pytest.mark.parametrize("method", ["direct-mirrored", "gram", "gram-mirrored"])
def test_every_form_is_differentiable(method, block, monkeypatch):
    monkeypatch.setattr("stacklm.optim.symmetric.BLOCK", block)
    torch.manual_seed(0)
    G = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def function(g):
        return zeropower_via_newtonschulz5(g, 4, ns_method=method)

    assert torch.autograd.gradcheck(function, (G,))

    def bucketed(g):
        return orthogonalize_bucketed([g, g.mT], 4, ns_method=method)[1]

    assert torch.autograd.gradcheck(bucketed, (G,))


def test_products_by_half_lose_nothing_in_bf16():
    """As far from float64 as the whole products, on every spectrum."""
    for spectrum, G in hard_matrices(256, 320).items():
        exact = zeropower_via_newtonschulz5(G.double())
        half, full = (
            zeropower_via_newtonschulz5(G, ns_dtype=torch.bfloat16, ns_method=method)
            for method in ("auto", "direct")
        )
        far, as_far = ((D - exact).norm() / exact.norm() for D in (half, full))
        assert 1e-4 < far < 1.05 * as_far, spectrum


def test_small_and_float64_matrices_keep_every_bit_of_the_direct_form():
    torch.manual_seed(0)
    for shape, dtype in (
        ((128, 128), torch.float32),
        ((128, 512), torch.float32),
        ((64, 64), torch.float32),
        ((256, 512), torch.float64),
    ):
        G = torch.randn(shape, dtype=dtype)
        X = (G / G.abs().max())[None]
        X = X / torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
        for _ in range(5):
            X = newton_schulz_step(X)
        assert torch.equal(zeropower_via_newtonschulz5(G), X[0])


@pytest.mark.parametrize("method", METHODS)
def test_zero_nan_and_empty_in_every_form(method):
    zero = torch.zeros(300, 310)
    assert zeropower_via_newtonschulz5(zero, ns_method=method).eq(0).all()
    bad = torch.ones(2, 300, 310)
    bad[0, 3, 3] = torch.nan
    got = zeropower_batched(bad, ns_method=method)
    assert got[0].isnan().all()
    assert got[1].isfinite().all()
    for shape in ((0, 3, 4), (2, 0, 4), (2, 4, 0)):
        assert zeropower_batched(torch.empty(shape), ns_method=method).shape == shape


class Live(TorchDispatchMode):
    """Bytes of the storages that are alive, now and at most."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        known = {id(t.untyped_storage()) for t in tree_leaves(args) if is_tensor(t)}
        out = function(*args, **(kwargs or {}))
        for tensor in filter(is_tensor, tree_leaves(out)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.seen and id(storage) not in known:
                self.seen.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return out

    def gone(self, key, nbytes):
        self.seen.discard(key)
        self.now -= nbytes


def is_tensor(x):
    return isinstance(x, torch.Tensor)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(160, 160), (160, 320), (320, 160)])
def test_peak_memory_is_the_results_and_eight_stacks(method, shape):
    dirs = [torch.ones(shape) for _ in range(12)]
    cap = 3 * dirs[0].nbytes
    with Live() as live:
        out = orthogonalize_bucketed(dirs, ns_method=method, max_stack_bytes=cap)
    results = sum(G.nbytes for G in out)
    assert results <= live.peak <= results + 8 * cap


def test_another_learning_rate_compiles_nothing():
    weight = torch.nn.Parameter(torch.ones(256, 512))
    muon = Muon([weight], lr=0.1)
    before = torch._dynamo.utils.counters.copy()
    for lr in (0.1, 0.2, 0.3):
        weight.grad = torch.randn(256, 512)
        muon.param_groups[0]["lr"] = lr
        muon.step()
    assert torch._dynamo.utils.counters == before
    assert choose_method(256, 512, torch.float32, CPU) == "gram-mirrored"
