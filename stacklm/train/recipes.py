"""Which optimizers a run has: the pair, or AdamW for everything.

Units: learning rates are per step, at the peak of the schedule. Taught in chapters 01
and 12 (AdamW alone at 6e-4 is the fallback when Muon is distrusted).
"""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW

from stacklm.config import TrainConfig
from stacklm.optim import Muon, audit, build_optimizers
from stacklm.optim.build import ADAMW_EPS


def muon_and_adamw(model: nn.Module, cfg: TrainConfig) -> tuple[Muon, AdamW]:
    """Muon for the hidden matrices, AdamW for the rest, as `cfg` says.

    Args:
        model: Any module that the audit accepts.
        cfg: Peaks, weight decay, momentum and betas.

    Returns:
        (muon, adamw), at their peak learning rates.
    """
    muon, adamw = build_optimizers(
        model,
        muon_lr=cfg.muon_peak_lr,
        adamw_lr=cfg.adamw_peak_lr,
        weight_decay=cfg.weight_decay,
        betas=cfg.betas,
    )
    for group in muon.param_groups:
        group["momentum"] = cfg.momentum
    return muon, adamw


def adamw_alone(model: nn.Module, cfg: TrainConfig) -> tuple[None, AdamW]:
    """AdamW for every parameter, at ``cfg.adamw_peak_lr``.

    Args:
        model: Any module that the audit accepts.
        cfg: Peak, weight decay and betas; what concerns Muon is not used.

    Returns:
        (None, adamw), matrices and embeddings with weight decay, gains without.
    """
    params = dict(model.named_parameters())
    decayed, others = [], []
    for route in audit(model):
        keep = route.decay or route.optimizer == "muon"
        (decayed if keep else others).append((route.name, params[route.name]))
    groups = [
        {"params": decayed, "weight_decay": cfg.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return None, AdamW(groups, lr=cfg.adamw_peak_lr, betas=cfg.betas, eps=ADAMW_EPS)
