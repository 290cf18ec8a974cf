"""Muon's state on its way out of a checkpoint: checked first, then copied.

State per parameter: ``momentum_buffer``, B <- mu*B + g, of the parameter's shape, in
at least float32. Taught in chapter 03; the convention of ``torch.optim.Muon``, whose
buffer is (1 - mu)*B, is converted in ``convert.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stacklm.optim.checks import check_muon_group

# How a group is computed and what its parameters are belong to the process that runs,
# not to the run that was saved: a looped checkpoint loads into a batched optimizer.
OWN_OPTIONS = ("batched", "stacked")


def momentum_dtype(p: Tensor) -> torch.dtype:
    """float32 for fp16, bf16 and fp32 parameters, float64 for float64 ones."""
    return torch.promote_types(p.dtype, torch.float32)


def name_of(group: dict, i: int) -> str:
    """The name of the i-th parameter of a group, or its place if it has none."""
    return group["param_names"][i] if "param_names" in group else f"parameter {i}"


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
        ValueError: The state is of another optimizer, has other groups, or a buffer of
            another shape than its parameter.
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
        if "adjust_lr_fn" in theirs:
            raise ValueError(
                "this is a state of torch.optim.Muon, whose momentum is 1 - mu times "
                "ours; convert it with from_torch_muon_state"
            )
        for i, key in enumerate(theirs["params"]):
            entry, p = saved["state"].get(key), ours["params"][i]
            if entry:
                buffers[p] = _momentum(entry, p, name_of(ours, i))
    return buffers


def _momentum(entry: dict, p: Tensor, name: str) -> Tensor:
    B = entry.get("momentum_buffer")
    if B is None or B.shape != p.shape:
        found = f"keys {sorted(entry)}" if B is None else f"shape {tuple(B.shape)}"
        raise ValueError(
            f"{name} needs a momentum_buffer of shape {tuple(p.shape)}, the state has "
            f"{found}; load the state of a Muon on the same model"
        )
    return B.detach().to(p.device, momentum_dtype(p), copy=True)
