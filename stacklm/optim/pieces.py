"""The matrices of a step: which there are, what this process holds of them.

Alone, a process holds whole matrices. In company it holds rows of them, or copies
that all ranks have, as ``layout.py`` says; then orthogonalizing is shared out by
``sharded.py``. Legend: matrices of m x n. Taught in chapters 03 and 13.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stacklm.optim.layout import Layout, Matrix, local_part
from stacklm.optim.newton_schulz import orthogonalize_bucketed
from stacklm.optim.plan import (
    MAX_STACK_BYTES,
    choose_method,
    newton_schulz_flops,
)
from stacklm.optim.sharded import orthogonalize_sharded
from stacklm.optim.state import momentum_dtype, name_of


@dataclass
class Pieces:
    """Matrices of a group of one dtype, device and layout: one foreach call takes them.

    All lists have an entry per matrix; on a rank without rows of it, an empty one.
    """

    layout: Layout | None
    """How they lie over ranks; None: they are whole, and only here."""
    weights: list[Tensor] = field(default_factory=list)
    """(rows, n) each; writing to one writes to its parameter."""
    gradients: list[Tensor] = field(default_factory=list)
    """Likewise."""
    momentum: list[Tensor] = field(default_factory=list)
    """Likewise."""
    matrices: list[Matrix] = field(default_factory=list)
    """What they are pieces of; not filled without a layout."""

    def held(self, *lists: list) -> list[list]:
        """Of lists with an entry per matrix, those entries that have rows here."""
        here = [i for i, w in enumerate(self.weights) if w.numel()]
        return [[entries[i] for i in here] for entries in lists]

    def shapes(self) -> list[tuple[int, int]]:
        """(m, n) of the whole matrices."""
        if self.layout is None:
            return [tuple(w.shape) for w in self.weights]
        return [(matrix.m, matrix.cols) for matrix in self.matrices]


def pieces_of(
    group: dict, state: dict, layout: Callable[[Tensor], Layout | None]
) -> list[Pieces]:
    """What a step works on: the parameters of a group that have a gradient.

    Args:
        group: Of ``Muon.param_groups``.
        state: Of ``Muon``; momentum that is missing is begun at zero.
        layout: The layout of a parameter.

    Returns:
        Sets of pieces in the order of the parameters, so the same on every rank.
    """
    stacked, sets = group["stacked"], {}
    for p in group["params"]:
        if p.grad is None:
            continue
        own = state[p]
        if "momentum_buffer" not in own:
            own["momentum_buffer"] = torch.zeros_like(p, dtype=momentum_dtype(p))
        place = layout(p)
        key = (p.device, p.dtype, p.grad.dtype, place)
        some = sets.setdefault(key, Pieces(place))
        lists = (some.weights, some.gradients, some.momentum)
        tensors = (p, p.grad, own["momentum_buffer"])
        for matrices, tensor in zip(lists, tensors, strict=True):
            local = local_part(tensor)
            if place is not None:
                matrices.extend(place.pieces(local, stacked, p.size(0)))
            else:
                matrices.extend(local.unbind() if stacked else [local])
        if place is not None:
            some.matrices.extend(place.matrices(p.shape, stacked))
    return [some for some in sets.values() if some.weights]


def look_ahead(some: Pieces, group: dict) -> list[Tensor]:
    """Update the momentum of all pieces; return what is to be orthogonalized.

    Args:
        some: Of this group.
        group: Its momentum and whether it looks ahead.

    Returns:
        (rows, n) for every matrix, in the dtype of the momentum.
    """
    mu = group["momentum"]
    G, B = some.held(some.gradients, some.momentum)
    if not B:
        return some.momentum
    torch._foreach_mul_(B, mu)
    torch._foreach_add_(B, G)  # B <- mu*B + g
    if not group["nesterov"]:
        return some.momentum
    ahead = iter(torch._foreach_add(G, B, alpha=mu))  # g + mu*B
    return [next(ahead) if b.numel() else b for b in some.momentum]


def orthogonalize(looks: list[Tensor], some: Pieces, group: dict) -> list[Tensor]:
    """Newton–Schulz on every matrix, in stacks as ``batched`` says.

    Args:
        looks: What ``look_ahead`` returned.
        some: Of this group.
        group: Its Newton–Schulz options.

    Returns:
        (rows, n) for every matrix. Collective if ``some`` has a layout.
    """
    options = {name: group[name] for name in ("ns_dtype", "ns_method")}
    options["max_stack_bytes"] = {None: None, True: MAX_STACK_BYTES, False: 0}[
        group["batched"]
    ]

    def whole(matrices: list[Tensor], out: list[Tensor] | None = None) -> list[Tensor]:
        return orthogonalize_bucketed(matrices, group["ns_steps"], **options, out=out)

    if some.layout is None:  # momentum must stay, what looks ahead need not
        return whole(looks, None if looks is some.momentum else looks)
    dtype = group["ns_dtype"]
    narrow = dtype is not None and dtype.itemsize < looks[0].dtype.itemsize
    return orthogonalize_sharded(
        looks,
        some.matrices,
        [_flops(matrix, looks[0], group) for matrix in some.matrices],
        some.layout,
        whole,
        wire=dtype if narrow else None,
    )


def _flops(matrix: Matrix, look: Tensor, group: dict) -> int:
    m, n = matrix.m, matrix.cols
    method, dtype = group["ns_method"], group["ns_dtype"] or look.dtype
    if method == "auto":
        method = choose_method(min(m, n), max(m, n), dtype, look.device)
    return newton_schulz_flops(m, n, group["ns_steps"], method)


def facts_of(groups: list[dict]) -> list[str]:
    """What all ranks must have alike before a step, a line per option and parameter.

    Args:
        groups: ``Muon.param_groups``.

    Returns:
        Lines of text.
    """
    options = ("momentum", "nesterov", "weight_decay", "ns_steps", "stacked")
    lines = []
    for number, group in enumerate(groups):
        for option in (*options, "ns_dtype", "ns_method"):
            lines.append(f"group {number} with {option} {group[option]}")
        lr = group["lr"]
        if not isinstance(lr, Tensor) or lr.device.type == "cpu":
            lines.append(f"group {number} with lr {float(lr)}")
        for i, p in enumerate(group["params"]):
            gradient = "no gradient" if p.grad is None else "a gradient"
            lines.append(
                f"{name_of(group, i)} with {gradient}, shape {tuple(p.shape)}, "
                f"{p.dtype}, {getattr(p, 'placements', 'a copy')}"
            )
    return lines


def rate_on(lr: float | Tensor, device: torch.device) -> float | Tensor:
    """The learning rate where foreach can use it; reads no accelerator's memory."""
    if isinstance(lr, Tensor) and lr.device.type != "cpu":
        return lr.detach().reshape(()).to(device, non_blocking=True)
    return float(lr)
