"""From tokens to the micro-batches of a step, and to the fixed validation set.

Legend: B sequences of T tokens in a micro-batch, all micro-batches of one shape.
Taught in chapters 10 and 11.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from stacklm.config import StackConfig, TrainConfig
from stacklm.train.tokenizer import check_signatures

VALIDATION_SEED = 0
"""Of the validation batches: the same in every run, whatever its own seed."""


def micro_batches(
    data, cfg: TrainConfig, step: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """The micro-batches of one step, made one at a time.

    Args:
        data: ``Tokens``.
        cfg: Their number and shape, and the seed of the order.
        step: Which step, counted from 0.

    Yields:
        x, targets and seq_ids, (B, T) each; seq_ids is None where no row crosses
        a border of documents.
    """
    micros = cfg.grad_accum_steps
    for micro in range(micros):
        place = {"seed": cfg.seed, "micro": micro, "micros": micros}
        yield _plain(data.batch(step, **_shape(cfg), **place))


def validation_batches(val, cfg: TrainConfig, count: int) -> list[tuple]:
    """The validation set: the same `count` micro-batches whenever it is asked for.

    Args:
        val: ``Tokens`` that are not trained on.
        cfg: The shape of a micro-batch.
        count: How many of them.

    Returns:
        A list of (x, targets, seq_ids), as `micro_batches` yields them.
    """
    return [
        _plain(val.batch(i, **_shape(cfg), seed=VALIDATION_SEED)) for i in range(count)
    ]


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


def _shape(cfg: TrainConfig) -> dict[str, int]:
    return {"batch_size": cfg.micro_batch_size, "seq_len": cfg.seq_len}


def _plain(batch):
    """Leave out document numbers where no row crosses a border.

    Attention needs no mask then, and may take its fastest kernel.
    """
    x, targets, seq_ids = batch
    whole = seq_ids is None or torch.equal(seq_ids[:, 1:], seq_ids[:, :-1])
    return x, targets, None if whole else seq_ids
