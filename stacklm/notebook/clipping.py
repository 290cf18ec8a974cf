"""Models that are too loud, and runs driven too hot: the material of chapter 08.

The language of the runs is that of :mod:`stacklm.notebook.toy`, and each step is the
one that real runs take, ``stacklm.train.optimizer_step``, with its QK-clip. Everything
is drawn from seeds; under float64, results do not depend on the processor.
"""

from dataclasses import dataclass

import torch

from stacklm.config import StackConfig, TrainConfig, toy_config
from stacklm.model import Stack100M
from stacklm.notebook.toy import ToyLanguage
from stacklm.optim import build_optimizers
from stacklm.train import StepLog, optimizer_step

NEVER = 1e30
"""A tau that no logit exceeds: logits are recorded, and none is clipped."""

ADAMW_LR = 8e-3
WARMUP_STEPS = 20


@torch.no_grad()
def largest_logits(model: Stack100M, layer: int = 0) -> torch.Tensor:
    """Measure every head's largest logit, exactly, on one fixed batch.

    Args:
        model: With a vocabulary of at least 256; the batch is 2 sequences of 48 ids.
        layer: Which layer, from 0.

    Returns:
        (n_heads,) maxima in the model's dtype (logit units).
    """
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(256, (2, 48), generator=generator)
    record: dict[int, torch.Tensor] = {}
    model(tokens, record=record, record_exact=True)
    return record[layer]


def loud_toy(loudest: float = 170.0, **form) -> Stack100M:
    """Make a toy of one layer whose largest logit is ``loudest``.

    Gains are scaled under QK-norm, W_q and W_k without it.

    Args:
        loudest: What :func:`largest_logits` will find, above 0 (logit units).
        **form: Fields of the configuration to set otherwise.

    Returns:
        The model, the same at every call.
    """
    torch.manual_seed(0)
    model = Stack100M(toy_config(n_layers=1, **form))
    attn = model.blocks[0].attn
    norms = (attn.q_norm, attn.k_norm)
    factor = (loudest / largest_logits(model).max().item()) ** 0.5
    for part in norms if model.cfg.qk_norm else (attn.wq, attn.wk):
        part.weight.data.mul_(factor)
    return model


@dataclass(frozen=True)
class HeatedRun:
    """What :func:`heated_run` returns."""

    model: Stack100M
    """The model after the last step."""
    logs: tuple[StepLog, ...]
    """One entry per step."""
    loss: float
    """On batches that were not trained on (nats per token)."""

    @property
    def logits(self) -> list[float]:
        """Largest logit of every step, by tier 1, before its clip (logit units)."""
        return [log.max_logit for log in self.logs]

    @property
    def fired(self) -> list[int]:
        """The steps in which QK-clip fired in some layer."""
        return [log.step for log in self.logs if log.layers_clipped]


def heated_run(
    cfg: StackConfig,
    *,
    muon_lr: float,
    tau: float = NEVER,
    steps: int = 120,
    seed: int = 0,
) -> HeatedRun:
    """Train a toy with a learning rate of Muon's that may be far too high.

    The rates rise over 20 steps and stay. Runs of one seed start from the same weights
    and see the same batches of 16 sequences.

    Args:
        cfg: Shape of the model; its vocabulary is that of the language.
        muon_lr: Learning rate of Muon (per step); AdamW's is 8e-3.
        tau: Threshold of QK-clip (logit units); left out, nothing is clipped.
        steps: Length of the run, at least 1.
        seed: Of weights and batches.

    Returns:
        The model, the log of every step, and the loss on 16 further batches.

    Raises:
        ValueError: If ``muon_lr`` or ``tau`` is not above 0, or ``steps`` below 1.
    """
    language = ToyLanguage(vocab_size=cfg.vocab_size)
    torch.manual_seed(seed)
    model = Stack100M(cfg)
    optimizers = build_optimizers(model, muon_lr=muon_lr, adamw_lr=ADAMW_LR)
    train_cfg = TrainConfig(
        muon_peak_lr=muon_lr,
        adamw_peak_lr=ADAMW_LR,
        warmup_steps=min(WARMUP_STEPS, steps),
        total_steps=steps,
        decay_frac=0.0,
        qk_clip_tau=tau,
    )
    logs = []
    for step, x in enumerate(language.batches(steps, seed + 100)):
        pair = [(x[:, :-1], x[:, 1:])]
        rates = (muon_lr, ADAMW_LR)
        logs.append(optimizer_step(model, pair, *optimizers, rates, step, train_cfg))
    held_out = language.batches(steps=16, seed=seed + 200).flatten(0, 1)
    with torch.no_grad():
        _, loss = model(held_out[:, :-1], held_out[:, 1:])
    return HeatedRun(model, tuple(logs), loss.item())
