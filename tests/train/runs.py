"""What the tests of whole runs share: a small run, and how two are compared."""

import math
import os
import signal

import torch

from stacklm.config import TrainConfig, toy_config
from stacklm.train import (
    RunConfig,
    checkpoints,
    muon_and_adamw,
    read_checkpoint,
)

MODEL = toy_config(n_layers=1, d_model=32)
CFG = TrainConfig(
    warmup_steps=4,
    total_steps=24,
    decay_frac=0.25,
    micro_batch_size=2,
    seq_len=16,
    grad_accum_steps=2,
)
RUN = RunConfig(validate_every=4, validate_batches=2, save_every=6)


class Interrupting:
    """Tokens that send this process a signal when a step asks for its batch."""

    def __init__(self, tokens, step, number=signal.SIGINT):
        self.tokens, self.step, self.number = tokens, step, number
        self.vocab_size, self.tokenizer = tokens.vocab_size, tokens.tokenizer

    def __len__(self):
        return len(self.tokens)

    def batch(self, step, **place):
        if step == self.step and place["micro"] == 0:
            os.kill(os.getpid(), self.number)
        return self.tokens.batch(step, **place)


def spoiling(*steps):
    """Optimizers whose model has NaN gradients in the given steps of this call."""

    def build(model, cfg):
        calls = []

        def spoil(grad):
            calls.append(None)  # one call per micro-batch
            step = (len(calls) - 1) // cfg.grad_accum_steps
            return grad * math.nan if step in steps else grad

        model.tok_emb.weight.register_hook(spoil)
        return muon_and_adamw(model, cfg)

    return build


def end_of(folder):
    """The newest checkpoint, as everything that must be equal."""
    newest = read_checkpoint(checkpoints(folder)[-1])
    return newest.state, newest.tensors


def assert_same_end(a, b):
    (state, tensors), (other_state, other_tensors) = end_of(a), end_of(b)
    assert state == other_state
    assert tensors.keys() == other_tensors.keys()
    different = [k for k, t in tensors.items() if not torch.equal(t, other_tensors[k])]
    assert different == []


def untimed(records):
    timed = ("seconds", "tokens_per_second")
    return [{k: v for k, v in r.items() if k not in timed} for r in records]
