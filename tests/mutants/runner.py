"""Shows notebooks and tests a faulty copy of stacklm, until one fails.

The copy comes first on the path of a process of its own, see ``replay.py``; the
repository stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import shutil
import signal
import tempfile
from pathlib import Path

from tests.mutants import replay
from tests.mutants.faults import ROOT, Fault

PATIENCE = 400
"""Seconds for one catcher; a fault that makes it hang is caught as well."""

os.environ.setdefault("OMP_NUM_THREADS", "1")
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.mutants.replay"])


def faulty_copy(fault: Fault, folder: Path) -> Path:
    """Copy stacklm with a fault; returns the folder to put on the path."""
    package = folder / "stacklm"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "stacklm", package, ignore=skip)
    (package / fault.module).write_text(fault.applied(), encoding="utf-8")
    return folder


def catch(fault: Fault, catchers: list[str]) -> str | None:
    """Try catchers in turn.

    Args:
        fault: What is wrong.
        catchers: Notebooks and tests, as pytest names them.

    Returns:
        The test or notebook cell that failed first; None if all passed.

    Raises:
        RuntimeError: The catcher fails without a fault, or it runs nothing.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = faulty_copy(fault, Path(folder))
        for catcher in catchers:
            if found := failure(catcher, copy):
                # Of a notebook, no more cells than the fault has let run.
                asked = found if ".ipynb::" in found else catcher
                if broken := _without_a_fault(asked):
                    raise RuntimeError(f"fails without a fault, too: {broken}")
                return found
    return None


@functools.cache
def _without_a_fault(catcher: str) -> str | None:
    return failure(catcher)


def failure(catcher: str, first_on_path: Path | None = None) -> str | None:
    """Run one catcher; returns what failed in it, or None.

    Raises:
        RuntimeError: It ran nothing, so it could catch nothing.
    """
    path = [str(each) for each in (first_on_path, ROOT) if each]
    here, there = SERVER.Pipe(duplex=False)
    job = (catcher, str(ROOT), path, there)
    process = SERVER.Process(target=replay.attempt, args=job)
    process.start()
    there.close()
    try:
        if not here.poll(PATIENCE):
            return f"{catcher} (did not end)"
        answer = here.recv()
    except EOFError:
        answer = RuntimeError(f"{catcher} ended its process without a word")
    finally:
        _end(process)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _end(process) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
