"""What a run says while it goes on: metrics for programs, a line for people.

``metrics.jsonl`` holds one JSON object per step: the fields of ``StepLog``,
``val_loss`` where the step ended with a validation, ``seconds`` and
``tokens_per_second``. A figure that is not finite is null, as JSON knows no NaN.
Units: seconds of wall clock for the whole step, data included. Taught in chapter 11.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO


class Metrics:
    """The file of metrics, opened to go on after `step` steps.

    What an earlier process wrote beyond its checkpoint is cut off first, a torn last
    line too: those steps are about to be done again.

    Args:
        path: The file; None keeps the records in memory only.
        step: Steps done (count).
    """

    def __init__(self, path: Path | None, step: int = 0):
        self.records: list[dict] = []
        self._file = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b")  # noqa: SIM115 (closed by close)
            self._keep(step)

    def append(self, record: dict) -> None:
        """Add the record of a step; it survives the end of this process.

        Raises:
            OSError: The file could not be written.
        """
        record = {name: _finite(value) for name, value in record.items()}
        self.records.append(record)
        if self._file is not None:
            line = json.dumps(record, allow_nan=False) + "\n"
            try:
                self._file.write(line.encode())
                self._file.flush()
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"could not write {self._file.name}: {error.strerror}; the "
                    f"checkpoints are intact. Make room, then give the same command "
                    f"again to go on",
                ) from error

    def sync(self) -> None:
        """Make the records survive a power cut; called before each checkpoint."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; records stay readable."""
        if self._file is not None:
            with suppress(OSError):  # append has flushed, or has said why not
                self._file.close()

    def _keep(self, step: int) -> None:
        self._file.seek(0)
        end = 0
        for line in self._file:
            record = _parsed(line)
            if record is None or record["step"] >= step:
                break
            self.records.append(record)
            end += len(line)
        self._file.truncate(end)


class Progress:
    """One line of progress: rewritten in place on a terminal, repeated elsewhere.

    Args:
        total: Steps of the run (count).
        show: Whether to print; None prints if `stream` is a terminal.
        stream: Where to; None means standard error.
    """

    def __init__(
        self,
        total: int,
        show: bool | None = None,
        stream: TextIO | None = None,
    ):
        self.total = total
        self.stream = stream or sys.stderr
        self.in_place = self.stream.isatty()
        self.show = self.in_place if show is None else show
        self._next = 0.0  # when the line is due again
        self._val = None
        self._skipped = 0

    def update(self, record: dict) -> None:
        """Take note of a step, and print if the line is due."""
        self._skipped += record["skipped"]
        self._val = record.get("val_loss", self._val)
        last = record["step"] + 1 == self.total
        if not self.show or (time.monotonic() < self._next and not last):
            return
        self._next = time.monotonic() + (0.2 if self.in_place else 10.0)
        line = self.line(record)
        print(f"\r{line}\x1b[K" if self.in_place else line, end="", file=self.stream)
        end = "\n" if last or not self.in_place else ""
        print(end=end, file=self.stream, flush=True)

    def line(self, record: dict) -> str:
        """The line: step, losses, learning rates, speed, time left."""
        done = record["step"] + 1
        left = (self.total - done) * record["seconds"]
        parts = [
            f"step {done}/{self.total}",
            f"loss {_short(record['loss'])}",
            "" if self._val is None else f"val {_short(self._val)}",
            f"lr {record['muon_lr']:.1e} {record['adamw_lr']:.1e}",
            f"{record['tokens_per_second']:,.0f} tokens/s",
            f"{_clock(left)} left",
            f"{self._skipped} skipped" if self._skipped else "",
            f"QK-clip in {record['layers_clipped']} layers"
            if record["layers_clipped"]
            else "",
        ]
        return "  ".join(part for part in parts if part)

    def say(self, text: str) -> None:
        """Print a sentence of its own, below the line."""
        if self.show:
            print(f"\n{text}" if self.in_place else text, file=self.stream, flush=True)


def read_metrics(path: Path) -> list[dict]:
    """Read the records of a run, also while it goes on.

    Args:
        path: A ``metrics.jsonl``.

    Returns:
        One dict per step, oldest first; a torn last line is left out.
    """
    with open(path, "rb") as file:
        records = [_parsed(line) for line in file]
    return [record for record in records if record is not None]


def _parsed(line: bytes) -> dict | None:
    """The record of a whole line, or None for a torn one."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _finite(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _short(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.3f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
