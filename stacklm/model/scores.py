"""Attention itself: who may look where, the soft cap, softmax, and the mean of values.

The one formula, for a query head, its KV head, and positions j <= i of one document::

    s_ij = q_i . k_j / sqrt(d_h),    out_i = sum_j softmax_j(s_ij) v_j

With a soft cap c, c * tanh(s_ij / c) takes the place of s_ij.

Legend: B sequences of T tokens, H = n_heads, K = n_kv_heads, d_h = head_dim. Logits
s have no unit.
Sources: GQA, Ainslie et al. 2023 (arXiv:2305.13245); soft cap, Gemma 2
(arXiv:2408.00118, section 2); FlexAttention, Dong et al. 2024 (arXiv:2412.05496).
Taught in chapters 06 and 08.
"""

import functools
import importlib.util
import math

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

FLEX_LEAST_WIDTH = 16
"""Narrowest head that FlexAttention compiles for (features; torch 2.13)."""


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Choose the dtype for sums and angles: float32 or wider."""
    return torch.promote_types(dtype, torch.float32)


def causal_mask(seq_len: int, device=None):
    """Allow position i to see 0 to i: (T, T), True where it may look."""
    square = (seq_len, seq_len)
    return torch.ones(square, dtype=torch.bool, device=device).tril()


def document_mask(seq_ids):
    """Allow a token to see earlier tokens of its own document, and itself.

    Args:
        seq_ids: the document of every token, (B, T) integers. Two tokens
            belong together when their numbers are equal, wherever they
            stand.

    Returns:
        (B, 1, T, T) bool, True where row i may look at column j; the 1 is
        for heads.
    """
    same = seq_ids[:, :, None] == seq_ids[:, None, :]  # (B, T, T)
    return (same & causal_mask(seq_ids.shape[1], seq_ids.device))[:, None]


def attend(q, k, v, mask=None, soft_cap: float = 0.0):
    """Attend causally: H query heads over K key and value heads.

    Args:
        q: queries, (B, H, T, d_h).
        k: keys, (B, K, T, d_h). Query head h reads KV head h // (H / K).
        v: values, the shape of k.
        mask: (B, 1, T, T) bool from `document_mask`; None means plain
            causal.
        soft_cap: c > 0 replaces a logit s by c * tanh(s / c); 0 leaves it.
            FlexAttention compiles the cap into its kernel on CUDA. On a
            CPU, where it has no backward pass, the capped form holds a
            tensor of shape (B, H, T, T); the numbers are the same.

    Returns:
        (B, H, T, d_h).

    References:
        Soft cap: Gemma 2, arXiv:2408.00118, section 2.
    """
    if soft_cap > 0 and _flex_compiles_for(q):
        flex = flex_attention if torch.compiler.is_compiling() else _compiled_flex()
        return capped_by_flex(q, k, v, mask, soft_cap, flex=flex)
    groups = q.shape[1] // k.shape[1]
    # Not enable_gqa: the memory-efficient kernel, which serves masks and
    # float32 on CUDA, lacks it; the fallback may hold (B, H, T, T).
    k = k.repeat_interleave(groups, dim=1)  # (B, H, T, d_h)
    v = v.repeat_interleave(groups, dim=1)  # (B, H, T, d_h)
    if soft_cap > 0:
        return capped_by_reference(q, k, v, mask, soft_cap)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None
    )


def capped_by_reference(q, k, v, mask, soft_cap: float):
    """Attend with a soft cap, step by step; k and v have H heads here."""
    if mask is None:
        mask = causal_mask(q.shape[2], q.device)
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
    scores = scores.to(working_dtype(q.dtype))
    capped = soft_cap * torch.tanh(scores / soft_cap)
    weights = capped.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.to(v.dtype) @ v  # (B, H, T, d_h)


def capped_by_flex(q, k, v, mask, soft_cap: float, *, flex=flex_attention):
    """Attend with a soft cap by FlexAttention; arguments as for `attend`.

    `flex` is ``flex_attention``, compiled or not; only the compiled one
    saves the memory of (B, H, T, T).
    """

    def cap(score, b, h, i, j):
        return soft_cap * torch.tanh(score / soft_cap)

    def sees(b, h, i, j):
        return i >= j if mask is None else mask[b, 0, i, j]

    rows = None if mask is None else q.shape[0]  # None: one mask for all
    square = (q.shape[2], k.shape[2])
    blocks = create_block_mask(sees, rows, None, *square, device=q.device)
    return flex(q, k, v, score_mod=cap, block_mask=blocks, enable_gqa=True)


def _flex_compiles_for(q) -> bool:
    """Say whether FlexAttention has a kernel for q, forward and backward."""
    return (
        q.device.type == "cuda"
        and q.dtype != torch.float64
        and q.shape[-1] >= FLEX_LEAST_WIDTH
        and importlib.util.find_spec("triton") is not None
    )


@functools.cache
def _compiled_flex():
    """Wrap FlexAttention once; it compiles at its first call."""
    return torch.compile(flex_attention)
