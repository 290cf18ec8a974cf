"""Other packages' Muon, each in the best setting that it offers for the device.

All get Jordan's coefficients, five steps, and no weight decay. A package that is
missing or cannot run is reported with its reason, not left out.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import torch
from torch.optim import Optimizer

from stacklm.optim.newton_schulz import COEFFICIENTS


@dataclass(frozen=True)
class Peer:
    """A package and how its Muon is built.

    Args:
        package: Its name on PyPI.
        setting: What was chosen, in words.
        build: (parameters, device) -> optimizer with lr 1.
    """

    package: str
    setting: str
    build: Callable[[list, str], Optimizer]


def _torch(params, device):
    return torch.optim.Muon(params, lr=1.0, weight_decay=0.0)


def _muon(params, device):
    return import_module("muon").SingleDeviceMuon(params, lr=1.0)


def _pytorch_optimizer(params, device):
    groups = [{"params": params, "use_muon": True}]
    return import_module("pytorch_optimizer").Muon(groups, lr=1.0)


def _heavyball(params, device):
    return import_module("heavyball").Muon(params, lr=1.0)


def _gram_newton_schulz(params, device):
    return import_module("gram_newton_schulz").Muon(
        params,
        lr=1.0,
        weight_decay=0.0,
        ns_coefficients=[list(COEFFICIENTS)] * 5,
        ns_use_kernels=device == "cuda",
        gram_newton_schulz_restart_iterations=[3],  # what it finds by itself
    )


def _optimuon(params, device):
    package = import_module("optimuon")
    precision = {"ns_dtype": None} if device == "cpu" else {}
    return package.Muon(
        params,
        lr=1.0,
        ns_coefficients=package.NS_COEFFICIENTS_DEFAULT,
        ns_norm_scale=package.NS_NORM_SCALE_DEFAULT,
        normuon=False,
        cautious_wd=False,
        **precision,
    )


def _dtensor_muon(params, device):
    return import_module("dtensor_muon").MuonForeach(
        params,
        lr=1.0,
        wd=0.0,
        use_cautious_wd=False,
        orthogonalization_strategy="newton_schulz",
    )


def _emerging_optimizers(params, device):
    module = import_module("emerging_optimizers.orthogonalized_optimizers")
    return module.Muon(params, lr=1.0, weight_decay=0.0)


PEERS = (
    Peer("torch", "torch.optim.Muon, bf16", _torch),
    Peer("muon-optimizer", "SingleDeviceMuon, bf16", _muon),
    Peer("pytorch-optimizer", "foreach, bf16", _pytorch_optimizer),
    Peer("heavyball", "Muon, bf16", _heavyball),
    Peer("gram-newton-schulz", "Gram form, fp16", _gram_newton_schulz),
    Peer("optimuon", "Gram form in stacks, fp32 on a CPU", _optimuon),
    Peer("dtensor-muon", "MuonForeach, bf16", _dtensor_muon),
    Peer("emerging-optimizers", "Muon, bf16", _emerging_optimizers),
)


def installed(peer: Peer) -> str | None:
    """The version that is installed, or None."""
    try:
        return version(peer.package)
    except PackageNotFoundError:
        return None


def prepare(peer: Peer, grads: list[torch.Tensor]) -> Callable[[], list]:
    """Build a peer's optimizer for matrices of these shapes.

    On a CPU its compiled functions run uncompiled: products are what takes the time,
    and compiling takes minutes.

    Args:
        peer: Whose optimizer.
        grads: Gradients (m_i, n_i); copied for every step.

    Returns:
        A function that takes one step and returns the weights, which were zero before
        the first.

    Raises:
        Exception: Whatever the package raises.
    """
    device = grads[0].device.type
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer = peer.build(params, device)

    def step():
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()  # some packages write to it
        optimizer.step()
        return [p.detach() for p in params]

    return step


@contextlib.contextmanager
def eager_on_cpu(device: str):
    """Compiled functions run uncompiled inside, if the device is a CPU."""
    if device != "cpu":
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
