"""Run all notebooks again and again, in other settings each time, and report flakes.

    make stability N=20
    make stability N=20 FROM=11     the last ten of them, after a break

Results must not depend on the number of threads, on what instructions the processor
has, or on the order of the files. The settings are taken by turns, so N = 4 has each
once; from run to run the files are shuffled by another seed. Both follow from the
number of a run, so runs 11 to 20 are the same whenever they are made.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "no vector instructions": {
        "OMP_NUM_THREADS": "1",
        "ATEN_CPU_CAPABILITY": "default",
    },
    "MKL on any processor": {"OMP_NUM_THREADS": "1", "MKL_CBWR": "COMPATIBLE"},
}
# Two threads in each of two workers share two cores; they must not spin as they wait.
COMMON = {"OMP_WAIT_POLICY": "PASSIVE"}
PATIENCE = 900
"""Seconds for a cell; a slow machine is no flake."""
FAILED = re.compile(r"^FAILED (\S+::.+?)(?: - .*)?$", re.MULTILINE)


def notebooks(seed: int, folders: list[str]) -> list[str]:
    """All notebooks, shuffled."""
    found = sorted(
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).glob("*.ipynb")
    )
    random.Random(seed).shuffle(found)
    return found


def once(setting: str, files: list[str]) -> tuple[list[str], str]:
    """Run the files in a setting; returns the cells that failed, and the last line.

    Raises:
        RuntimeError: pytest ran nothing.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n", f"{os.cpu_count() or 1}"]
    command += ["--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["--nbval", f"--nbval-cell-timeout={PATIENCE}", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **COMMON}
    environment |= SETTINGS[setting]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if run.returncode not in (0, 1):
        raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    return FAILED.findall(run.stdout), run.stdout.strip().splitlines()[-1]


def main() -> int:
    """Run the command; the exit status is 1 if a cell failed in any run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-n", type=int, default=20, help="runs (default: 20)")
    parser.add_argument("--from", type=int, default=1, dest="first", help="first run")
    parser.add_argument(
        "folders", nargs="*", default=["chapters", "exercises", "solutions"]
    )
    args = parser.parse_args()
    if not 1 <= args.first <= args.n:
        parser.error(f"runs are 1 to {args.n}, and --from is {args.first}")
    flakes = collections.Counter()
    for number in range(args.first - 1, args.n):
        setting = list(SETTINGS)[number % len(SETTINGS)]
        begin = time.monotonic()
        failed, last = once(setting, notebooks(number, args.folders))
        flakes.update((cell, setting) for cell in failed)
        minutes = (time.monotonic() - begin) / 60
        print(f"run {number + 1} of {args.n}, {setting}: {last} ({minutes:.1f} min)")
        print("".join(f"  failed: {cell}\n" for cell in failed), end="")
        sys.stdout.flush()
    for (cell, setting), times in sorted(flakes.items()):
        print(f"flake: {cell}, {times} times with {setting}")
    print(f"{len(flakes)} flakes in runs {args.first} to {args.n}")
    return 1 if flakes else 0


if __name__ == "__main__":
    sys.exit(main())
