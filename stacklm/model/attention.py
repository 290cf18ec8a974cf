"""Grouped-query attention with QK-norm and RoPE, and every block's norm.

The one formula, for a query head and its KV head::

    q = rope(norm(W_q x)),    k = rope(norm(W_k x)),    v = W_v x

Legend: B sequences of T tokens, d = d_model, H = n_heads, K = n_kv_heads,
d_h = head_dim. Queries and keys are normalized (QK-norm), then turned (RoPE); what
becomes of them is in scores.py.
Sources: GQA, Ainslie et al. 2023 (arXiv:2305.13245); QK-norm, Henry et al. 2020
(arXiv:2010.04245), here as an RMSNorm with gains; RoPE, Su et al. 2021
(arXiv:2104.09864, equation 34); RMSNorm, Zhang & Sennrich 2019 (arXiv:1910.07467,
equation 4). Taught in chapter 06.
"""

import torch
import torch.nn.functional as F
from torch import nn

from stacklm.config import StackConfig
from stacklm.model.records import measure
from stacklm.model.scores import attend, working_dtype


class RMSNorm(nn.Module):
    """Divide by the root mean square of the last dimension; apply gains.

    y = gain * x / sqrt(mean(x^2) + eps). The mean is taken in at least
    float32, and the result has the dtype of x. Scaling x leaves y as it
    is, up to eps, as long as squares are numbers: entries up to 1e18 in
    float32. Longer vectors become 0.

    Args:
        shape: shape of the gains; its last entry is the normalized width.
            (H, 1, d_h) gives every head its own gains on (B, H, T, d_h).
        eps: added to the mean square (squared units of x).

    Example:
        >>> RMSNorm((2,), eps=0.0)(torch.tensor([3.0, -3.0])).tolist()
        [1.0, -1.0]

    References:
        Zhang & Sennrich 2019, arXiv:1910.07467, equation 4.
    """

    def __init__(self, shape: tuple[int, ...], eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        """Normalize x over its last dimension; shape and dtype stay."""
        wide = x.to(working_dtype(x.dtype))
        unit = F.rms_norm(wide, wide.shape[-1:], eps=self.eps)
        return (unit * self.weight).to(x.dtype)

    def extra_repr(self):
        """Show the gains' shape and eps when the module is printed."""
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


def rope_tables(seq_len, head_dim, *, theta, device=None, dtype=None):
    """Make the cosines and sines of every position's angles.

    Pair i of position t turns by t * theta ** (-2i / head_dim) radians.

    Args:
        seq_len: T, number of positions, from 0 (tokens).
        head_dim: d_h, width of one head; even (features).
        theta: the base of the frequencies.
        device: where the tables are made.
        dtype: of the tables, at least float32; None means float32.

    Returns:
        Two tensors of shape (T, d_h / 2): cosines and sines.

    Raises:
        ValueError: if `head_dim` is odd.

    References:
        Su et al. 2021, arXiv:2104.09864, equation 15.
    """
    if head_dim % 2:
        raise ValueError(
            f"RoPE turns pairs of features, so head_dim must be even, "
            f"got {head_dim}; use {head_dim + 1}"
        )
    dtype = working_dtype(dtype or torch.float32)
    kind = {"device": device, "dtype": dtype}
    pairs = torch.arange(0, head_dim, 2, **kind)  # (d_h / 2)
    frequencies = theta ** (-pairs / head_dim)
    positions = torch.arange(seq_len, **kind)
    angles = torch.outer(positions, frequencies)  # (T, d_h / 2)
    return angles.cos(), angles.sin()


def apply_rope(x, cos, sin):
    """Turn every pair (x[i], x[i + d_h / 2]) by its position's angle.

    A rotation keeps the norm of x, and q . k afterwards depends on the
    positions of the two only through their difference.

    Args:
        x: queries or keys, (..., T, d_h).
        cos: cosines from `rope_tables`, (T, d_h / 2).
        sin: sines, the same shape.

    Returns:
        The turned tensor, shape and dtype of x; computed in the tables'
        precision.

    References:
        Su et al. 2021, arXiv:2104.09864, equation 34, with the two
        features of a pair half a head apart.
    """
    first, second = x.chunk(2, dim=-1)  # (..., T, d_h / 2) each
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, dim=-1).to(x.dtype)  # (..., T, d_h)


