"""Go on with a run of torch.optim.Muon, and back.

Two conventions differ. torch averages, B <- mu*B + (1 - mu)*g, we sum, B <- mu*B + g,
so its buffer is (1 - mu) times ours; Newton–Schulz divides the factor out. And torch's
default rate rule scales the step of an m x n matrix by sqrt(max(1, m/n)), ours (torch:
adjust_lr_fn="match_rms_adamw") by 0.2*sqrt(max(m, n)). Their ratio is 5/sqrt(n),
whatever m is: a matrix's rate depends on its columns alone.

Legend: matrices of m x n, m rows (outputs) and n columns (inputs). Units: learning
rates are per step. Taught in chapter 03. Sources: ``torch.optim.Muon``; Jordan 2024
and Liu et al. 2025 for the two rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from stacklm.optim.muon import muon_scale
from stacklm.optim.newton_schulz import COEFFICIENTS

RULES = {
    "original": lambda m, n: math.sqrt(max(1.0, m / n)),
    "match_rms_adamw": muon_scale,
}
TORCH_EPS = 1e-7  # the default of torch.optim.Muon
# What only one of the two keeps in its groups.
TORCH_OPTIONS = ("ns_coefficients", "eps", "adjust_lr_fn")
OUR_OPTIONS = ("stacked", "batched", "ns_dtype", "ns_method")


def convert_muon_lr(
    lr: float | Tensor,
    shape: Iterable[int],
    *,
    source: str = "original",
    target: str = "match_rms_adamw",
) -> float | Tensor:
    """The learning rate that takes the same step under another rule.

    Args:
        lr: Learning rate under the rule ``source``.
        shape: (m, n) of the matrix, or (E, m, n) of a stack.
        source: "original", sqrt(max(1, m/n)), torch's default; or "match_rms_adamw",
            0.2*sqrt(max(m, n)), the rule of ``stacklm.optim.Muon``.
        target: The rule wanted, one of the same two.

    Returns:
        ``lr`` times the ratio of the two factors. To keep lr * weight_decay, the decay
        per step, divide weight_decay by the same ratio.

    Raises:
        ValueError: A rule is unknown, or ``shape`` is not that of a matrix.

    Example:
        >>> round(convert_muon_lr(0.02, (1408, 512)), 6)  # 0.02 * 5 / sqrt(512)
        0.004419
    """
    for rule in (source, target):
        if rule not in RULES:
            raise ValueError(f"the rule must be one of {list(RULES)}, got {rule!r}")
    shape = tuple(shape)
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ValueError(f"shape must be (m, n) or (E, m, n), got {shape}")
    m, n = shape[-2:]
    return lr * (RULES[source](m, n) / RULES[target](m, n))


def groups_by_columns(named_params) -> list[dict]:
    """Parameter groups of one number of columns each, in order of first appearance.

    What a run with torch's "original" rule needs before it converts: one learning rate
    a group then does for all its matrices.

    Args:
        named_params: (name, matrix) pairs.

    Returns:
        ``[{"params": [(name, matrix), ...]}, ...]``, for either Muon.

    Raises:
        ValueError: A parameter is no matrix.
    """
    groups: dict[int, dict] = {}
    for name, p in named_params:
        if p.ndim != 2:
            raise ValueError(
                f"groups_by_columns takes matrices, got {name} of shape "
                f"{tuple(p.shape)}; leave it out"
            )
        groups.setdefault(p.shape[1], {"params": []})["params"].append((name, p))
    return list(groups.values())


def from_torch_muon_state(state_dict: dict) -> dict:
    """A state_dict of torch.optim.Muon as one of stacklm.optim.Muon.

    Build our Muon over the same parameters in the same groups and order, load the
    result, and the run goes on: same momentum, same steps, same decay. The learning
    rate, also a scheduler's ``initial_lr``, and the decay are converted for groups
    under the rule "original".

    Args:
        state_dict: Of ``torch.optim.Muon``; not changed.

    Returns:
        A new state_dict; no tensor is shared.

    Raises:
        ValueError: It is of another optimizer; its coefficients are not Jordan's; its
            momentum is 1 or more; or a group under "original" mixes numbers of columns
            (see ``groups_by_columns``) or lacks momentum for some.
    """
    groups = []
    for saved in state_dict["param_groups"]:
        _check_torch_group(saved)
        group = {key: saved[key] for key in saved if key not in TORCH_OPTIONS}
        if saved["adjust_lr_fn"] in (None, "original"):
            shape = _one_shape(saved, state_dict["state"])
            group = _rescaled(group, shape, "original", "match_rms_adamw")
        groups.append(group)
    return _with_buffers(state_dict, groups, lambda B, mu: B / (1 - mu))


def to_torch_muon_state(
    state_dict: dict, *, adjust_lr_fn: str = "match_rms_adamw"
) -> dict:
    """A state_dict of stacklm.optim.Muon as one of torch.optim.Muon.

    Args:
        state_dict: Of ``stacklm.optim.Muon``; not changed.
        adjust_lr_fn: The rule of the torch Muon that will load it.

    Returns:
        A new state_dict; no tensor is shared.

    Raises:
        ValueError: It is of another optimizer or holds stacks, which torch has not; the
            rule is unknown; or a group that goes to "original" mixes numbers of columns
            (see ``groups_by_columns``) or lacks momentum for some.
    """
    if adjust_lr_fn not in RULES:
        raise ValueError(
            f"adjust_lr_fn must be one of {list(RULES)}, got {adjust_lr_fn!r}"
        )
    groups = []
    for saved in state_dict["param_groups"]:
        if "stacked" not in saved:
            raise ValueError("this is no state of stacklm.optim.Muon")
        if saved["stacked"]:
            raise ValueError(
                "torch.optim.Muon has no stacks, this state has; keep it with ours"
            )
        group = {key: saved[key] for key in saved if key not in OUR_OPTIONS}
        if adjust_lr_fn == "original":
            shape = _one_shape(saved, state_dict["state"])
            group = _rescaled(group, shape, "match_rms_adamw", "original")
        theirs = (COEFFICIENTS, TORCH_EPS, adjust_lr_fn)
        groups.append(group | dict(zip(TORCH_OPTIONS, theirs, strict=True)))
    return _with_buffers(state_dict, groups, lambda B, mu: B * (1 - mu))


def _check_torch_group(saved: dict) -> None:
    if "adjust_lr_fn" not in saved:
        raise ValueError(
            "this is no state of torch.optim.Muon, its groups have no adjust_lr_fn; "
            "load a state of stacklm.optim.Muon as it is"
        )
    if tuple(saved["ns_coefficients"]) != COEFFICIENTS:
        raise ValueError(
            f"stacklm iterates with the coefficients {COEFFICIENTS}, this state with "
            f"{saved['ns_coefficients']}; finish that run where it began"
        )
    if saved["momentum"] >= 1:
        raise ValueError(
            f"momentum must be below 1 to convert, got {saved['momentum']}; at 1 "
            "torch's buffer has never taken up a gradient, so start without a state"
        )


def _with_buffers(state_dict: dict, groups: list[dict], convert) -> dict:
    """A new state_dict: these groups, and every momentum buffer through ``convert``."""
    state = {}
    for group in groups:
        for key in group["params"]:
            if key in state_dict["state"]:
                B = state_dict["state"][key]["momentum_buffer"].detach()
                # In at least fp32, or bf16 would round a second time.
                B = B.to(torch.promote_types(B.dtype, torch.float32))
                state[key] = {"momentum_buffer": convert(B, group["momentum"])}
    return {"state": state, "param_groups": groups}


def _one_shape(group: dict, state: dict) -> tuple[int, ...]:
    """A shape that speaks for the group: all its matrices have the same columns."""
    missing = [key for key in group["params"] if key not in state]
    if missing or not group["params"]:
        raise ValueError(
            f"no momentum for the parameters {missing} of this group, so their shapes "
            "are unknown; take one step with a gradient for each before saving, or "
            "build a new Muon with convert_muon_lr"
        )
    shapes = [tuple(state[key]["momentum_buffer"].shape) for key in group["params"]]
    columns = sorted({shape[-1] for shape in shapes})
    if len(columns) != 1:
        raise ValueError(
            f"one learning rate cannot serve matrices of {columns} columns under the "
            'rule "original"; group them with groups_by_columns'
        )
    return shapes[0]


def _rescaled(group: dict, shape, source: str, target: str) -> dict:
    """The group with its rates under ``target`` and the same decay per step."""
    ratio = convert_muon_lr(1.0, shape, source=source, target=target)
    rates = {key: group[key] * ratio for key in ("lr", "initial_lr") if key in group}
    return {**group, **rates, "weight_decay": group["weight_decay"] / ratio}
