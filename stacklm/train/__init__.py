"""Training: from text on disk to a model.

sources.py     documents: text, JSON Lines, Parquet, Hugging Face, Moby-Dick
tokenizer.py   bytes, or BPE
writer.py      documents to shards
shards.py      what a shard is, and what is refused when it is opened
shuffle.py     an order that is computed, not stored
data.py        shards to batches
mix.py         several corpora as one, by weight
feed.py        batches to the micro-batches of a step
step.py        one optimizer step, complete; validation.py: a pass without one
loop.py        a whole run; recipes.py, options.py: its optimizers, its rhythm
resume.py, checkpoint.py, states.py   where it begins, what it saves
interrupt.py, lock.py      Ctrl-C; one process per folder
world.py       the ranks that train one model; lost.py: when one is gone
launch.py      what torchrun started
log.py         metrics and progress
__main__.py    the command: python -m stacklm.train --help
"""

from stacklm.train.checkpoint import checkpoints, read_checkpoint, save_checkpoint
from stacklm.train.data import Batch, Tokens, open_tokens
from stacklm.train.lock import BusyError
from stacklm.train.log import read_metrics
from stacklm.train.loop import DivergedError, Run, pretrain
from stacklm.train.lost import LostRankError
from stacklm.train.mix import Mixture
from stacklm.train.options import RunConfig
from stacklm.train.recipes import adamw_alone, muon_and_adamw
from stacklm.train.resume import Branch
from stacklm.train.sources import (
    Piece,
    hugging_face,
    json_lines,
    moby_dick,
    parquet_files,
    rows_of,
    text_files,
)
from stacklm.train.states import Checkpoint, CheckpointError, restore
from stacklm.train.step import StepLog, optimizer_step
from stacklm.train.tokenizer import (
    BPETokenizer,
    ByteTokenizer,
    open_tokenizer,
    train_bpe,
)
from stacklm.train.validation import validate
from stacklm.train.world import World, world_of
from stacklm.train.writer import Written, write_shards

__all__ = [
    "BPETokenizer",
    "Batch",
    "Branch",
    "BusyError",
    "ByteTokenizer",
    "Checkpoint",
    "CheckpointError",
    "DivergedError",
    "LostRankError",
    "Mixture",
    "Piece",
    "Run",
    "RunConfig",
    "StepLog",
    "Tokens",
    "World",
    "Written",
    "adamw_alone",
    "checkpoints",
    "hugging_face",
    "json_lines",
    "moby_dick",
    "muon_and_adamw",
    "open_tokenizer",
    "open_tokens",
    "optimizer_step",
    "parquet_files",
    "pretrain",
    "read_checkpoint",
    "read_metrics",
    "restore",
    "rows_of",
    "save_checkpoint",
    "text_files",
    "train_bpe",
    "validate",
    "world_of",
    "write_shards",
]
