"""How large attention logits get: three tiers, from a glance at gains to exact maxima.

For query head h and the KV head g that it reads, over all sequences and positions::

    tier 0    sqrt(d_h) * max|gain_q| * max|gain_k|     no forward pass; needs QK-norm
    tier 1    max|q_i| * max|k_j| / sqrt(d_h)           while training; keeps SDPA
    tier 2    max of q_i . k_j / sqrt(d_h)              exact, over pairs that look

Each is at most the one above, up to rounding: in bfloat16 a query or key may be 0.4 %
longer than its gains allow. Tiers 1 and 2 see queries and keys as attention does, after
RoPE, and logits before any soft cap.

Legend: B sequences of T tokens, L = n_layers, H = n_heads, K = n_kv_heads,
d_h = head_dim. Logits have no unit.
Source for the maximum per head as what to watch: Kimi K2 (arXiv:2507.20534, section
2.1). Taught in chapter 07.
"""

import contextlib
import math

import torch
from torch import Tensor

from stacklm._layers import attention_layers
from stacklm.model.scores import causal_mask, working_dtype

QUERY_ROWS = 256
"""Queries whose logits tier 2 holds at a time: (B, H, 256, T)."""


def logit_bound(model):
    """Bound every head's logits by its gains alone (tier 0).

    RMSNorm makes a vector no longer than ``sqrt(d_h) * max|gain|``, and
    RoPE keeps lengths, so no input, W_q or W_k can exceed the bound.

    Args:
        model: a Stack100M, or a module around one.

    Returns:
        (n_layers, n_heads), in at least float32, detached, on the gains'
        device; it also bounds the size of negative logits.

    Raises:
        TypeError: if the model has no attention layers.
        ValueError: if a layer has no QK-norm, so that nothing bounds it.

    Example:
        >>> from stacklm.config import toy_config
        >>> from stacklm.model import Stack100M
        >>> logit_bound(Stack100M(toy_config())).tolist()
        [[4.0, 4.0, 4.0, 4.0], [4.0, 4.0, 4.0, 4.0]]
    """
    rows = []
    for attn in attention_layers(model, "logit_bound"):
        norms = (attn.q_norm, attn.k_norm)
        if not all(hasattr(norm, "weight") for norm in norms):
            raise ValueError(
                f"logit_bound needs QK-norm, got none in layer "
                f"{attn.layer_idx}; measure with model(tokens, record={{}})"
            )
        q, k = (_sizes(norm.weight.detach()) for norm in norms)
        if q.ndim == 1:  # shared gains: one number for all heads
            q, k = q.expand(attn.n_heads, -1), k.expand(attn.n_kv_heads, -1)
        rows.append(_pair(_largest(q), _largest(k)) * math.sqrt(attn.head_dim))
    return torch.stack(rows)  # (L, H)


@torch.no_grad()
def norm_bound(q, k):
    """Bound every head's logits by its longest query and key (tier 1).

    Only norms are taken, so attention keeps its fused kernel. The bound
    holds under every mask: leaving out pairs cannot raise a maximum.

    Args:
        q: queries, (B, H, T, d_h), as they meet the keys.
        k: keys, (B, K, T, d_h).

    Returns:
        (H,), in at least float32, detached.
    """
    kind = {"dim": -1, "dtype": working_dtype(q.dtype)}
    lengths = [torch.linalg.vector_norm(x, **kind) for x in (q, k)]
    longest = [x.amax(dim=(0, 2)) for x in lengths]  # (H,) and (K,)
    return _pair(*longest) / math.sqrt(q.shape[-1])


@torch.no_grad()
def exact_maxima(q, k, mask=None):
    """Find every head's largest logit among pairs that look (tier 2).

    Computed in at least float32 also under autocast, for 256 queries at a
    time, so that no (B, H, T, T) tensor exists.

    Args:
        q: queries, (B, H, T, d_h), as they meet the keys.
        k: keys, (B, K, T, d_h).
        mask: (B, 1, T, T) bool from `document_mask`; None means plain
            causal.

    Returns:
        (H,), detached. A maximum may be negative.
    """
    length, width = q.shape[2:]
    wide = working_dtype(q.dtype)
    q = q.to(wide)
    k = k.to(wide).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    if mask is None:
        mask = causal_mask(length, q.device)
    found = []
    with _without_autocast(q.device.type):
        for start in range(0, length, QUERY_ROWS):
            stop = min(start + QUERY_ROWS, length)
            # No query looks ahead, so keys from `stop` on stay out.
            scores = q[:, :, start:stop] @ k[:, :, :stop].mT  # (B, H, R, stop)
            hidden = ~mask[..., start:stop, :stop]
            scores.masked_fill_(hidden, -math.inf)
            found.append(scores.amax(dim=(0, 2, 3)))  # (H,)
            del scores  # before the next one is made
    return torch.stack(found).amax(dim=0) / math.sqrt(width)


