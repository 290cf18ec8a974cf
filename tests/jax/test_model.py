"""The model as a function of a tree is the torch model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from stacklm.config import toy_config
from stacklm.jax import forward, from_torch, token_loss
from stacklm.model import Stack100M

VARIANTS = [
    {},
    {"qk_norm": False},
    {"per_head_gains": True},
    {"tie_embeddings": False},
    {"attn_soft_cap": 2.0},
    {"n_kv_heads": 4},
    {"n_kv_heads": 1, "norm_eps": 1e-2, "rope_theta": 100.0},
]
FORWARD = jax.jit(forward, static_argnums=2)
LOSS_AND_GRADIENT = jax.jit(jax.value_and_grad(token_loss), static_argnums=3)


def spread(cfg):
    """A model whose gains are not all one, and whose logits are not all alike."""
    torch.manual_seed(0)
    model = Stack100M(cfg).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4.0) if p.ndim == 2 else p.mul_(torch.rand(p.shape).double() + 0.5)
    return model.float()


def arrays(*tensors):
    return [jnp.asarray(t.numpy()) for t in tensors]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda c: ", ".join(c) or "toy")
def test_logits_loss_and_gradients_are_those_of_torch(changes):
    cfg = toy_config(**changes)
    model = spread(cfg)
    ids = torch.randint(256, (2, 25), generator=torch.Generator().manual_seed(1))
    x, y = ids[:, :-1], ids[:, 1:].clone()
    y[0, :5] = -100
    logits, loss = model(x, y)
    loss.backward()
    params, batch = from_torch(model), arrays(x, y)
    there = FORWARD(params, batch[0], cfg)
    np.testing.assert_allclose(there, logits.detach(), atol=2e-4)
    ours, grads = LOSS_AND_GRADIENT(params, *batch, cfg)
    np.testing.assert_allclose(ours, loss.item(), rtol=1e-5)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.grad)
    for a, b in zip(*map(jax.tree.leaves, (grads, from_torch(model))), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * float(abs(b).max()))


def test_documents_do_not_see_each_other():
    cfg = toy_config()
    model = spread(cfg)
    ids = torch.randint(256, (2, 24), generator=torch.Generator().manual_seed(2))
    documents = torch.tensor([[0] * 10 + [1] * 14, [7] * 24])
    with torch.no_grad():
        theirs, _ = model(ids, seq_ids=documents)
    ours = FORWARD(from_torch(model), *arrays(ids), cfg, *arrays(documents))
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_without_a_target_that_counts_the_loss_is_zero():
    cfg = toy_config()
    x, y = arrays(torch.zeros(1, 4).long(), torch.full((1, 4), -100))
    params = from_torch(spread(cfg))
    loss, grads = LOSS_AND_GRADIENT(params, x, y, cfg)
    assert loss == 0
    assert all((g == 0).all() for g in jax.tree.leaves(grads))


def test_a_sequence_that_is_too_long_is_refused():
    cfg = toy_config(max_seq_len=8)
    params = from_torch(spread(cfg))
    with pytest.raises(ValueError, match="must not exceed max_seq_len = 8, got 9"):
        forward(params, jnp.zeros((1, 9), int), cfg)
