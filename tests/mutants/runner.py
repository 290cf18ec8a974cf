"""Runs notebooks and tests against a faulty copy of stacklm, until one fails.

The copy comes first on the path of every process; the repository stays as it is. Of a
notebook, cells that only show source are left out: those would catch any edit of what
they show.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.faults import ROOT, Fault

PATIENCE = 400
"""Seconds for one catcher; a fault that makes it hang is caught as well."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


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
                if broken := _without_a_fault(catcher):
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
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # -P: the folder it starts in, which has a sound copy, does not come first.
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x"]
    command += ["-p", "no:cacheprovider", "-o", "pythonpath="]
    if ".ipynb" in catcher:
        command += ["--nbval", "--nbval-cell-timeout=200", *_only_shown(catcher)]
    try:
        run = subprocess.run(
            [*command, catcher],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return f"{catcher} (did not end)"
    if run.returncode == 0:
        return None
    found = FAILED.findall(run.stdout)
    if run.returncode in (1, 2) and found:
        return found[0]
    raise RuntimeError(f"{catcher} ran nothing:\n{run.stdout[-2000:]}{run.stderr}")


def _only_shown(notebook: str) -> list[str]:
    """Options that leave out the cells of a notebook that only show source."""
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    code = ["".join(c["source"]).strip() for c in cells if c["cell_type"] == "code"]
    return [
        f"--deselect={notebook}::Cell {i}"
        for i, source in enumerate(code)
        if re.fullmatch(r"show\([^\n]*\)", source)
    ]
