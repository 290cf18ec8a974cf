"""What a run of the benchmark leaves: a table to read, and a JSON to keep.

Units in the JSON: seconds, FLOP/s, and shares without unit.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from stacklm.bench.clock import Times, ratio
from stacklm.bench.measure import AUTO, HALF_STEP, PLAIN, STEP, peak
from stacklm.bench.peers import PEERS
from stacklm.optim import newton_schulz_flops


def hardware(device: str) -> dict:
    """The machine: processor or accelerator, cores, threads, memory in bytes."""
    found = {
        "device": device,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    if device == "cuda":
        found["accelerator"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    text = listed.read_text(encoding="utf-8") if listed.exists() else ""
    named = re.search(r"model name\s*: (.+)", text)
    return named.group(1).strip() if named else platform.machine()


def load() -> float:
    """Processes that want a processor, on average over the last minute."""
    return os.getloadavg()[0]


def versions() -> dict[str, str]:
    """Of Python, torch and every peer that is installed."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for peer in PEERS[1:]:
        try:
            found[peer.package] = version(peer.package)
        except PackageNotFoundError:
            continue
    return found


def file_name(machine: Mapping, tail: str | None = None) -> str:
    """The name of the JSON: the hardware in small letters.

    Args:
        machine: What ``hardware`` returned.
        tail: What was measured there; None: Newton–Schulz, by so many threads.

    Returns:
        A name that ends in .json.
    """
    what = machine.get("accelerator") or machine["processor"]
    if tail is None:
        tail = "" if "accelerator" in machine else f"{machine['threads']} threads"
    return re.sub(r"[^a-z0-9]+", "-", f"{what} {tail}".lower()).strip("-") + ".json"


def rows(times: Mapping[str, Times], shapes: list, base: str) -> dict[str, dict]:
    """{candidate: its median, spread, share of ``base`` and FLOP/s}."""
    flops = sum(newton_schulz_flops(*shape) for shape in shapes)
    return {
        name: {
            "seconds": t.median,
            "spread": t.spread,
            "relative": ratio(times, name, base),
            "flop_per_second": flops / t.median,
            "rounds": list(t.seconds),
        }
        for name, t in times.items()
        if not name.startswith("GEMM")
    }


def report(ours, peers, shapes: list, peer_shapes: list, errors: dict, about: dict):
    """Everything measured, as one dictionary.

    Args:
        ours: What ``time_ours`` returned.
        peers: What ``time_peers`` returned, or None.
        shapes: Of the matrices given to ours.
        peer_shapes: Of the matrices given to the peers.
        errors: What ``accuracy`` returned.
        about: Hardware, versions, load, command.

    Returns:
        A dictionary that ``json`` can write.
    """
    found = {
        **about,
        "matrices": len(shapes),
        "gemm_peak_flop_per_second": peak(ours),
        "newton_schulz": rows(ours, shapes, PLAIN),
        "largest_difference_from_float64": errors,
    }
    if peers is not None:
        times, distance, failed = peers
        whole = rows(times, peer_shapes, PLAIN)
        for name, row in whole.items():
            row["distance_from_float64"] = distance[name]
        found["whole_steps"] = whole
        found["whole_steps_matrices"] = len(peer_shapes)
        found["could_not_run"] = failed
    return found


def table(found: Mapping) -> str:
    """The dictionary of ``report`` as lines of text."""
    top = found["gemm_peak_flop_per_second"]
    lines = [
        f"{found['matrices']} matrices, Newton–Schulz alone. Peak of a product: "
        f"{top / 1e9:.0f} GFLOP/s.",
        "",
        f"{'form':24}{'seconds':>9}{'spread':>8}{'of plain':>9}{'GFLOP/s':>9}"
        f"{'of peak':>9}{'worst error':>13}",
    ]
    for name, row in found["newton_schulz"].items():
        worst = found["largest_difference_from_float64"].get(name)
        error = f"{max(worst.values()):.1e}" if worst else "-"
        lines.append(f"{_cells(name, row, top)}{error:>13}")
    if "whole_steps" in found:
        count = found["whole_steps_matrices"]
        lines += [
            "",
            f"Whole steps on {count} matrices; all {found['matrices']} take "
            f"{found['matrices'] / count:.0f} times as long.",
            "",
            f"{'package':24}{'seconds':>9}{'spread':>8}{'of plain':>9}{'GFLOP/s':>9}"
            f"{'of peak':>9}{'distance':>13}",
        ]
        for name, row in found["whole_steps"].items():
            distance = f"{row['distance_from_float64']:.1e}"
            lines.append(f"{_cells(name, row, top)}{distance:>13}")
        lines += [f"{name}: {why}" for name, why in found["could_not_run"].items()]
    return "\n".join(lines)


def _cells(name: str, row: Mapping, top: float) -> str:
    speed = row["flop_per_second"]
    return (
        f"{name:24}{row['seconds']:9.3f}{row['spread']:8.0%}{row['relative']:9.2f}"
        f"{speed / 1e9:9.0f}{speed / top:9.2f}"
    )


def verdict(found: Mapping) -> list[str]:
    """The claims that the book makes, each with what this run says of it."""
    auto = found["newton_schulz"][AUTO]["relative"]
    worst = max(found["largest_difference_from_float64"][AUTO].values())
    said = [
        f"auto takes {auto:.2f} of the plain loop (asked: at most 0.70)",
        f"auto is within {worst:.1e} of float64 (asked: 1e-05)",
    ]
    if "whole_steps" in found:
        takes = {name: row["relative"] for name, row in found["whole_steps"].items()}
        del takes[PLAIN]
        ours = {name: takes.pop(name) for name in (STEP, HALF_STEP) if name in takes}
        if takes and ours:
            fast, nearest = min(ours, key=ours.get), min(takes, key=takes.get)
            said.append(
                f"{nearest}, the fastest peer, takes {takes[nearest] / ours[fast]:.2f} "
                f"times our fastest step ({fast})"
            )
    return said


def write(found: Mapping, folder: Path, tail: str | None = None) -> Path:
    """Write the JSON into ``folder`` and return its path; ``tail`` as for its name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(found["hardware"], tail)
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return path
