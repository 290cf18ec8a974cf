"""Count parameters and FLOPs from a configuration, without making a tensor.

The one formula, training FLOPs per token with sequences of T tokens::

    6 * (block matrices + output head) + 1.5 * 4 * T * H * d_h * L

A FLOP is one multiplication or one addition of a matrix product; nothing else counts.
Legend: V = vocab_size, d = d_model, L = n_layers, H = n_heads, d_h = head_dim.
Source: the factor 6 is from Kaplan et al. 2020 (arXiv:2001.08361, section 2.1).
Import these names from ``stacklm.config``. Taught in chapters 01 and 12.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from stacklm._checks import is_kind

if TYPE_CHECKING:
    from stacklm.config import StackConfig


@dataclass(frozen=True)
class ParamCount:
    """Parameters of a model by kind; ``print`` shows them as a table.

    The output head counts 0 when it is tied: its matrix is the
    embedding's.
    """

    embedding: int
    """Token embedding, V * d (count)."""
    block_matrices: int
    """The seven projections of every block (count)."""
    gains: int
    """RMSNorm gains: two norms a block, QK-norm, final norm (count)."""
    head: int
    """Output head of its own, V * d, or 0 when tied (count)."""

    @property
    def total(self) -> int:
        """All parameters, each counted once."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __str__(self):
        """One line per kind, numbers right-aligned, the sum below."""
        names = [field.name for field in fields(self)] + ["total"]
        return "\n".join(
            f"{name.replace('_', ' '):<15}{getattr(self, name):>12,}" for name in names
        )


def count_params(cfg: "StackConfig") -> ParamCount:
    """Count the parameters from the configuration; no tensor is made.

    Args:
        cfg: the model's shape.

    Returns:
        The counts by kind, with their sum as ``total``.

    Example:
        >>> from stacklm.config import StackConfig
        >>> print(count_params(StackConfig()))
        embedding        16,777,216
        block matrices   84,541,440
        gains                35,072
        head                      0
        total           101,353,728
    """
    d, d_h = cfg.d_model, cfg.head_dim
    attention = 2 * d * cfg.n_heads * d_h  # wq and wo
    attention += 2 * d * cfg.n_kv_heads * d_h  # wk and wv
    mlp = 3 * d * cfg.intermediate  # w_gate, w_up and w_down
    qk_gains = 0
    if cfg.qk_norm:
        sets = cfg.n_heads + cfg.n_kv_heads if cfg.per_head_gains else 2
        qk_gains = sets * d_h
    return ParamCount(
        embedding=cfg.vocab_size * d,
        block_matrices=cfg.n_layers * (attention + mlp),
        gains=cfg.n_layers * (2 * d + qk_gains) + d,
        head=0 if cfg.tie_embeddings else cfg.vocab_size * d,
    )


def flops_per_token(cfg: "StackConfig", seq_len: int) -> int:
    """Count the FLOPs to train on one token, forward and backward.

    Each weight of a block matrix or of the output head costs 2 FLOPs
    forward and 4 backward; the embedding look-up multiplies nothing.
    Attention over all T positions costs 4 * T * H * d_h a layer forward,
    three times that with the backward pass, and half of it under a causal
    mask. Source of the 2 and 4: Kaplan et al. 2020, section 2.1.

    Args:
        cfg: the model's shape.
        seq_len: T, the length of the training sequences (tokens).

    Returns:
        FLOPs per token, exact.

    Raises:
        TypeError: if `seq_len` is not an int.
        ValueError: if `seq_len` is below 1.

    Example:
        >>> from stacklm.config import StackConfig
        >>> f"{flops_per_token(StackConfig(), 2048):.3e}"
        '7.967e+08'
    """
    if not is_kind(seq_len, int):
        raise TypeError(
            f"seq_len counts tokens and must be an int, got {seq_len!r}; "
            f"convert it with int()"
        )
    if seq_len < 1:
        raise ValueError(f"seq_len must be at least 1 token, got {seq_len}; raise it")
    weights = count_params(cfg).block_matrices
    weights += cfg.vocab_size * cfg.d_model  # the head, tied or not
    attention = 4 * seq_len * cfg.n_heads * cfg.head_dim * cfg.n_layers
    return 6 * weights + 3 * attention // 2
