"""The command: every fault, one at a time, and who saw it.

    python -m tests.mutants            all of them, into tests/mutants/caught.json
    python -m tests.mutants --only "no square root"

Notebooks are asked before tests: most faults should be seen by a reader's own run.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.mutants import CATCHERS, all_faults
from tests.mutants.faults import ROOT, Fault
from tests.mutants.runner import catch

RECORD = ROOT / "tests" / "mutants" / "caught.json"


def main() -> int:
    """Run the command; the exit status is 1 if a fault was not caught."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", help="faults whose name contains this")
    parser.add_argument("--workers", type=int, default=2, help="at once (default: 2)")
    parser.add_argument("--new", action="store_true", help="those without a record")
    parser.add_argument(
        "--notebooks", action="store_true", help="those that no notebook has seen"
    )
    args = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    names = [fault.what for fault in all_faults()]
    record = {name: record[name] for name in names if name in record}
    chosen = [
        fault
        for fault in all_faults()
        if (not args.only or args.only in fault.what)
        and not (args.new and record.get(fault.what))
        and not (args.notebooks and ".ipynb" in (record.get(fault.what) or ""))
    ]
    with ThreadPoolExecutor(args.workers) as pool:
        known = {} if args.notebooks else record  # a test would be asked first
        jobs = {pool.submit(catch, f, catchers_of(f, known)): f for f in chosen}
        for done, job in enumerate(as_completed(jobs), 1):
            fault, by = jobs[job], job.result()
            record[fault.what] = by
            print(f"{done:3}/{len(jobs)}  {fault.what}: {by or 'NOT CAUGHT'}")
            sys.stdout.flush()
            ordered = {name: record[name] for name in names if name in record}
            RECORD.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    return report(record)


def catchers_of(fault: Fault, record: dict[str, str | None]) -> list[str]:
    """Who is asked, in this order: who saw it the last time, then the rest."""
    known = record.get(fault.what) or ""
    first = [known.partition("::")[0].removesuffix(" (did not end)")] if known else []
    longest = max((key for key in CATCHERS if fault.module.startswith(key)), key=len)
    return list(dict.fromkeys([*first, *CATCHERS[longest]]))


def report(record: dict[str, str | None]) -> int:
    """Print how many were caught, and by what; 1 if any was not."""
    missed = [name for name, by in record.items() if by is None]
    cells = sum(".ipynb" in by for by in record.values() if by)
    print(
        f"{len(record) - len(missed)} of {len(record)} faults caught, {cells} of them "
        f"({cells / max(1, len(record)):.0%}) by a notebook cell alone"
    )
    for name in missed:
        print(f"not caught: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
