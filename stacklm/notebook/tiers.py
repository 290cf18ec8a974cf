"""What memory is measured with: the three tiers at once, and what a call holds.

Peak memory is read off the tensors that operators return, so the figure is the same on
every machine. What a fused kernel keeps inside does not count, which is the point.

Legend: B sequences of T tokens, L = n_layers, H = n_heads, K = n_kv_heads,
d_h = head_dim. Sizes are in bytes. Used by chapters 07 and 12 and exercise 8.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from stacklm.model import LogitRecord, Stack100M, logit_bound
from stacklm.notebook.toy import train


def _attention(q, k, v, *_, **__) -> int:
    """FLOPs of (B, H, T, d) queries; torch 2.11 does not know shared keys."""
    *heads, T, d = q
    return 2 * math.prod(heads) * T * k[-2] * (d + v[-1])


# torch counts the fused kernels of GPUs, and that of CPUs since 2.15.
_FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}


class _Largest(TorchDispatchMode):
    """Note the largest storage that any operator returns."""

    def __init__(self):
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, Tensor):
                # The storage, not the shape: an expanded view holds no more.
                self.nbytes = max(self.nbytes, each.untyped_storage().nbytes())
        return out


class Cost(NamedTuple):
    """What a call takes, the same on every machine; ``print`` shows it."""

    nbytes: int
    """Largest storage that an operator returned (bytes)."""
    flops: int
    """FLOPs of matrix products and fused attention, the latter as if nothing were
    masked."""

    def __str__(self) -> str:
        return (
            f"largest tensor {self.nbytes / 1e6:8.2f} MB, "
            f"{self.flops / 1e9:7.3f} GFLOP in products"
        )


@torch.no_grad()
def cost(call: Callable[[], Any]) -> Cost:
    """Run a function without gradients, and note what it takes.

    Args:
        call: Called without arguments; tensors may be on "meta", without memory.

    Returns:
        The largest tensor that an operator returned, and the FLOPs.

    Example:
        >>> x = torch.ones(4, 8, dtype=torch.float32)
        >>> cost(lambda: (x.T @ x).sum())
        Cost(nbytes=256, flops=512)
    """
    counter = FlopCounterMode(display=False, custom_mapping=_FUSED)
    with counter, _Largest() as seen:
        call()
    return Cost(seen.nbytes, counter.get_total_flops())


def saved_bytes(call: Callable[[], Any], without: Iterable[Tensor] = ()) -> int:
    """Run a function and return what autograd keeps of it for the backward pass.

    Args:
        call: Called without arguments.
        without: Tensors that are there anyway, such as a model's parameters.

    Returns:
        Bytes of all other tensors saved, each storage counted once. Copies of weights
        in another dtype, which autocast makes, count.

    Example:
        >>> x = torch.ones(8, requires_grad=True)
        >>> saved_bytes(lambda: x.exp()) // x.itemsize
        8
    """
    kept, own = {}, {x.untyped_storage().data_ptr() for x in without}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = (storage.nbytes(), x)  # held, or it is reused
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call()
    return sum(nbytes for at, (nbytes, _) in kept.items() if at not in own)


@torch.no_grad()
def all_tiers(model: Stack100M, x: Tensor, seq_ids: Tensor | None = None) -> Tensor:
    """Measure one batch in every tier; the model stays as it is.

    Args:
        model: With QK-norm, as tier 0 needs it.
        x: Token ids, (B, T).
        seq_ids: Document of each token, (B, T); None: each row is one.

    Returns:
        (3, L, H) in the model's dtype: tier 0, tier 1 and tier 2.
    """
    found = [logit_bound(model)]
    kind = {"device": x.device, "dtype": found[0].dtype}
    for exact in (False, True):
        record = LogitRecord(model.cfg.n_layers, model.cfg.n_heads, **kind)
        model(x, seq_ids=seq_ids, record=record, record_exact=exact)
        found.append(record.maxima)
    return torch.stack(found)


@torch.no_grad()
def queries_keys(
    model: Stack100M, x: Tensor, seq_ids: Tensor | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Collect what every layer multiplies in a pass: queries and keys after RoPE.

    Args:
        model: Any Stack100M.
        x: Token ids, (B, T).
        seq_ids: Document of each token, (B, T); None: each row is one.

    Returns:
        For each layer q (B, H, T, d_h) and k (B, K, T, d_h).
    """
    found = []

    def look(attn, args):
        found.append(attn.queries_keys(*args[:2]))

    hooks = [b.attn.register_forward_pre_hook(look) for b in model.blocks]
    try:
        model(x, seq_ids=seq_ids)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def watch(
    model: Stack100M,
    optimizers: Sequence[torch.optim.Optimizer],
    data: Iterable[Tensor],
) -> tuple[Tensor, Tensor]:
    """Train as ``train`` does; before each step, measure its batch in every tier.

    Args:
        model: With QK-norm gains that all heads share.
        optimizers: All of them take a step on every batch.
        data: Batches of token ids, (B, T + 1) each.

    Returns:
        The tiers, (steps, 3, L, H), and the gains of queries and keys before each
        step, (steps, L, 2, d_h).
    """
    tiers, gains = [], []

    def watched():
        for x in data:
            tiers.append(all_tiers(model, x[:, :-1]))
            pairs = [(b.attn.q_norm.weight, b.attn.k_norm.weight) for b in model.blocks]
            gains.append(torch.stack([torch.stack(p) for p in pairs]).detach())
            yield x

    train(model, optimizers, watched())
    return torch.stack(tiers), torch.stack(gains)
