"""What a run says while it goes on: metrics for programs, a bar for people.

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
from contextlib import suppress
from pathlib import Path
from typing import TextIO

BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's own form without steps per second: the figures have tokens per second."""


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
    """A bar with losses, learning rates and speed; drawn by tqdm.

    On a terminal and in a notebook the bar moves in place. Elsewhere, as in the log of
    a cluster, it becomes one line every ten seconds.

    Args:
        total: Steps of the run (count).
        done: Steps done before this call (count).
        show: Whether to draw; None draws if `stream` is a terminal.
        stream: Where to; None means standard error.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        show: bool | None = None,
        stream: TextIO | None = None,
    ):
        stream = stream or sys.stderr
        self._bar = None
        self._val = None
        self._skipped = 0
        if stream.isatty() if show is None else show:
            # It looks for a notebook when it is imported, so not before it is needed.
            from tqdm import auto, std

            in_notebook = auto.notebook_tqdm is not std.tqdm
            in_place = in_notebook or stream.isatty()
            self._bar = auto.tqdm(
                total=total,
                initial=done,
                file=stream if in_place else Lines(stream),
                mininterval=0.2 if in_place else 10.0,
                miniters=1,  # look at the clock in every step
                dynamic_ncols=in_place,
                bar_format=BAR,
            )

    def update(self, record: dict) -> None:
        """Take note of a step, and draw if it is time."""
        self._skipped += record["skipped"]
        self._val = record.get("val_loss", self._val)
        if self._bar is not None:
            self._bar.set_postfix_str(self.figures(record), refresh=False)
            self._bar.update()

    def figures(self, record: dict) -> str:
        """What stands beside the bar: losses, learning rates, speed, trouble."""
        clipped = record["layers_clipped"]
        parts = [
            f"loss {_short(record['loss'])}",
            "" if self._val is None else f"val {_short(self._val)}",
            f"lr {record['muon_lr']:.1e} {record['adamw_lr']:.1e}",
            f"{record['tokens_per_second']:,.0f} tokens/s",
            f"{self._skipped} skipped" if self._skipped else "",
            f"QK-clip in {clipped} layers" if clipped else "",
        ]
        return ", ".join(part for part in parts if part)

    def close(self) -> None:
        """Draw the last state and leave it there."""
        if self._bar is not None:
            self._bar.close()


class Lines:
    """A stream for a bar that cannot go back: each new state is a line of its own."""

    def __init__(self, stream: TextIO):
        self.stream, self._last = stream, ""
        self.encoding = getattr(stream, "encoding", None)  # whether blocks can be drawn

    def write(self, text: str) -> None:
        """Write a state of the bar, unless it is the last one again."""
        state = text.strip()
        if state and state != self._last:
            print(state, file=self.stream)
            self._last = state

    def flush(self) -> None:
        """Send what was written on its way."""
        self.stream.flush()


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
