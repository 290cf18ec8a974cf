"""The optimizers: Newton–Schulz, Muon, and which parameter goes where.

newton_schulz.py   the iteration: one matrix, a stack, a list of any shapes
plan.py            which form of it each shape gets: table, costs, caps
gram.py, symmetric.py   the faster forms
muon.py            the optimizer built on it
kinds.py           rules: what kind of parameter is this?
linears.py         the rules for Linear layers
sighting.py        what a rule is shown, and what it answers
routing.py         the audit of a model by these rules, and its table
build.py           both optimizers for a model in one call
convert.py         go on with a run of torch.optim.Muon, and back
qk_clip.py         what to do about attention logits that grow too large
schedule.py        Warmup–Stable–Decay: the learning rate as a function of the step
pieces.py          what of its matrices a process holds: all, or rows
layout.py, sharded.py, agree.py   how they lie over ranks, who owns which, one check
checks.py, state.py   what is refused, and how a checkpoint is loaded
"""

from stacklm.optim.build import build_optimizers
from stacklm.optim.convert import (
    convert_muon_lr,
    from_torch_muon_state,
    groups_by_columns,
    to_torch_muon_state,
)
from stacklm.optim.muon import Muon, muon_scale
from stacklm.optim.newton_schulz import (
    COEFFICIENTS,
    newton_schulz_step,
    orthogonalize_bucketed,
    quintic,
    unit_norm,
    zeropower_batched,
    zeropower_via_newtonschulz5,
)
from stacklm.optim.plan import (
    Plan,
    choose_method,
    format_plans,
    newton_schulz_flops,
    plan_newton_schulz,
)
from stacklm.optim.qk_clip import clip_factors, qk_clip_
from stacklm.optim.routing import Route, audit, format_routes
from stacklm.optim.schedule import SHAPES, wsd_lr, wsd_lr_branch, wsd_multiplier

__all__ = [
    "COEFFICIENTS",
    "SHAPES",
    "Muon",
    "Plan",
    "Route",
    "audit",
    "build_optimizers",
    "choose_method",
    "clip_factors",
    "convert_muon_lr",
    "format_plans",
    "format_routes",
    "from_torch_muon_state",
    "groups_by_columns",
    "muon_scale",
    "newton_schulz_flops",
    "newton_schulz_step",
    "orthogonalize_bucketed",
    "plan_newton_schulz",
    "qk_clip_",
    "quintic",
    "to_torch_muon_state",
    "unit_norm",
    "wsd_lr",
    "wsd_lr_branch",
    "wsd_multiplier",
    "zeropower_batched",
    "zeropower_via_newtonschulz5",
]
