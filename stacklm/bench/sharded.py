"""Time sharded steps: ``python -m stacklm.bench.sharded``, or ``make bench-ranks``.

Ours, the same fp32 iteration leaf by leaf on DTensors, and torch.optim.Muon, each on
FSDP2's parameters over the same ranks; and ours in one process, which has all matrices.
All by turns, so that what disturbs one disturbs all. A few minutes on two idle cores.

Ranks of one machine share its cores, and their links are its memory. A step is as long
as that of its last rank.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from stacklm.bench.cases import block_shapes
from stacklm.bench.clock import Times, ratio, told_by_turns
from stacklm.bench.ranks import Ranks
from stacklm.bench.report import hardware, load, versions, write
from stacklm.bench.steps import (
    ALONE,
    OPTIMIZERS,
    OURS,
    PER_LEAF,
    forget_steps,
    make_ready,
    step_traffic,
    timed_step,
)
from stacklm.config import LADDER
from stacklm.optim import newton_schulz_flops

Shapes = tuple[tuple[int, int], ...]

# {name: (m, n) of every matrix}: two models of the ladder, whole, and a tenth.
SIZES: dict[str, Shapes] = {
    "S1": tuple(block_shapes(LADDER["S1"]) * LADDER["S1"].n_layers),
    "S2": tuple(block_shapes(LADDER["S2"]) * LADDER["S2"].n_layers),
    "Stack-100M, 3 of 30 blocks": tuple(block_shapes() * 3),
}
# The least that ours must be faster than leaf by leaf.
ASKED = 3.0


def measure(
    ranks: Ranks,
    one: Ranks,
    shapes: Shapes,
    rounds: int,
    said: Callable[[str], None] = lambda text: None,
) -> dict:
    """Time all candidates on the same matrices, and count what each sends.

    Args:
        ranks: Several ranks.
        one: One rank, which works alone.
        shapes: (m, n) of every matrix.
        rounds: Turns.
        said: Told what happens now.

    Returns:
        What the JSON has for a size: matrices, entries, FLOPs, and by candidate the
        seconds of a step, its share of ours, its collectives and bytes.
    """
    timers: dict[str, Callable[[], float]] = {}
    traffic, spent = {}, {}

    def timer(name: str, pool: Ranks, *args, **kwargs) -> None:
        spent[name] = []

        def run() -> float:
            both = pool.run(timed_step, *args, **kwargs)
            spent[name].append(sum(processor for _, processor in both))
            return max(wall for wall, _ in both)

        timers[name] = run

    for name in OPTIMIZERS:
        said(f"preparing {name}")
        traffic[name] = ranks.run(step_traffic, name, shapes)
        ranks.run(make_ready, name, shapes)
        timer(name, ranks, name, shapes)
    one.run(make_ready, ALONE, shapes)
    for threads in sorted({1, os.cpu_count() or 1}):
        timer(alone_name(threads), one, ALONE, shapes, threads=threads)
    times = told_by_turns(timers, rounds, said=said)
    for pool in (ranks, one):
        pool.run(forget_steps)
    return {
        "matrices": len(shapes),
        "entries": sum(m * n for m, n in shapes),
        "flop": sum(newton_schulz_flops(m, n) for m, n in shapes),
        "steps": {
            name: _row(times, name, Times(tuple(spent[name])), traffic.get(name))
            for name in timers
        },
    }


def alone_name(threads: int) -> str:
    """What one process with so many threads is called."""
    return f"{ALONE}, {threads} thread{'s' if threads > 1 else ''}"


def _row(times: Mapping[str, Times], name: str, spent: Times, traffic) -> dict:
    row = {
        "seconds": times[name].median,
        "spread": times[name].spread,
        "fastest": times[name].fastest,
        "of_ours": ratio(times, name, OURS),
        "rounds": list(times[name].seconds),
        "processor_seconds": spent.median,
        "processor_spread": spent.spread,
    }
    if traffic is not None:
        row["collectives"] = traffic[0].counts
        row["bytes_sent_per_rank"] = sum(t.bytes_sent for t in traffic) / len(traffic)
    return row


def table(found: Mapping) -> str:
    """The whole report as lines of text."""
    lines = []
    for size, row in found["sizes"].items():
        lines += [
            f"{size}: {row['matrices']} matrices, {row['flop'] / 1e9:.0f} GFLOP; "
            f"{found['ranks']} ranks on {found['hardware']['cores']} cores",
            "",
            f"{'step':24}{'seconds':>9}{'spread':>8}{'of ours':>9}{'processor s':>13}"
            f"{'collectives':>13}{'MB per rank':>13}",
        ]
        for name, step in row["steps"].items():
            sent = "".join(f"{'-':>13}" for _ in range(2))
            if "collectives" in step:
                count = sum(step["collectives"].values())
                sent = f"{count:13}{step['bytes_sent_per_rank'] / 1e6:13.1f}"
            lines.append(
                f"{name:24}{step['seconds']:9.3f}{step['spread']:8.0%}"
                f"{step['of_ours']:9.2f}{step['processor_seconds']:13.3f}{sent}"
            )
        lines.append("")
    return "\n".join(lines)


def verdict(found: Mapping) -> list[str]:
    """What this run says of the claim, a line per size."""
    return [
        f"{size}: leaf by leaf takes {row['steps'][PER_LEAF]['of_ours']:.1f} times our "
        f"step (asked: at least {ASKED:.0f})"
        for size, row in found["sizes"].items()
    ]


def options(arguments: list[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser("python -m stacklm.bench.sharded")
    add = parser.add_argument
    add("--ranks", type=int, default=4, help="processes")
    add("--rounds", type=int, default=7, help="turns")
    add("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), metavar="SIZE")
    add("--out", type=Path, default=Path("book/measured"), help="folder of the JSON")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON; 1 if ours is not as fast as asked."""
    opts = options(arguments)

    def said(text: str) -> None:
        print(f"\r{text:60.60}", end="", file=sys.stderr, flush=True)

    found = {
        "hardware": hardware("cpu") | {"threads": 1},  # of a rank
        "versions": {k: versions()[k] for k in ("python", "torch")},
        "clock": "wall",
        "backend": "gloo",
        "ranks": opts.ranks,
        "load": {"before": load()},
        "sizes": {},
    }
    with Ranks(opts.ranks, timeout=600.0) as ranks, Ranks(1, timeout=600.0) as one:
        for size in opts.sizes:
            found["sizes"][size] = measure(ranks, one, SIZES[size], opts.rounds, said)
    found["load"]["after"] = load()
    said("")
    print(f"\r{table(found)}")
    print("\n".join(verdict(found)))
    if found["load"]["before"] > 0.5:
        print(
            f"The machine was busy before this began (load "
            f"{found['load']['before']:.1f})."
        )
    print(f"written: {write(found, opts.out, f'{opts.ranks} ranks')}")
    rows = [row["steps"][PER_LEAF] for row in found["sizes"].values()]
    return 0 if min(row["of_ours"] for row in rows) >= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
