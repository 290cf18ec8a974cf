"""The command: ``python -m stacklm.train --config toy``.

Given once more, it goes on where it was stopped. Under torchrun, all ranks train one
model. Taught in chapters 11 and 13.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from stacklm.config import count_params
from stacklm.train.data import open_tokens
from stacklm.train.launch import TIMEOUT, launched, launched_rank, leave
from stacklm.train.lock import BusyError, only_one
from stacklm.train.loop import DivergedError, Run, pretrain
from stacklm.train.lost import LostRankError
from stacklm.train.presets import PRESETS, Preset, describe, override
from stacklm.train.recipes import adamw_alone, muon_and_adamw
from stacklm.train.resume import Branch
from stacklm.train.sources import json_lines, parquet_files, text_files
from stacklm.train.states import CheckpointError
from stacklm.train.world import World, is_told
from stacklm.train.writer import write_shards

READERS = {".txt": text_files, ".jsonl": json_lines, ".parquet": parquet_files}
"""What reads a single file, by its ending."""

ERRORS = (
    *(BusyError, CheckpointError, DivergedError, LostRankError),
    *(ImportError, OSError, TypeError, ValueError),
)
"""What a person can put right; anything else shows where it came from."""

DESCRIPTION = """\
Train a language model: Muon for its hidden matrices, AdamW for the rest.

The first run to try takes less than a minute on two CPU cores:

  python -m stacklm.train --config toy

DIR, here runs/toy, then holds checkpoints and metrics.jsonl, one line per
step. The same command goes on where it was stopped, by Ctrl-C, a crash or a
full disk. On several devices, or processes of a CPU, it is:

  torchrun --nproc-per-node 4 -m stacklm.train --config toy"""

EPILOG = """\
examples:
  every field of the configuration, with its value and meaning:
    python -m stacklm.train --config s1 --fields
  other peaks, and a longer run:
    python -m stacklm.train --config toy --out runs/second \\
      --set muon_peak_lr=0.005 adamw_peak_lr=2e-3 total_steps=600
  your own text, as bytes (for BPE, see stacklm.train.write_shards):
    python -m stacklm.train --config toy --data book.txt --out runs/book
  a decay of 50 steps that leaves another run's stable phase:
    python -m stacklm.train --config toy --out runs/branch \\
      --branch-from runs/toy/step-00000200.safetensors --decay-steps 50
  two machines of eight GPUs, the same command on both; weights and states are
  cut over the GPUs of a machine, and each machine has all of them:
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d \\
      --rdzv-endpoint HOST:29400 -m stacklm.train --config stack100m \\
      --data SHARDS --out SHARED/run --replicas 2

Any number of ranks goes on with a checkpoint of any other. All machines must
see DIR and PATH at the same place.

exit status: 0 done, 1 error, 2 wrong usage, 130 stopped by Ctrl-C"""


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None means those of the process.

    Returns:
        The exit status.
    """
    args = _parser().parse_args(argv)
    if args.out is None and args.branch_from is None:
        args.out = f"runs/{args.config}"
    leads = launched_rank() == 0
    warnings.showwarning = _show_warning if leads else lambda *_: None
    try:
        preset = override(PRESETS[args.config], args.set)
        _check(args)
    except ERRORS as error:  # the same on every rank
        return _failed(error, told=not leads)
    if args.fields:
        print(describe(preset) if leads else "", end="\n" if leads else "")
        return 0
    try:
        with launched(args.device, args.timeout, args.replicas, args.out) as world:
            run = _train(args, preset, world)
    except ERRORS as error:
        same = isinstance(error, DivergedError) and not leads
        return _failed(error, told=same or is_told(error))
    except KeyboardInterrupt:
        print("stopped at once; the last checkpoint is whole", file=sys.stderr)
        return 130
    if leads:
        print(_summary(run, args.out))
    return 130 if run.interrupted else 0


