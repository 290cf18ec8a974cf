"""The command: ``python -m stacklm.train --config toy --data moby-dick --out runs/a``.

Given once more, it goes on where it was stopped. Taught in chapter 11.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from stacklm.config import count_params
from stacklm.train.checkpoint import CheckpointError
from stacklm.train.data import open_tokens
from stacklm.train.lock import BusyError, only_one
from stacklm.train.loop import DivergedError, Run, pretrain
from stacklm.train.presets import PRESETS, Preset, describe, override
from stacklm.train.recipes import adamw_alone, muon_and_adamw
from stacklm.train.resume import Branch
from stacklm.train.sources import json_lines, parquet_files, text_files
from stacklm.train.writer import write_shards

READERS = {".txt": text_files, ".jsonl": json_lines, ".parquet": parquet_files}
"""What reads a single file, by its ending."""

ERRORS = (
    *(BusyError, CheckpointError, DivergedError),
    *(ImportError, OSError, TypeError, ValueError),
)
"""What a person can put right; anything else shows where it came from."""

DESCRIPTION = """\
Train a language model: Muon for its hidden matrices, AdamW for the rest.

The first run to try takes less than a minute on two CPU cores:

  python -m stacklm.train --config toy --data moby-dick --out runs/first

DIR then holds checkpoints and metrics.jsonl, one line per step. The same
command goes on where it was stopped, by Ctrl-C, a crash or a full disk."""

EPILOG = """\
examples:
  every field of the configuration, with its value and meaning:
    python -m stacklm.train --config s1 --fields
  other peaks, and a longer run:
    python -m stacklm.train --config toy --data moby-dick --out runs/second \\
      --set muon_peak_lr=0.005 adamw_peak_lr=2e-3 total_steps=600
  your own text, as bytes (for BPE, see stacklm.train.write_shards):
    python -m stacklm.train --config toy --data book.txt --out runs/book
  a decay of 50 steps that leaves another run's stable phase:
    python -m stacklm.train --config toy --data moby-dick --out runs/branch \\
      --branch-from runs/first/step-00000200.safetensors \\
      --decay-steps 50

exit status: 0 done, 1 error, 2 wrong usage, 130 stopped by Ctrl-C"""


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None means those of the process.

    Returns:
        The exit status.
    """
    args = _parser().parse_args(argv)
    warnings.showwarning = _show_warning
    try:
        preset = override(PRESETS[args.config], args.set)
        if args.fields:
            print(describe(preset))
            return 0
        run = _train(args, preset)
    except ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped at once; the last checkpoint is whole", file=sys.stderr)
        return 130
    print(_summary(run, args.out))
    return 130 if run.interrupted else 0


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
    add("--out", metavar="DIR", help="folder of the run; made if missing")
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
    add("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")
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


def _train(args, preset: Preset) -> Run:
    if args.out is None:
        raise ValueError("name a folder for the run with --out, such as --out runs/a")
    if (args.branch_from is None) != (args.decay_steps is None):
        raise ValueError("--branch-from and --decay-steps belong together; give both")
    branch = None
    if args.branch_from is not None:
        branch = Branch(args.branch_from, args.decay_steps)
    source = _source(args.data, Path(args.out))
    data, val = (open_tokens(source, split) for split in ("train", "val"))
    cfg = preset.train
    print(
        f"{count_params(preset.model).total:,} parameters, {len(data):,} tokens; "
        f"{cfg.total_steps:,} steps of {cfg.tokens_per_step:,} tokens"
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
        device=args.device,
        progress=not args.quiet,
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
    sys.exit(main())
