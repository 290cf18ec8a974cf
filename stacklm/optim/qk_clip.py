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
chapter 08.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stacklm._layers import attention_layers


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
    return [factor(s) for s in maxima], [factor(max(group)) for group in grouped]


@torch.no_grad()
def qk_clip_(model, max_logits, tau: float = 100.0) -> int:
    """Shrink the queries and keys whose logits exceeded ``tau``, in place.

    Call it after the optimizers' steps, with what the forward passes of the step
    recorded. Gains shared by all heads shrink all heads of a layer; per-head gains
    and projections shrink the heads that fired, and through the shared keys the
    other heads of their KV groups. A layer that did not fire keeps its bits.

    The maxima are read in one transfer; this is the only time that the host waits
    for the device. Momentum and other optimizer state stay as they are: one clip is
    a small change of weights, and the next gradients see it. Parameters in bfloat16
    land on ``tau`` to their own precision, 0.4 %.

    Args:
        model: A Stack100M, or a module around one.
        max_logits: Largest logits before soft-capping: a (n_layers, n_heads) tensor, a
            ``LogitRecord``, or a dict {layer: (n_heads,) tensor}. -inf, as a missing
            layer, means "not measured". Maxima up to ``tau`` change nothing.
        tau: The largest logit that is left alone, above 0.

    Returns:
        The number of layers that fired.

    Raises:
        TypeError: ``model`` has no attention layers, or ``max_logits`` or ``tau`` is of
            the wrong type.
        ValueError: A maximum is NaN or +inf, a shape is not the model's, or ``tau`` is
            not finite and above 0. Nothing changed.

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
    rows = _read(max_logits, len(layers), layers[0].n_heads)
    _check_maxima(rows)
    firing = [(a, row) for a, row in zip(layers, rows, strict=True) if max(row) > tau]
    clips = [_clip(attn, row, tau) for attn, row in firing]  # all, before the first
    for parts, factors in clips:
        for part, factor in zip(parts, factors, strict=True):
            part.mul_(factor)  # a Python number: no copy to the device
    return len(firing)


def _clip(attn, row: list[float], tau: float) -> tuple[list[Tensor], list[float]]:
    """What to scale in a layer, queries then keys, and by how much."""
    heads, d_h = (attn.n_heads, attn.n_kv_heads), attn.head_dim
    gains = [getattr(norm, "weight", None) for norm in (attn.q_norm, attn.k_norm)]
    shapes = [None if gain is None else tuple(gain.shape) for gain in gains]
    if shapes == [(d_h,), (d_h,)]:
        queries, keys = ([gain.detach()] for gain in gains)  # one of (d_h)
        row = [max(row)]
    elif shapes == [(n, 1, d_h) for n in heads]:
        queries, keys = (gain.detach().unbind() for gain in gains)  # of (1, d_h)
    elif shapes == [None, None]:
        queries, keys = (
            w.weight.detach().unflatten(0, (n, d_h)).unbind()  # n of (d_h, d)
            for w, n in zip((attn.wq, attn.wk), heads, strict=True)
        )
    else:
        raise ValueError(
            f"qk_clip_ takes gains ({d_h},) for all heads, ({heads[0]}, 1, {d_h}) and "
            f"({heads[1]}, 1, {d_h}) per head, or none, got {shapes} in layer "
            f"{attn.layer_idx}; give q_norm and k_norm the same form"
        )
    groups = len(queries) // len(keys)
    for_queries, for_keys = clip_factors(row, groups=groups, tau=tau)
    return [*queries, *keys], [*for_queries, *for_keys]


def _read(max_logits, n_layers: int, n_heads: int) -> list[list[float]]:
    """The maxima on the host, layer by layer; the one wait for the device."""
    if isinstance(max_logits, dict):
        return _read_dict(max_logits, n_layers, n_heads)
    maxima = getattr(max_logits, "maxima", max_logits)
    _check_tensor("max_logits", maxima, (n_layers, n_heads))
    return maxima.tolist()


def _read_dict(record: dict, n_layers: int, n_heads: int) -> list[list[float]]:
    for layer, maxima in record.items():
        if layer not in range(n_layers):
            raise ValueError(
                f"max_logits has layers 0 … {n_layers - 1} as keys, got {layer!r}; "
                "use the record of this model"
            )
        _check_tensor(f"max_logits[{layer}]", maxima, (n_heads,))
    measured = torch.stack(list(record.values())).tolist() if record else []
    found = dict(zip(record, measured, strict=True))
    return [found.get(layer, [-math.inf] * n_heads) for layer in range(n_layers)]


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
