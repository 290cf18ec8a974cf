"""Time Newton–Schulz on the matrices of Stack-100M, against the plain loop and peers.

Under eight minutes on two idle cores as it stands, most of it for peers that iterate in
half precision. Run it on an idle machine; on a busy one, --clock cpu with one thread.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from stacklm.bench.cases import random_matrices
from stacklm.bench.measure import accuracy, time_ours, time_peers
from stacklm.bench.report import hardware, load, report, table, verdict, versions, write

BLOCKS = 30


def options(arguments: list[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser("python -m stacklm.bench", description=__doc__)
    add = parser.add_argument
    add("--tenth", action="store_true", help="3 of the 30 blocks")
    add("--rounds", type=int, default=3, help="turns of our own forms")
    add("--no-peers", action="store_true", help="leave the other packages out")
    add("--peer-blocks", type=int, default=1, help="blocks that the peers get")
    add("--peer-rounds", type=int, default=2, help="turns of the peers")
    add("--patience", type=float, default=60, help="longest step of a peer, seconds")
    add("--clock", choices=["wall", "cpu"], default="wall", help="what is read")
    add("--threads", type=int, help="of torch; left out, torch's choice")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--out", type=Path, default=Path("book/measured"), help="folder of the JSON")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    opts = options(arguments)
    if opts.threads:
        torch.set_num_threads(opts.threads)

    def said(text: str) -> None:
        print(f"\r{text:60.60}", end="", file=sys.stderr, flush=True)

    before = load()
    dirs = random_matrices(3 if opts.tenth else BLOCKS, opts.device)
    ours = time_ours(dirs, opts.rounds, opts.clock, said)
    some = random_matrices(opts.peer_blocks, opts.device)
    peers = None
    if not opts.no_peers:
        peers = time_peers(
            some, opts.peer_rounds, opts.clock, said, patience=opts.patience
        )
    about = {
        "hardware": hardware(opts.device),
        "versions": versions(),
        "clock": opts.clock,
        "load": {"before": before, "after": load()},
    }
    shapes, fewer = ([G.shape for G in each] for each in (dirs, some))
    found = report(ours, peers, shapes, fewer, accuracy(said), about)
    said("")
    print(f"\r{table(found)}\n")
    print("\n".join(verdict(found)))
    if before > 0.5:
        print(f"The machine was busy before this began (load {before:.1f}).")
    print(f"written: {write(found, opts.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
