"""What only a CUDA device can show; skipped, so not measured, where there is none."""

import pytest
import torch

from stacklm.optim import (
    Muon,
    choose_method,
    orthogonalize_bucketed,
    zeropower_batched,
    zeropower_via_newtonschulz5,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
METHODS = ("auto", "direct", "direct-mirrored", "gram", "gram-mirrored")
SHAPES = [(512, 512), (128, 512), (512, 1408)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_is_within_1e_5_of_float64(method, shape, spectra, matrix):
    for name, sigma in spectra.items():
        G = matrix(*shape, sigma(min(shape)).double()).float().cuda()
        exact = zeropower_via_newtonschulz5(G.double())
        got = zeropower_via_newtonschulz5(G, ns_method=method)
        error = (got - exact).abs().max().item()
        assert error < 1e-5, f"{name}: {error}"


@pytest.mark.parametrize("method", METHODS)
def test_looped_and_batched_agree(method):
    """Other kernels may run for a stack; in fp32 they round alike to 1e-5."""
    stack = torch.randn(5, 256, 512, device="cuda")
    looped = [zeropower_via_newtonschulz5(G, ns_method=method) for G in stack]
    batched = zeropower_batched(stack, ns_method=method)
    torch.testing.assert_close(batched, torch.stack(looped), atol=1e-5, rtol=0)


def test_auto_is_direct_in_half_precision_and_gram_for_long_fp32():
    device = torch.device("cuda")
    assert choose_method(512, 1408, torch.bfloat16, device) == "direct"
    assert choose_method(512, 1408, torch.float32, device) == "gram"


def test_a_step_never_waits_for_the_device():
    weights = [torch.nn.Parameter(torch.randn(s, device="cuda")) for s in SHAPES * 2]
    muon = Muon(weights, lr=torch.tensor(0.02, device="cuda"))
    for p in weights:
        p.grad = torch.randn_like(p)
    muon.step()  # what is done only once
    torch.cuda.set_sync_debug_mode("error")
    try:
        muon.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("method", ["direct", "gram"])
def test_the_iteration_can_be_captured_in_a_graph(method):
    """For those whose matrices are so small that launches dominate even in stacks."""
    stack = torch.randn(4, 64, 160, device="cuda")
    want = zeropower_batched(stack, ns_method=method)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = zeropower_batched(stack, ns_method=method)
    stack.mul_(-1)
    graph.replay()
    torch.testing.assert_close(got, -want)


def test_peak_memory_is_the_results_and_eight_stacks():
    dirs = [torch.randn(512, 1408, device="cuda") for _ in range(24)]
    cap = 6 * dirs[0].nbytes
    orthogonalize_bucketed(dirs[:6], max_stack_bytes=cap)  # workspaces
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = orthogonalize_bucketed(dirs, max_stack_bytes=cap)
    extra = torch.cuda.max_memory_allocated() - before
    assert extra <= sum(G.nbytes for G in out) + 8 * cap