class Attention(nn.Module):
    """Causal self-attention with grouped KV heads, QK-norm and RoPE.

    Attributes that other code may rely on: n_heads, n_kv_heads, head_dim,
    groups, wq, wk, wv, wo, q_norm, k_norm, layer_idx, record_exact
    (False: records hold bounds by norms, True: exact maxima). Without
    QK-norm, q_norm and k_norm are ``nn.Identity``. With it no logit is
    larger in size, whatever wq and wk are, than::

        sqrt(d_h) * max|q_norm.weight| * max|k_norm.weight|

    Args:
        cfg: the model's shape.
        layer_idx: which block this is, from 0.
    """

    def __init__(self, cfg: StackConfig, layer_idx: int = 0):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.n_kv_heads = cfg.n_kv_heads
        self.head_dim = cfg.head_dim
        self.groups = cfg.groups
        self.soft_cap = cfg.attn_soft_cap
        self.layer_idx = layer_idx
        self.record_exact = False

        q_width = cfg.n_heads * cfg.head_dim
        kv_width = cfg.n_kv_heads * cfg.head_dim
        self.wq = nn.Linear(cfg.d_model, q_width, bias=False)
        self.wk = nn.Linear(cfg.d_model, kv_width, bias=False)
        self.wv = nn.Linear(cfg.d_model, kv_width, bias=False)
        self.wo = nn.Linear(q_width, cfg.d_model, bias=False)
        self.q_norm = self._qk_norm(cfg, cfg.n_heads)
        self.k_norm = self._qk_norm(cfg, cfg.n_kv_heads)

    @staticmethod
    def _qk_norm(cfg: StackConfig, heads: int):
        """Make the norm of queries or keys: none, shared or per head."""
        if not cfg.qk_norm:
            return nn.Identity()
        if cfg.per_head_gains:
            return RMSNorm((heads, 1, cfg.head_dim), cfg.norm_eps)
        return RMSNorm((cfg.head_dim,), cfg.norm_eps)

    def queries_keys(self, x, rope):
        """Project, normalize, turn: what the logits are the products of.

        Args:
            x: the block's normalized input, (B, T, d).
            rope: cosines and sines from `rope_tables`.

        Returns:
            Queries (B, H, T, d_h) and keys (B, K, T, d_h).
        """
        q = self._split(self.wq(x), self.n_heads)  # (B, H, T, d_h)
        k = self._split(self.wk(x), self.n_kv_heads)  # (B, K, T, d_h)
        q = apply_rope(self.q_norm(q), *rope)
        k = apply_rope(self.k_norm(k), *rope)
        return q, k

    def forward(self, x, rope, mask=None, record=None, record_exact=None):
        """Mix the tokens of each sequence.

        Args:
            x: the block's normalized input, (B, T, d).
            rope: cosines and sines from `rope_tables`.
            mask: (B, 1, T, T) bool from `document_mask`; None means plain
                causal.
            record: a dict or `LogitRecord` that keeps the largest logits,
                before soft-capping; None keeps none.
            record_exact: True or False overrules the attribute; None
                leaves the choice to it.

        Returns:
            (B, T, d), to be added to the residual stream.
        """
        q, k = self.queries_keys(x, rope)
        if record is not None:
            exact = self.record_exact if record_exact is None else record_exact
            measure(record, self.layer_idx, q, k, mask, exact=exact)
        v = self._split(self.wv(x), self.n_kv_heads)  # (B, K, T, d_h)
        mixed = attend(q, k, v, mask, self.soft_cap)  # (B, H, T, d_h)
        return self.wo(mixed.transpose(1, 2).flatten(2))  # (B, T, d)

    def _split(self, x, heads: int):
        """Cut into heads: (B, T, heads * d_h) -> (B, heads, T, d_h)."""
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)
