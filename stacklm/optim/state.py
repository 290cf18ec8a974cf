"""Muon's state on its way out of a checkpoint: checked first, then copied.

State per parameter: ``momentum_buffer``, B <- mu*B + g, of the parameter's shape, in
at least float32. Taught in chapter 03; the convention of ``torch.optim.Muon``, whose
buffer is (1 - mu)*B, is converted in ``convert.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stacklm.optim.checks import check_muon_group
from stacklm.optim.layout import like_parameter

# How a group is computed and what its parameters are belong to the process that runs,
# not to the run that was saved: a looped checkpoint loads into a batched optimizer.
OWN_OPTIONS = ("batched", "stacked")


def momentum_dtype(p: Tensor) -> torch.dtype:
    """float32 for fp16, bf16 and fp32 parameters, float64 for float64 ones."""
    return torch.promote_types(p.dtype, torch.float32)


def name_of(group: dict, i: int) -> str:
    """The name of the i-th parameter of a group, or its place if it has none."""
    return group["param_names"][i] if "param_names" in group else f"parameter {i}"


def check_muon_state(saved: dict) -> None:
    """Refuse what is no state_dict of this Muon; a state of SGD would fit otherwise.

    Raises:
        ValueError: It is no optimizer's state, or another optimizer's.
    """
    if not {"state", "param_groups"} <= set(saved):
        raise ValueError(
            f"an optimizer's state has state and param_groups, this has {list(saved)}; "
            "pass what muon.state_dict() returned"
        )
    for group in saved["param_groups"]:
        if "adjust_lr_fn" in group:
            raise ValueError(
                "this is a state of torch.optim.Muon, whose momentum is 1 - mu times "
                "ours; convert it with from_torch_muon_state"
            )
        if "ns_steps" not in group:
            raise ValueError(
                f"this is no state of Muon, its groups have {sorted(group)}; load the "
                "state of a Muon on the same model"
            )


def groups_to_load(saved: dict, own: list[dict]) -> list[dict]:
    """The saved groups, completed by options that they lack, with OWN_OPTIONS kept.

    Args:
        saved: A state_dict that ``momentum_to_load`` accepted.
        own: The ``param_groups`` of the optimizer that loads it.

    Raises:
        TypeError: A saved option is of the wrong type.
        ValueError: A saved option is out of range.
    """
    groups = []
    for theirs, ours in zip(saved["param_groups"], own, strict=True):
        kept = {option: ours[option] for option in OWN_OPTIONS}
        groups.append({**ours, **theirs, **kept})
        check_muon_group(groups[-1])
    return groups


def momentum_to_load(saved: dict, own: list[dict]) -> dict[Tensor, Tensor]:
    """Check a state_dict and copy its momentum.

    Args:
        saved: A state_dict, not changed.
        own: The ``param_groups`` of the optimizer that loads it.

    Returns:
        {parameter: momentum}, on the device of the parameter.

    Raises:
        ValueError: The state has other groups, their parameters in another order, or a
            buffer of another shape than its parameter.
    """
    sizes = [len(group["params"]) for group in saved["param_groups"]]
    own_sizes = [len(group["params"]) for group in own]
    if sizes != own_sizes:
        raise ValueError(
            f"the state has parameter groups of {sizes} parameters, this Muon of "
            f"{own_sizes}; build it with the same groups in the same order"
        )
    buffers = {}
    for theirs, ours in zip(saved["param_groups"], own, strict=True):
        _check_order(theirs.get("param_names"), ours.get("param_names"))
        for i, key in enumerate(theirs["params"]):
            entry, p = saved["state"].get(key), ours["params"][i]
            if entry:
                buffers[p] = _momentum(entry, p, name_of(ours, i))
    return buffers


def _check_order(theirs: list[str] | None, ours: list[str] | None) -> None:
    """States go by position: in another order, equal shapes would swap momentum."""
    if theirs and ours and theirs != ours and sorted(theirs) == sorted(ours):
        i = next(i for i in range(len(ours)) if theirs[i] != ours[i])
        raise ValueError(
            f"the state has {theirs[i]} where this Muon has {ours[i]}; build it with "
            "the same parameters in the same order"
        )


def _momentum(entry: dict, p: Tensor, name: str) -> Tensor:
    B = entry.get("momentum_buffer")
    dense = isinstance(B, Tensor) and B.layout is torch.strided and not B.is_complex()
    if not dense or B.shape != p.shape:
        found = f"keys {sorted(entry)}" if B is None else f"a {type(B).__name__}"
        if isinstance(B, Tensor):
            found = f"shape {tuple(B.shape)}, {B.dtype}, {B.layout}"
        raise ValueError(
            f"{name} needs a momentum_buffer of shape {tuple(p.shape)}, the state has "
            f"{found}; load the state of a Muon on the same model"
        )
    return like_parameter(B.detach(), p).to(p.device, momentum_dtype(p), copy=True)