class LogitRecord:
    """Running maxima of attention logits, in one preallocated tensor.

    Give it to every forward pass of a step, read ``maxima`` once, then
    ``reset()``. Nothing here waits for the device. Over several ranks,
    every rank has seen its own batches only; ``qk_clip_`` takes the maximum
    over all of them if it is given their ``group``.

    A dict works as well, but DDP on GPUs may fill a copy of it, and
    ``torch.compile`` compiles once more when it has its first entries.

    Args:
        n_layers: L, layers of the model.
        n_heads: H, query heads per layer.
        device: of the model.
        dtype: of the maxima; float32 fits all models but float64 ones.

    Attributes:
        maxima: (n_layers, n_heads); -inf is "not measured", NaN stays NaN.

    Example:
        >>> record = LogitRecord(2, 4)
        >>> record.keep(1, torch.tensor([3.0, -1.0, 0.0, 2.0]))
        >>> record.maxima[1].tolist()
        [3.0, -1.0, 0.0, 2.0]
        >>> record.reset()
        >>> record.maxima[1].tolist()
        [-inf, -inf, -inf, -inf]
    """

    def __init__(self, n_layers: int, n_heads: int, device=None, dtype=torch.float32):
        kind = {"device": device, "dtype": dtype}
        self.maxima = torch.full((n_layers, n_heads), -math.inf, **kind)

    @torch.no_grad()
    def keep(self, layer: int, found):
        """Raise the maxima of one layer to `found`, (n_heads,)."""
        row = self.maxima[layer]
        row.copy_(torch.maximum(row, found))

    @torch.no_grad()
    def reset(self):
        """Forget everything: all maxima are -inf again."""
        self.maxima.fill_(-math.inf)


def measure(record, layer: int, q, k, mask, *, exact: bool):
    """Measure one layer's logits, tier 2 or 1, into a dict or LogitRecord."""
    found = exact_maxima(q, k, mask) if exact else norm_bound(q, k)  # (H,)
    if isinstance(record, LogitRecord):
        record.keep(layer, found)
    else:
        # The same operations the first time and later: checkpointing
        # computes a layer twice and compares.
        record[layer] = torch.maximum(record.get(layer, found), found)


def check_record(record, cfg, device):
    """Refuse a record that this model cannot fill.

    Raises:
        TypeError: if it is neither a dict nor a LogitRecord.
        ValueError: if its shape or device is not the model's.
    """
    if isinstance(record, LogitRecord):
        kept = {"record.maxima": record.maxima}
        shape = (cfg.n_layers, cfg.n_heads)
    elif isinstance(record, dict):
        kept = {f"record[{layer!r}]": row for layer, row in record.items()}
        shape = (cfg.n_heads,)
    else:
        raise TypeError(
            f"record must be a dict or a LogitRecord, got "
            f"{type(record).__name__}; start with record={{}}"
        )
    for name, maxima in kept.items():
        if not isinstance(maxima, Tensor) or maxima.shape != shape:
            found = getattr(maxima, "shape", type(maxima).__name__)
            raise ValueError(
                f"{name} must have shape {shape}, got {found}; give every "
                f"model a record of its own"
            )
        if maxima.device != device:
            raise ValueError(
                f"{name} must be on the model's device, {device}, got "
                f"{maxima.device}; make the record with device={str(device)!r}"
            )


def _without_autocast(device: str):
    """Turn autocast off; "meta" has none."""
    # Not is_autocast_available: torch 2.11 cannot compile that.
    if device == "meta":
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False)


def _sizes(gains):
    """Take absolute values in at least float32."""
    return gains.abs().to(working_dtype(gains.dtype))


def _largest(gains):
    """Take every head's largest gain: (heads, …, d_h) to (heads,)."""
    return gains.flatten(1).amax(dim=1)


def _pair(q, k):
    """Multiply (H,) by (K,), query head h with KV head h // (H / K)."""
    return q * k.repeat_interleave(q.shape[0] // k.shape[0])  # (H,)
