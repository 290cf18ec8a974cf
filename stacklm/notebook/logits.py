"""Attention logits seen from outside: all of one pass, and the largest of each pass.

The model never holds all its logits; these functions compute them beside it, from the
queries and keys that its attention layers see. Used by chapter 06.

Legend: L = n_layers, B sequences of T tokens, H = n_heads. Logits have no unit.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from stacklm.model import Attention, Stack100M


@torch.no_grad()
def layer_logits(attn: Attention, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the logits of one attention layer for all pairs, those ahead as well.

    Args:
        attn: The layer.
        x: (B, T, d), its normalized input.
        rope: Cosines and sines from ``rope_tables``.

    Returns:
        (B, H, T, T), detached: row i holds the scores of query i with every key.

    Example:
        >>> from stacklm.config import toy_config
        >>> from stacklm.model import Attention, rope_tables
        >>> attn, rope = Attention(toy_config()), rope_tables(8, 16, theta=1e4)
        >>> layer_logits(attn, torch.ones(1, 8, 64), rope).shape
        torch.Size([1, 4, 8, 8])
    """
    q, k = attn.queries_keys(x, rope)
    k = k.repeat_interleave(attn.groups, dim=1)  # (B, H, T, d_h)
    return q @ k.mT / math.sqrt(attn.head_dim)


@torch.no_grad()
def attention_logits(model: Stack100M, tokens: Tensor) -> Tensor:
    """Compute every attention logit of a forward pass, before any soft cap.

    Args:
        model: A model without documents in its batch: plain causal attention.
        tokens: (B, T) token ids.

    Returns:
        (L, B, H, T, T), detached; -inf where a query may not look.

    Example:
        >>> from stacklm.config import toy_config
        >>> ids = torch.zeros(1, 8, dtype=torch.long)
        >>> attention_logits(Stack100M(toy_config()), ids).shape
        torch.Size([2, 1, 4, 8, 8])
    """
    found = []

    def keep(attn, args):
        scores = layer_logits(attn, *args[:2])  # (B, H, T, T)
        ahead = torch.ones_like(scores, dtype=torch.bool).triu(1)
        found.append(scores.masked_fill(ahead, -math.inf))

    hooks = [b.attn.register_forward_pre_hook(keep) for b in model.blocks]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found)


@contextmanager
def watch_logits(model: Stack100M) -> Iterator[list[float]]:
    """Note the largest logit of every forward pass inside the ``with`` block.

    Args:
        model: The model to watch; it computes what it computes otherwise.

    Yields:
        A list that grows by one number per forward pass, the largest logit over all
        layers, heads and pairs of the batch (exact, tier 2).

    Example:
        >>> from stacklm.config import toy_config
        >>> model = Stack100M(toy_config())
        >>> with watch_logits(model) as largest:
        ...     logits, _ = model(torch.zeros(1, 8, dtype=torch.long))
        >>> len(largest)
        1
    """
    largest: list[float] = []

    def give(_model, args, kwargs):
        return args, {**kwargs, "record": {}, "record_exact": True}

    def read(_model, _args, kwargs, _output):
        largest.append(max(row.max().item() for row in kwargs["record"].values()))

    hooks = (
        model.register_forward_pre_hook(give, with_kwargs=True),
        model.register_forward_hook(read, with_kwargs=True),
    )
    try:
        yield largest
    finally:
        for hook in hooks:
            hook.remove()


def query_gradients(model: Stack100M, x: Tensor) -> Tensor:
    """Measure how strongly the loss pulls at every query vector.

    Args:
        model: The model; gradients of its parameters are left as they were.
        x: (B, T + 1) token ids, inputs and shifted targets in one.

    Returns:
        (L, B, H, T), the length of the gradient of the mean loss with respect to each
        query, before RoPE, which changes no length (nats per token and query unit).

    Example:
        >>> from stacklm.config import toy_config
        >>> ids = torch.zeros(1, 9, dtype=torch.long)
        >>> query_gradients(Stack100M(toy_config()), ids).shape
        torch.Size([2, 1, 4, 8])
    """
    queries: list[Tensor] = []

    def keep(_norm, _args, query):
        queries.append(query)  # (B, H, T, d_h)

    hooks = [b.attn.q_norm.register_forward_hook(keep) for b in model.blocks]
    try:
        _, loss = model(x[:, :-1], x[:, 1:])
    finally:
        for hook in hooks:
            hook.remove()
    pulls = torch.autograd.grad(loss, queries)
    return torch.stack([pull.norm(dim=-1) for pull in pulls])
