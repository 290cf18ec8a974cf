"""The two optimizers of a model: Muon for its hidden matrices, AdamW for the rest.

Legend: K matrices of m x n. Units: learning rates are per step, weight decay is per
step and multiplied by the learning rate. Sources: Liu et al. 2025, arXiv:2502.16982,
for the pair; Loshchilov & Hutter 2019, arXiv:1711.05101, for decoupled decay. Taught
in chapters 01 (who goes where) and 03.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from stacklm.optim.muon import Muon
from stacklm.optim.routing import audit

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

ADAMW_EPS = 1e-8


def build_optimizers(
    model: nn.Module,
    muon_lr: float | Tensor = 0.02,
    adamw_lr: float | Tensor = 3e-3,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    batched_muon: bool | None = None,
    *,
    route: Mapping[str, str] | None = None,
    ns_dtype: torch.dtype | None = None,
    ns_method: str = "auto",
    mesh: DeviceMesh | None = None,
) -> tuple[Muon, AdamW]:
    """Route every parameter and build both optimizers.

    Both know the names of their parameters. Muon has one group, and a second one if
    the route declares stacks; AdamW has one group with weight decay (embeddings,
    heads, kernels) and one without (gains, biases, vectors). A scheduler belongs on
    each of the two: their peaks differ, one multiplier drives both.

    Args:
        model: Any module.
        muon_lr: Peak learning rate of Muon.
        adamw_lr: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay, for both.
        betas: Of AdamW.
        batched_muon: ``batched`` of ``Muon``.
        route: {name or glob: "muon" or "adamw"}, as in ``audit``.
        ns_dtype: As in ``Muon``.
        ns_method: As in ``Muon``.
        mesh: As in ``Muon``; parameters that ``fully_shard`` made need none.

    Returns:
        (muon, adamw).

    Raises:
        ValueError: The audit finds an ambiguous parameter, or nothing for one of the
            two; an option is out of range.
        TypeError: A parameter or option of the wrong type.

    Example:
        >>> mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        >>> route = {"0.weight": "muon", "2.weight": "adamw"}
        >>> muon, adamw = build_optimizers(mlp, route=route)

    References:
        Liu et al. 2025, arXiv:2502.16982
    """
    routes = audit(model, route)
    params = dict(model.named_parameters())

    def group(optimizer, wanted, **options):
        chosen = [r for r in routes if r.optimizer == optimizer and wanted(r)]
        return {"params": [(r.name, params[r.name]) for r in chosen], **options}

    matrices = group("muon", lambda r: not r.stacked)
    stacks = group("muon", lambda r: r.stacked, stacked=True)
    decayed = group("adamw", lambda r: r.decay, weight_decay=weight_decay)
    others = group("adamw", lambda r: not r.decay, weight_decay=0.0)
    muon = Muon(
        _not_empty("Muon", matrices, stacks),
        lr=muon_lr,
        weight_decay=weight_decay,
        batched=batched_muon,
        ns_dtype=ns_dtype,
        ns_method=ns_method,
        mesh=mesh,
    )
    adamw = AdamW(
        _not_empty("AdamW", decayed, others),
        lr=adamw_lr,
        betas=betas,
        eps=ADAMW_EPS,
        weight_decay=weight_decay,
    )
    return muon, adamw


def _not_empty(optimizer: str, *groups: dict) -> list[dict]:
    found = [group for group in groups if group["params"]]
    if not found:
        other = {"Muon": "AdamW", "AdamW": "Muon"}[optimizer]
        raise ValueError(
            f"nothing in this model is for {optimizer}; build {other} alone, or send a "
            f'parameter there with route={{"name": "{optimizer.lower()}"}}'
        )
    return found
