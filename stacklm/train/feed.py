"""From tokens to the micro-batches of a step.

    piece i of a step goes to rank i mod R

A piece is a micro-batch where R divides their number; otherwise each micro-batch is cut
by rows into R pieces. All ranks together therefore train on what one process would.

Legend: B sequences of T tokens in a micro-batch, all micro-batches of one shape; R
ranks. Taught in chapters 10, 11 and 13.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from stacklm.config import StackConfig, TrainConfig
from stacklm.train.tokenizer import check_signatures
from stacklm.train.world import World


def micro_batches(
    data, cfg: TrainConfig, step: int, world: World | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """The micro-batches of one step, made one at a time.

    Args:
        data: ``Tokens``.
        cfg: Their number and shape, and the seed of the order.
        step: Which step, counted from 0.
        world: Gives this rank's part only; None means one process.

    Yields:
        x, targets and seq_ids, (B, T) each, or (B / R, T) where micro-batches are cut;
        seq_ids is None where no row crosses a border of documents.
    """
    world = world or World()
    pieces = _pieces(cfg, world.size)
    rows = cfg.micro_batch_size * cfg.grad_accum_steps // pieces
    for piece in range(world.rank, pieces, world.size):
        place = {"seed": cfg.seed, "micro": piece, "micros": pieces}
        shape = {"batch_size": rows, "seq_len": cfg.seq_len}
        yield plain(data.batch(step, **shape, **place))


def has_first(cfg: TrainConfig, world: World) -> bool:
    """Whether this rank's first piece is (part of) the step's first micro-batch."""
    return world.rank == 0 or _pieces(cfg, world.size) > cfg.grad_accum_steps


def check_shares(cfg: TrainConfig, size: int) -> None:
    """Reject a step that cannot be shared evenly, before any work.

    Raises:
        ValueError: `size` ranks divide neither the number of micro-batches nor their
            rows.
    """
    micros, rows = cfg.grad_accum_steps, cfg.micro_batch_size
    if micros % size and rows % size:
        raise ValueError(
            f"{size} ranks share a step by micro-batches or by their rows, so "
            f"grad_accum_steps or micro_batch_size must be a multiple of {size}, got "
            f"{micros} and {rows}; set one of them, or start another number of ranks"
        )


def check_fit(model_cfg: StackConfig, train_cfg: TrainConfig, **sources) -> None:
    """Reject lengths, vocabularies and tokenizers that do not fit, before any work.

    Raises:
        ValueError: naming the field.
    """
    if train_cfg.seq_len > model_cfg.max_seq_len:
        raise ValueError(
            f"seq_len must not exceed the model's max_seq_len = "
            f"{model_cfg.max_seq_len}, got {train_cfg.seq_len}; lower one or raise "
            f"the other"
        )
    for name, source in sources.items():
        if source is not None and source.vocab_size > model_cfg.vocab_size:
            raise ValueError(
                f"{name} has ids up to {source.vocab_size - 1}, but the model's "
                f"vocab_size is {model_cfg.vocab_size}; raise it to "
                f"{source.vocab_size}"
            )
    check_signatures(**{n: getattr(s, "tokenizer", None) for n, s in sources.items()})


def _pieces(cfg: TrainConfig, size: int) -> int:
    """Into how many pieces a step is cut, so that every rank gets as many."""
    whole = cfg.grad_accum_steps % size == 0
    return cfg.grad_accum_steps * (1 if whole else size)


def plain(batch):
    """Leave out document numbers where no row crosses a border.

    Attention needs no mask then, and may take its fastest kernel.
    """
    x, targets, seq_ids = batch
    whole = seq_ids is None or torch.equal(seq_ids[:, 1:], seq_ids[:, :-1])
    return x, targets, None if whole else seq_ids
