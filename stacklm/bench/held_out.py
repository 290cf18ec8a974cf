"""Try the cost model on steps it has not seen: ``python -m stacklm.bench.held_out``.

Our step is measured on 2, 4 and 8 ranks at three sizes, by turns. The four rates of the
model are found from 2 and 4 ranks at two of the sizes; 8 ranks and the third size are
then predicted. A few minutes on two idle cores.

Two clocks are read at once. "wall" is how long a step takes, the fastest of all rounds.
"cpu" is the time that all ranks spend on processors, divided by the cores they can use:
what the step would take if no core ever waited. A busy machine hardly disturbs it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from stacklm.bench.cost_model import Work, calibrate, cpu_flops, predict, work_of
from stacklm.bench.ranks import Ranks
from stacklm.bench.report import hardware, load, versions, write
from stacklm.bench.sharded import SIZES, Shapes
from stacklm.bench.steps import OURS, make_ready, timed_step

KNOWN_SIZES = ("S1", "Stack-100M, 3 of 30 blocks")
KNOWN_RANKS = (2, 4)
ALL_RANKS = (2, 4, 8)
# The largest error of a prediction that is asked for.
ASKED = 0.30
Key = tuple[str, int]


def measure(
    pools: Mapping[int, Ranks],
    sizes: Mapping[str, Shapes],
    rounds: int,
    said: Callable[[str], None] = lambda text: None,
) -> dict[Key, dict[str, list[float]]]:
    """Time our step for all sizes and pools, by turns.

    Args:
        pools: {number of ranks: the ranks}.
        sizes: {name: (m, n) of every matrix}.
        rounds: Turns.
        said: Told what happens now.

    Returns:
        {(size, ranks): {"wall": seconds of each round, "cpu": likewise}}.
    """
    cores = os.cpu_count() or 1
    found: dict[Key, dict[str, list[float]]] = {}
    for size, shapes in sizes.items():
        for count, ranks in pools.items():
            said(f"preparing {size}, {count} ranks")
            ranks.run(make_ready, OURS, shapes)
            found[size, count] = {"wall": [], "cpu": []}
    for turn in range(rounds):
        for (size, count), times in found.items():
            said(f"round {turn + 1} of {rounds}: {size}, {count} ranks")
            both = pools[count].run(timed_step, OURS, sizes[size])
            times["wall"].append(max(wall for wall, _ in both))
            spent = sum(processor for _, processor in both)
            times["cpu"].append(spent / min(cores, count))
    return found


def judge(
    works: Mapping[Key, Work],
    seconds: Mapping[Key, float],
    known: list[Key],
    cores: int,
) -> dict:
    """Calibrate on some steps and predict all.

    Args:
        works: What each step has to do.
        seconds: How long it took.
        known: The steps to calibrate on.
        cores: That the ranks share.

    Returns:
        The rates, every prediction with its terms and error, and the largest error of
        those that were held out.
    """
    machine = calibrate([(works[key], seconds[key]) for key in known], cores)
    rows = []
    for (size, ranks), work in works.items():
        terms = predict(work, machine)
        took, predicted = seconds[size, ranks], sum(terms.values())
        rows.append(
            {
                "size": size,
                "ranks": ranks,
                "held_out": (size, ranks) not in known,
                "seconds": took,
                "predicted": predicted,
                "error": predicted / took - 1,
                "terms": terms,
            }
        )
    errors = [abs(row["error"]) for row in rows if row["held_out"]]
    return {"machine": asdict(machine), "steps": rows, "worst_held_out": max(errors)}


def table(found: Mapping) -> str:
    """The report as lines of text."""
    lines = []
    for clock, judged in found["clocks"].items():
        lines += [
            f"clock: {clock}",
            f"{'size':28}{'ranks':>6}{'seconds':>9}{'predicted':>11}{'error':>8}",
        ]
        for row in judged["steps"]:
            lines.append(
                f"{row['size']:28}{row['ranks']:6}{row['seconds']:9.3f}"
                f"{row['predicted']:11.3f}{row['error']:8.0%}"
                f"{'  held out' if row['held_out'] else ''}"
            )
        worst = judged["worst_held_out"]
        lines += [f"largest error held out: {worst:.0%} (asked: {ASKED:.0%})", ""]
    return "\n".join(lines)


def options(arguments: list[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser("python -m stacklm.bench.held_out")
    add = parser.add_argument
    add("--rounds", type=int, default=15, help="turns")
    add("--clock", choices=["wall", "cpu"], default="wall", help="which one is judged")
    add("--out", type=Path, default=Path("book/measured"), help="folder of the JSON")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, calibrate, predict, write the JSON; 1 if an error is too large."""
    opts = options(arguments)

    def said(text: str) -> None:
        print(f"\r{text:60.60}", end="", file=sys.stderr, flush=True)

    machine = hardware("cpu") | {"threads": 1}  # of a rank
    found = {
        "hardware": machine,
        "versions": {k: versions()[k] for k in ("python", "torch")},
        "backend": "gloo",
        "load": {"before": load()},
    }
    with contextlib.ExitStack() as stack:
        pools = {n: stack.enter_context(Ranks(n, timeout=600.0)) for n in ALL_RANKS}
        times = measure(pools, SIZES, opts.rounds, said)
    found["load"]["after"] = load()
    works = {key: work_of(SIZES[key[0]], key[1], flops=cpu_flops) for key in times}
    known = [key for key in times if key[0] in KNOWN_SIZES and key[1] in KNOWN_RANKS]
    found["rounds"] = [
        {"size": size, "ranks": ranks, **both} for (size, ranks), both in times.items()
    ]
    found["clocks"] = {}
    for clock, middle in (("wall", min), ("cpu", statistics.median)):
        seconds = {key: middle(both[clock]) for key, both in times.items()}
        judged = judge(works, seconds, known, machine["cores"])
        found["clocks"][clock] = judged
    said("")
    print(f"\r{table(found)}")
    if found["load"]["before"] > 0.5:
        print(f"The machine was busy before (load {found['load']['before']:.1f}).")
    print(f"written: {write(found, opts.out, 'cost model')}")
    return 0 if found["clocks"][opts.clock]["worst_held_out"] <= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
