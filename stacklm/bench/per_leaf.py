"""Muon leaf by leaf on DTensors: the sharded step that one gets without thinking.

The mathematics of one process, written as for one process. Every product of sharded
matrices then gathers what it lacks, so each matrix pays for itself, in every step of
the iteration:

    wide or square   1 all-reduce for the norm, 3 all-gathers a step: 16
    tall             1 all-reduce for the norm, 2 all-reduces a step: 11

So it is for small matrices. DTensor weighs ways by their bytes, and takes others for
larger ones: in fp32 on four ranks, 26 for 512 x 512 and for 512 x 1408.

The baseline of ``stacklm.bench.sharded``. Legend: m x n matrices, fp32 or wider.
Taught in chapter 13.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from stacklm.optim import muon_scale, newton_schulz_step


def orthogonalize_leaf(G: Tensor, steps: int = 5) -> Tensor:
    """Approximate the polar factor of one matrix, which may be a DTensor.

    The norm is taken at once, not after the largest entry as ``unit_norm`` does it: on
    a DTensor that saves two all-reduces, and this is the baseline at its best.

    Args:
        G: (m, n), not zero; read, never changed.
        steps: Number of Newton–Schulz steps.

    Returns:
        (m, n), in the dtype and placement of ``G``.
    """
    tall = G.size(0) > G.size(1)
    X = G.mT if tall else G
    X = X / torch.linalg.vector_norm(X).clamp(min=torch.finfo(G.dtype).tiny)
    for _ in range(steps):
        X = newton_schulz_step(X)
    return X.mT if tall else X


class PerLeafMuon(Optimizer):
    """The step of ``stacklm.optim.Muon``, one parameter after another.

    Args:
        params: Matrices (m, n): DTensors sharded by rows, or whole tensors.
        lr: Learning rate.
        momentum: mu; it looks ahead, as Nesterov does.
        weight_decay: wd, decoupled.
        ns_steps: Number of Newton–Schulz steps.

    State per parameter: ``momentum_buffer``, B <- mu*B + g.
    """

    def __init__(
        self,
        params,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "ns_steps": ns_steps,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self) -> None:
        """Update every matrix that has a gradient. Collective if they are DTensors."""
        for group in self.param_groups:
            mu, lr, wd = (group[name] for name in ("momentum", "lr", "weight_decay"))
            for p in group["params"]:
                if p.grad is None:
                    continue
                own = self.state[p]
                if not own:
                    own["momentum_buffer"] = torch.zeros_like(p)
                B = own["momentum_buffer"]
                B.mul_(mu).add_(p.grad)
                D = orthogonalize_leaf(p.grad + mu * B, group["ns_steps"])
                p.mul_(1 - lr * wd)
                p.add_(D, alpha=-lr * muon_scale(*p.shape))