def _failed(error: Exception, *, told: bool) -> int:
    """Report an error, unless rank 0 does."""
    if not told:
        rank = launched_rank()
        where = f" on rank {rank}" if rank else ""
        print(f"error{where}: {error}", file=sys.stderr, flush=True)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stacklm.train",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--config",
        choices=PRESETS,
        default="toy",
        help="model and run to start from, smallest first (default: toy)",
    )
    add(
        "--data",
        metavar="PATH",
        default="moby-dick",
        help="moby-dick (in the package), a folder of shards, or a .txt, .jsonl or "
        ".parquet file; the last tenth is for validation (default: moby-dick)",
    )
    add(
        "--out",
        metavar="DIR",
        help="folder of the run; made if missing (default: runs/ and the name of the "
        "configuration)",
    )
    add(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="FIELD=VALUE",
        help="set fields of the configuration",
    )
    add("--fields", action="store_true", help="list all fields and stop")
    add("--quiet", action="store_true", help="no bar of progress")
    _add_kinds_of_run(add)
    return parser


def _add_kinds_of_run(add) -> None:
    """What makes a run another one than the configuration alone."""
    add(
        "--device",
        help="cpu, cuda, cuda:1, … (default: a GPU if there is one; under torchrun, "
        "each rank takes the GPU of its number on its machine)",
    )
    add(
        "--no-resume",
        action="store_true",
        help="refuse to go on if DIR has checkpoints",
    )
    add(
        "--branch-from",
        metavar="FILE",
        help="checkpoint of another run's stable phase, to decay from",
    )
    add("--decay-steps", type=int, metavar="N", help="length of the branch (steps)")
    add(
        "--adamw-alone",
        action="store_true",
        help="no Muon: AdamW for everything, at adamw_peak_lr",
    )
    add(
        "--replicas",
        type=int,
        default=1,
        metavar="N",
        help="under torchrun: copies of the model, each cut over the ranks of one "
        "copy (default: 1, cut over all)",
    )
    add(
        "--timeout",
        type=float,
        default=TIMEOUT,
        metavar="SECONDS",
        help="under torchrun: how long to wait for a silent rank before all end "
        f"(default: {TIMEOUT:.0f})",
    )


def _check(args) -> None:
    """Refuse what does not belong together, before anything is opened."""
    if (args.branch_from is None) != (args.decay_steps is None):
        raise ValueError("--branch-from and --decay-steps belong together; give both")
    if args.out is None:
        raise ValueError("a branch needs a folder of its own; name it with --out")


def _train(args, preset: Preset, world: World) -> Run:
    branch = None
    if args.branch_from is not None:
        branch = Branch(args.branch_from, args.decay_steps)
    source = world.first(lambda: _source(args.data, Path(args.out)))
    data, val = (open_tokens(source, split) for split in ("train", "val"))
    cfg = preset.train
    if world.rank == 0:
        on = f", on {world.size} ranks" if world.size > 1 else ""
        print(
            f"{count_params(preset.model).total:,} parameters, {len(data):,} tokens; "
            f"{cfg.total_steps:,} steps of {cfg.tokens_per_step:,} tokens{on}"
        )
    return pretrain(
        preset.model,
        cfg,
        data,
        val=val,
        out=args.out,
        resume=not args.no_resume,
        branch=branch,
        run_cfg=preset.run,
        optimizers=adamw_alone if args.adamw_alone else muon_and_adamw,
        device=world.device,
        progress=not args.quiet,
        mesh=world.mesh,
    )


def _source(data: str, out: Path) -> str | Path:
    """What to open: a single file is first written to shards of bytes, once."""
    path = Path(data)
    if data == "moby-dick" or not path.is_file():
        return data
    if path.suffix not in READERS:
        raise ValueError(
            f"--data takes files that end in {', '.join(READERS)}, got {data}; rename "
            f"it, or write shards with stacklm.train.write_shards"
        )
    shards = out / "shards"
    with only_one(shards):
        if not (shards / "index.json").exists():
            write_shards(READERS[path.suffix](path), shards)
    return shards


def _summary(run: Run, out: str) -> str:
    if run.interrupted:
        return f"stopped after step {run.step}; the same command goes on from there"
    losses = run.validation
    end = f", validation loss {losses[-1][1]:.4f} nats per token" if losses else ""
    return f"done: {run.step} steps{end}; see {out}"


def _show_warning(message, *_):
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    leave(main())
