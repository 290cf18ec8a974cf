"""Small runs: a language whose entropy is known, a plain loop, and what it compares.

The odds of the next token depend on the last two, and they are known, so the lowest
loss that a model can expect is known as well. Everything is float64 and drawn from
seeds of its own, so that results do not depend on the processor. Used by chapter 01
and exercise 1.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from stacklm.model import Stack100M


class ToyLanguage:
    """Random odds for the next token given the last two; the first two are even.

    Args:
        vocab_size: Number of tokens.
        length: Tokens per sequence that a model reads; one more is drawn as target.
        seed: Which language.

    Attributes:
        odds: (V, V, V) probabilities: of the last token, the one before, the next.
    """

    def __init__(self, vocab_size: int = 32, length: int = 32, seed: int = 0):
        self.vocab_size, self.length = vocab_size, length
        rng = torch.Generator().manual_seed(seed)
        shapes = ((vocab_size, 1, vocab_size), (1, vocab_size, vocab_size))
        last, before = (
            torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes
        )
        self.odds = (2 * (last + before)).softmax(-1)

    def batches(self, steps: int, seed: int, sequences: int = 16) -> Tensor:
        """Draw token ids.

        Args:
            steps: Number of batches.
            seed: Which draw; the same seed gives the same ids.
            sequences: Sequences per batch.

        Returns:
            (steps, sequences, length + 1) integers.
        """
        rng = torch.Generator().manual_seed(seed)
        shape = (steps * sequences, self.length + 1)
        x = torch.randint(self.vocab_size, shape, generator=rng)
        u = torch.rand(*shape, 1, generator=rng, dtype=torch.float64)
        for t in range(2, self.length + 1):
            below = self.odds[x[:, t - 1], x[:, t - 2]].cumsum(-1) < u[:, t]
            x[:, t] = below.sum(-1).clamp(max=self.vocab_size - 1)
        return x.view(steps, sequences, self.length + 1)

    def entropy(self, x: Tensor) -> float:
        """Mean loss on ``x`` of a model that knows the odds, in nats per token.

        Args:
            x: (..., length + 1) token ids from :meth:`batches`.

        Returns:
            An estimate of the entropy, over the tokens that a model has to predict.
        """
        last, before, following = x[..., 1:-1], x[..., :-2], x[..., 2:, None]
        known = -self.odds[last, before].gather(-1, following).log()  # (..., length-1)
        first = math.log(self.vocab_size)  # the second token of a sequence is even
        return (first + (self.length - 1) * known.mean().item()) / self.length


def train(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    data: Iterable[Tensor],
    warmup_steps: int = 20,
) -> Tensor:
    """Train on each batch once: the rate rises over the warmup and stays.

    Args:
        model: Called as ``model(inputs, targets)``; returns logits and loss.
        optimizers: All of them take a step on every batch.
        data: Batches of token ids, (sequences, length + 1) each.
        warmup_steps: Steps over which the learning rates rise, at least 1.

    Returns:
        (steps,) losses, each before its step, in nats per token.
    """

    def warmup(step):
        return min(1, (step + 1) / warmup_steps)

    rise = [LambdaLR(o, warmup) for o in optimizers]
    losses = []
    for x in data:  # (sequences, length + 1)
        _, loss = model(x[:, :-1], x[:, 1:])
        model.zero_grad()
        loss.backward()
        for each in (*optimizers, *rise):
            each.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def adamw_alone(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Put every parameter on AdamW, as the pair of optimizers would: same betas, decay.

    Args:
        model: Any module.
        lr: Learning rate.

    Returns:
        One optimizer in a list; vectors are not decayed.
    """
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return [torch.optim.AdamW(groups, lr, (0.9, 0.95), weight_decay=0.1)]


def untied(model: Stack100M) -> Stack100M:
    """Copy a model with a tied embedding, giving the output head a weight of its own.

    Args:
        model: With ``tie_embeddings=True``.

    Returns:
        A model that computes the same and has ``lm_head.weight`` equal to the
        embedding, so that each use of the weight gets a gradient of its own.
    """
    copy = Stack100M(dataclasses.replace(model.cfg, tie_embeddings=False))
    head = {"lm_head.weight": model.tok_emb.weight}
    copy.load_state_dict(model.state_dict() | head)
    return copy
