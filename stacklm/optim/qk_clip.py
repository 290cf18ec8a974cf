"""QK-clip: after a step, shrink what made an attention logit exceed tau.

For query heads h of KV group g, with S_h the largest logit of head h, and S_g that of
all heads in the group::

    queries of h  *=  min(1, sqrt(tau / S_h))
    keys of g     *=  min(1, sqrt(tau / S_g)),    once per group

so the group's largest logit lands on tau, the other firing heads at or below it; a
head that does not fire shrinks with the keys it shares. "Queries" and "keys" are
what scales them: with QK-norm the gains, without it the rows of W_q and W_k (under
QK-norm, scaling these would do nothing). Gains that all heads share make the layer
one group: S is the layer's largest logit, and all its heads shrink by tau / S.

Legend: L = n_layers, H = n_heads, K = n_kv_heads, d_h = head_dim. tau and S have no
unit.
Source: Kimi K2 (arXiv:2507.20534, section 2.1), per head, on projections; the
once-per-group rule for GQA and the clip on gains are this package's. Taught in
chapters 08 and, over ranks, 13.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor

from stacklm._layers import attention_layers
from stacklm.optim.layout import is_dtensor, local_part


def clip_factors(
    maxima: list[float], *, groups: int, tau: float = 100.0
) -> tuple[list[float], list[float]]:
    """What QK-clip multiplies queries and keys of one layer by.

    Args:
        maxima: S_h, the largest logit of every query head, H numbers.
        groups: Query heads per KV head, H / K.
        tau: The largest logit that is left alone.

    Returns:
        H factors for queries and K for keys, each at most 1.

    Example:
        >>> clip_factors([400.0, 50.0], groups=2)
        ([0.5, 1.0], [0.5])
    """

    def factor(s: float) -> float:
        return math.sqrt(tau / s) if s > tau else 1.0

    grouped = [maxima[i : i + groups] for i in range(0, len(maxima), groups)]
    queries = [factor(s) for s in maxima]
    return queries, [factor(max(group)) for group in grouped]


@torch.no_grad()
def qk_clip_(
    model, max_logits, tau: float = 100.0, *, group: dist.ProcessGroup | None = None
) -> int:
    """Shrink the queries and keys whose logits exceeded ``tau``, in place.

    Call it after the optimizers' steps, with what the forward passes of the step
    recorded. Gains shared by all heads shrink all heads of a layer; per-head gains
    and projections shrink the heads that fired, and through the shared keys the
    other heads of their KV groups. A layer that did not fire keeps its bits.

    The maxima are read in one transfer; this is the only time that the host waits
    for the device. Momentum and other optimizer state stay as they are: one clip is
    a small change of weights, and the next gradients see it. Parameters in bfloat16
    land on ``tau`` to their own precision, 0.4 %.

    Over several ranks, all must clip by the same maxima, or their weights drift apart:
    name their group, and the largest of each is taken first, in one all-reduce of
    L * H numbers. DTensors are clipped where they lie; nothing else is sent.

    Args:
        model: A Stack100M, or a module around one.
        max_logits: Largest logits before soft-capping: a (n_layers, n_heads) tensor, a
            ``LogitRecord``, or a dict {layer: (n_heads,) tensor}. -inf, as a missing
            layer, means "not measured". Maxima up to ``tau`` change nothing.
        tau: The largest logit that is left alone, above 0.
        group: The ranks, such as ``torch.distributed.group.WORLD``, all of which must
            call this; None if ``max_logits`` are of all ranks already, or there is
            only one.

    Returns:
        The number of layers that fired, in the model, not on this rank.

    Raises:
        TypeError: ``model`` has no attention layers, or ``max_logits`` or ``tau`` is of
            the wrong type.
        ValueError: A maximum is NaN or +inf, on any rank of ``group``; a shape is not
            the model's; a parameter is cut otherwise than by rows or not at all; or
            ``tau`` is not finite and above 0. Nothing changed.

    Example:
        >>> from stacklm.config import toy_config
        >>> from stacklm.model import LogitRecord, Stack100M
        >>> model, record = Stack100M(toy_config()), LogitRecord(2, 4)
        >>> logits, _ = model(torch.zeros(1, 8, dtype=torch.long), record=record)
        >>> qk_clip_(model, record)
        0

    References:
        Kimi K2, arXiv:2507.20534, section 2.1.
    """
    _check_tau(tau)
    layers = attention_layers(model, "qk_clip_")
    maxima = _table(max_logits, len(layers), layers[0].n_heads)
    rows = _over_ranks(maxima, group).tolist()
    _check_maxima(rows)
    firing = [(a, row) for a, row in zip(layers, rows, strict=True) if max(row) > tau]
    clips = [_clip(attn, row, tau) for attn, row in firing]  # all, before the first
    for parts in clips:
        for part, factor in parts:
            part.mul_(factor)  # a Python number: no copy to the device
    return len(firing)


def _clip(attn, row: list[float], tau: float) -> list[tuple[Tensor, float]]:
    """What to scale in a layer, queries then keys, and by how much."""
    heads, d_h = (attn.n_heads, attn.n_kv_heads), attn.head_dim
    gains = [getattr(norm, "weight", None) for norm in (attn.q_norm, attn.k_norm)]
    shapes = [None if gain is None else tuple(gain.shape) for gain in gains]
    if shapes == [(d_h,), (d_h,)]:
        scaled, row, rows, heads = gains, [max(row)], d_h, (1, 1)  # all heads as one
    elif shapes == [(n, 1, d_h) for n in heads]:
        scaled, rows = gains, 1
    elif shapes == [None, None]:
        scaled, rows = [attn.wq.weight, attn.wk.weight], d_h
    else:
        raise ValueError(
            f"qk_clip_ takes gains ({d_h},) for all heads, ({heads[0]}, 1, {d_h}) and "
            f"({heads[1]}, 1, {d_h}) per head, or none, got {shapes} in layer "
            f"{attn.layer_idx}; give q_norm and k_norm the same form"
        )
    factors = clip_factors(row, groups=heads[0] // heads[1], tau=tau)
    return [
        (part, factor)
        for weight, own in zip(scaled, factors, strict=True)
        for part, factor in zip(_heads(weight, rows), own, strict=True)
    ]


def _heads(weight: Tensor, rows: int) -> list[Tensor]:
    """What this process holds of each head, `rows` rows of a weight; may be empty."""
    first, local = _first_row(weight), local_part(weight)
    return [
        local[max(0, at - first) : max(0, at + rows - first)]
        for at in range(0, weight.shape[0], rows)
    ]


def _first_row(weight: Tensor) -> int:
    """Which row of a weight the part on this process begins with."""
    if not is_dtensor(weight):
        return 0
    if not all(type(p).__name__ in ("Shard", "Replicate") for p in weight.placements):
        raise ValueError(
            f"qk_clip_ takes weights that are replicated or cut in one piece per rank, "
            f"got {tuple(weight.placements)}; use fully_shard's default placement"
        )
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    where = (weight.shape, weight.device_mesh, weight.placements)
    return compute_local_shape_and_global_offset(*where)[1][0]


def _over_ranks(maxima: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The largest of each maximum; a NaN anywhere is +inf, since max may lose it."""
    if group is None:
        return maxima
    maxima = maxima.detach().nan_to_num(math.inf, math.inf, -math.inf)
    dist.all_reduce(maxima, dist.ReduceOp.MAX, group=group)
    return maxima


