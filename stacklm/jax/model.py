"""Stack-100M in JAX: the decoder of ``stacklm.model`` as a function of a tree.

    x <- x + attn(norm1(x)),    x <- x + mlp(norm2(x))

The tree has the names of the torch model. A matrix is (in, out), as JAX has it, so it
is the transpose of torch's: y = x @ W. Attention is written out; there is no logit
record here.

Legend: B sequences of T tokens, V = vocab_size, d = d_model, H = n_heads,
K = n_kv_heads, d_h = head_dim, f = intermediate. The loss is in nats per token.
Sources as in ``stacklm.model``. Taught in chapter 14.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from stacklm.config import StackConfig

IGNORE_INDEX = -100
"""Target that carries no loss, as in ``stacklm.model``."""


def from_torch(model) -> dict:
    """Take the weights of a torch model over into a tree.

    Args:
        model: A ``stacklm.model.Stack100M``.

    Returns:
        A tree of float32 arrays: tok_emb (V, d); blocks, a list of
        {norm1, attn, norm2, mlp}; final_norm (d,); lm_head (d, V) if untied. Matrices
        are transposed, the embedding and gains are not.
    """
    tree: dict = {}
    for name, p in model.state_dict().items():
        parts = name.removesuffix(".weight").split(".")
        array = jnp.asarray(p.detach().cpu().float().numpy())
        matrix = array.ndim == 2 and parts != ["tok_emb"]
        node = tree
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = array.T if matrix else array
    tree["blocks"] = [tree["blocks"][key] for key in sorted(tree["blocks"], key=int)]
    return tree


def forward(params, tokens, cfg: StackConfig, seq_ids=None):
    """Predict the next token of every position.

    Args:
        params: A tree as ``from_torch`` makes it.
        tokens: Ids from 0 to vocab_size - 1, (B, T).
        cfg: The model's shape.
        seq_ids: The document of each token, (B, T); None: each row is one document.

    Returns:
        Logits (B, T, V).

    Raises:
        ValueError: T exceeds ``cfg.max_seq_len``.
    """
    T = tokens.shape[1]
    if cfg.max_seq_len < T:
        raise ValueError(
            f"T must not exceed max_seq_len = {cfg.max_seq_len}, got {T}; cut the "
            "sequences or raise max_seq_len"
        )
    x = params["tok_emb"][tokens]  # (B, T, d)
    rope, mask = _rope(T, cfg), jnp.tril(jnp.ones((T, T), bool))
    if seq_ids is not None:
        mask = mask & (seq_ids[:, :, None] == seq_ids[:, None, :])[:, None]
    for block in params["blocks"]:
        x = x + _attention(
            block["attn"], _norm(x, block["norm1"], cfg), rope, mask, cfg
        )
        x = x + _mlp(block["mlp"], _norm(x, block["norm2"], cfg))
    x = _norm(x, params["final_norm"], cfg)
    head = params["tok_emb"].T if cfg.tie_embeddings else params["lm_head"]
    return x @ head  # (B, T, V)


def token_loss(params, tokens, targets, cfg: StackConfig, seq_ids=None):
    """The mean cross-entropy over the targets that count.

    Args:
        params: A tree as ``from_torch`` makes it.
        tokens: Ids, (B, T).
        targets: The right next tokens, (B, T); -100 marks one without loss.
        cfg: The model's shape.
        seq_ids: As in ``forward``.

    Returns:
        A scalar (nats per token); 0 if no target counts.
    """
    logits = jax.nn.log_softmax(forward(params, tokens, cfg, seq_ids))
    counts = targets != IGNORE_INDEX
    labels = jnp.where(counts, targets, 0)[..., None]
    each = -jnp.take_along_axis(logits, labels, axis=-1)[..., 0]  # (B, T)
    return jnp.where(counts, each, 0).sum() / jnp.maximum(counts.sum(), 1)


def _norm(x, gain, cfg: StackConfig):
    """RMSNorm with gains over the last dimension."""
    mean = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean + cfg.norm_eps) * gain


def _rope(seq_len: int, cfg: StackConfig):
    """Cosines and sines of every position's angles, (T, d_h / 2) each."""
    pairs = jnp.arange(0, cfg.head_dim, 2, dtype=jnp.float32)
    frequencies = cfg.rope_theta ** (-pairs / cfg.head_dim)
    angles = jnp.outer(jnp.arange(seq_len, dtype=jnp.float32), frequencies)
    return jnp.cos(angles), jnp.sin(angles)


def _turned(x, rope):
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = rope
    halves = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(halves, axis=-1)


def _attention(p, x, rope, mask, cfg: StackConfig):
    """Causal attention: H query heads over K key and value heads."""
    B, T, _ = x.shape

    def heads(name, count):
        return (x @ p[name]).reshape(B, T, count, cfg.head_dim).swapaxes(1, 2)

    q, k = heads("wq", cfg.n_heads), heads("wk", cfg.n_kv_heads)
    if cfg.qk_norm:
        q, k = _norm(q, p["q_norm"], cfg), _norm(k, p["k_norm"], cfg)
    q, k = _turned(q, rope), _turned(k, rope)
    k = jnp.repeat(k, cfg.groups, axis=1)  # (B, H, T, d_h)
    v = jnp.repeat(heads("wv", cfg.n_kv_heads), cfg.groups, axis=1)
    scores = q @ k.mT / math.sqrt(cfg.head_dim)  # (B, H, T, T)
    if cfg.attn_soft_cap > 0:
        scores = cfg.attn_soft_cap * jnp.tanh(scores / cfg.attn_soft_cap)
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    mixed = (weights @ v).swapaxes(1, 2).reshape(B, T, -1)  # (B, T, H * d_h)
    return mixed @ p["wo"]


def _mlp(p, x):
    """SwiGLU: silu(x w_gate) * (x w_up), and down."""
    return (jax.nn.silu(x @ p["w_gate"]) * (x @ p["w_up"])) @ p["w_down"]
