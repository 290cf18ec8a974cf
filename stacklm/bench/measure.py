"""The candidates: ours in each form, the plain loop, and the peers.

``times`` of ours are of Newton–Schulz alone on all matrices; a peer offers a whole step
only, so peers are compared with a whole step of ours, on fewer matrices, in the same
rounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from stacklm.bench.cases import hard_matrices, plain_newton_schulz
from stacklm.bench.clock import Times, by_turns
from stacklm.bench.peers import PEERS, eager_on_cpu, installed, prepare
from stacklm.optim import (
    Muon,
    newton_schulz_flops,
    orthogonalize_bucketed,
    zeropower_via_newtonschulz5,
)
from stacklm.optim.checks import NS_METHODS

PLAIN = "plain loop"
AUTO = "auto"
STEP = "stacklm, a whole step"
HALF_STEP = "stacklm, ns_dtype bf16"
# Sides of the square products that stand for the machine's peak.
PEAK_SIZES = (512, 1024, 2048)
CLASSES = ((512, 512), (128, 512), (512, 1408))


def forms() -> dict[str, Callable[[list[Tensor]], list[Tensor]]]:
    """What is timed of ours: {name: matrices -> their directions}."""
    run = functools.partial
    named = {
        PLAIN: lambda dirs: [plain_newton_schulz(G) for G in dirs],
        "direct, looped": run(
            orthogonalize_bucketed, ns_method="direct", max_stack_bytes=0
        ),
    }
    for method in NS_METHODS:
        named[method] = run(orthogonalize_bucketed, ns_method=method)
    return named


def whole_step(
    grads: list[Tensor], ns_dtype: torch.dtype | None = None
) -> Callable[[], list[Tensor]]:
    """A step of our Muon on zero weights, made like those of the peers.

    Args:
        grads: Gradients (m_i, n_i).
        ns_dtype: Of the iteration; None: that of the gradients, fp32.

    Returns:
        A function that takes a step and returns the weights.
    """
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    muon = Muon(params, lr=1.0, weight_decay=0.0, ns_dtype=ns_dtype)

    def step():
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        muon.step()
        return [p.detach() for p in params]

    return step


def time_ours(
    dirs: list[Tensor], rounds: int, clock: str, said: Callable[[str], None]
) -> dict[str, Times]:
    """Every form, a whole step, and products for the peak, by turns.

    Args:
        dirs: Matrices (m_i, n_i) in fp32.
        rounds: Turns.
        clock: As in ``by_turns``.
        said: Told what happens now.

    Returns:
        {name: times}; the products are named "GEMM" and their side.
    """
    device = dirs[0].device.type
    runs = {}
    for name, form in forms().items():
        form(dirs[:7])
        runs[name] = functools.partial(form, dirs)
    step = runs[STEP] = whole_step(dirs)
    step()
    for n in PEAK_SIZES:
        A = torch.randn(n, n, device=device)
        runs[f"GEMM {n}"] = functools.partial(_products, A, max(1, 2 * 2048**3 // n**3))
    return by_turns(runs, rounds, clock=clock, device=device, said=said)


def _products(A: Tensor, count: int) -> None:
    out = torch.empty_like(A)
    for _ in range(count):
        torch.mm(A, A, out=out)


def peak(times: dict[str, Times]) -> float:
    """FLOP/s of the fastest product that was timed, of all sizes and rounds."""
    best = 0.0
    for n in PEAK_SIZES:
        flops = 2 * n**3 * max(1, 2 * 2048**3 // n**3)
        best = max(best, flops / min(times[f"GEMM {n}"].seconds))
    return best


def time_peers(
    grads: list[Tensor],
    rounds: int,
    clock: str,
    said: Callable[[str], None],
    patience: float = 60.0,
) -> tuple[dict[str, Times], dict[str, float], dict[str, str]]:
    """A whole step of every peer and of ours, and the plain loop, by turns.

    Args:
        grads: Gradients (m_i, n_i) in fp32.
        rounds: Turns.
        clock: As in ``by_turns``.
        said: Told what happens now.
        patience: Seconds that a step of a peer may take, as a small matrix foretells.

    Returns:
        ({name: times}, {name: distance from float64}, {name: why it did not run}). The
        distance is what is left of the first step after the best factor is divided out,
        relative to its length, since packages scale steps differently.
    """
    device = grads[0].device.type
    one_each = [next(g for g in grads if sorted(g.shape) == [*c]) for c in CLASSES]
    exact = [zeropower_via_newtonschulz5(G.double()) for G in one_each]
    runs: dict = {PLAIN: lambda: [plain_newton_schulz(G) for G in grads]}
    errors, failed = {PLAIN: _distance(map(plain_newton_schulz, one_each), exact)}, {}
    half = functools.partial(whole_step, ns_dtype=torch.bfloat16)
    makers = {STEP: whole_step, HALF_STEP: half}
    for peer in PEERS:
        if installed(peer) is None:
            failed[peer.package] = "not installed: pip install stacklm[peers]"
        else:
            makers[peer.package] = functools.partial(prepare, peer)
    with eager_on_cpu(device):
        for name, make in makers.items():
            said(f"trying {name}")
            try:
                needs = foretold(make, grads, clock)
                if needs > patience:
                    failed[name] = f"too slow here: a step would take {needs:.0f} s"
                    continue
                errors[name] = _distance([-W for W in make(one_each)()], exact)
                runs[name] = make(grads)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        times = by_turns(runs, rounds, clock=clock, device=device, said=said)
    return times, errors, failed


def foretold(make: Callable, grads: list[Tensor], clock: str) -> float:
    """Seconds that a step will take, by FLOPs, from a step on one small matrix.

    Args:
        make: Gradients -> a function that takes a step.
        grads: What the step will be for.
        clock: As in ``by_turns``.
    """
    device = grads[0].device
    small = torch.randn(128, 256, device=device)
    step = make([small])
    step()
    times = by_turns({"it": step}, 1, clock=clock, device=device.type)
    flops = sum(newton_schulz_flops(*g.shape) for g in grads)
    return times["it"].median * flops / newton_schulz_flops(*small.shape)


def _distance(got, exact: list[Tensor]) -> float:
    worst = 0.0
    for step, want in zip(got, exact, strict=True):
        step = step.double()
        scale = (step * want).sum() / step.square().sum()
        worst = max(worst, float((scale * step - want).norm() / want.norm()))
    return worst


def accuracy(said: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Largest difference from float64 of every form, in fp32, per spectrum.

    Args:
        said: Told what happens now.

    Returns:
        {form: {spectrum: largest difference of an entry, over the three classes}}.
    """
    errors: dict[str, dict[str, float]] = {name: {} for name in forms()}
    del errors[PLAIN]  # tiny and huge entries break it: chapter 02
    for shape in CLASSES:
        for spectrum, G in hard_matrices(*shape).items():
            said(f"accuracy: {shape[0]} x {shape[1]}, {spectrum}")
            exact = zeropower_via_newtonschulz5(G.double())
            for name in errors:
                gap = float((forms()[name]([G])[0] - exact).abs().max())
                errors[name][spectrum] = max(gap, errors[name].get(spectrum, 0.0))
    return errors