def _table(max_logits, n_layers: int, n_heads: int) -> Tensor:
    """The maxima of all layers, (n_layers, n_heads), where they were recorded."""
    if isinstance(max_logits, dict):
        return _table_of(max_logits, n_layers, n_heads)
    maxima = getattr(max_logits, "maxima", max_logits)
    _check_tensor("max_logits", maxima, (n_layers, n_heads))
    return maxima


def _table_of(record: dict, n_layers: int, n_heads: int) -> Tensor:
    for layer, maxima in record.items():
        if layer not in range(n_layers):
            raise ValueError(
                f"max_logits has layers 0 … {n_layers - 1} as keys, got {layer!r}; "
                "use the record of this model"
            )
        _check_tensor(f"max_logits[{layer}]", maxima, (n_heads,))
    if not record:
        return torch.full((n_layers, n_heads), -math.inf)
    missing = next(iter(record.values())).new_full((n_heads,), -math.inf)
    return torch.stack([record.get(layer, missing) for layer in range(n_layers)])


def _check_tau(tau) -> None:
    if isinstance(tau, bool) or not isinstance(tau, int | float):
        raise TypeError(f"tau must be a number, got {tau!r}")
    if not (math.isfinite(tau) and tau > 0):
        raise ValueError(
            f"tau must be finite and above 0, got {tau}; the default is 100, and to "
            "turn QK-clip off, do not call it"
        )


def _check_tensor(name: str, maxima, shape: tuple[int, ...]) -> None:
    if not isinstance(maxima, Tensor) or not maxima.is_floating_point():
        found = getattr(maxima, "dtype", type(maxima).__name__)
        raise TypeError(
            f"{name} must be a floating-point tensor, got {found}; pass what the "
            "forward passes recorded"
        )
    if maxima.shape != shape:
        form = "(n_layers, n_heads)" if len(shape) == 2 else "(n_heads,)"
        raise ValueError(
            f"{name} must have shape {form} = {shape}, got {tuple(maxima.shape)}; "
            "pass the record of this model"
        )


def _check_maxima(rows: list[list[float]]) -> None:
    broken = [
        (layer, head, s)
        for layer, row in enumerate(rows)
        for head, s in enumerate(row)
        if math.isnan(s) or s == math.inf
    ]
    if broken:
        layer, head, s = broken[0]
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise ValueError(
            f"max_logits must be finite or -inf, got {s} in layer {layer}, head {head}"
            f"{more}; no weight was changed: skip the step, or go back to a checkpoint"
        )
