"""Lighthouse on every page, as a phone on a slow network gets it.

    python -m tests.audit.lighthouse [PART OF A NAME ...]

Lighthouse reckons with a processor four times slower than this one, so performance
falls when the machine does other work: a page that misses is measured twice more and
its median counts. The load of the machine is printed beside the scores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from book.site import chromium
from tests.served import HTML, served

HERE = Path(__file__).resolve().parent
COMMAND = HERE / "node_modules" / ".bin" / "lighthouse"
FULL = ("accessibility", "best-practices", "seo")
PERFORMANCE, WITH_EXPLORERS = 95, 90  # of 100
RUNS = 3


class AuditError(Exception):
    """What is missing here, and what to do."""


def install() -> None:
    """Put Lighthouse into node_modules as package-lock.json says; once is enough."""
    if shutil.which("npm") is None:
        raise AuditError(
            "Lighthouse needs Node.js 18.16 or newer with npm, and there is none here; "
            "install it (Debian: apt-get install npm) and run the same command again"
        )
    done, lock = HERE / "node_modules/.package-lock.json", HERE / "package-lock.json"
    if not done.exists() or done.stat().st_mtime < lock.stat().st_mtime:
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=HERE, check=True)


def measure(url: str, browser: str) -> dict:
    """Run Lighthouse on one page with its default preset, a phone.

    Raises:
        AuditError: if it gives no report.
    """
    command = [COMMAND, url, "--output=json", "--quiet"]
    command += [f"--chrome-flags=--headless=new {' '.join(chromium.FLAGS)}"]
    command += [f"--only-categories={','.join(('performance', *FULL))}"]
    environment = {**os.environ, "CHROME_PATH": browser}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise AuditError(f"no report for {url}: {done.stderr.strip()[-500:]}") from None
    if error := report.get("runtimeError"):
        raise AuditError(f"no report for {url}: {error['message']}")
    return report


def scores(report: dict) -> dict[str, int]:
    """Score of each category, of 100."""
    found = {name: part["score"] for name, part in report["categories"].items()}
    return {name: round(100 * (score or 0)) for name, score in found.items()}


def limits(content: str) -> dict[str, int]:
    """What a page must reach, by what is on it."""
    explorers = "widget-view+json" in content
    performance = WITH_EXPLORERS if explorers else PERFORMANCE
    return {"performance": performance, **dict.fromkeys(FULL, 100)}


def misses(found: dict[str, int], wanted: dict[str, int]) -> list[str]:
    """Categories below their limit."""
    return [name for name, least in wanted.items() if found[name] < least]


def failing(report: dict, category: str) -> list[str]:
    """Audits that took points off a category, the costliest first."""
    lost = []
    for entry in report["categories"][category]["auditRefs"]:
        audit = report["audits"][entry["id"]]
        cost = entry["weight"] * (1 - (1 if audit["score"] is None else audit["score"]))
        if cost > 0.5 or (cost > 0 and category != "performance"):
            value = audit.get("displayValue", audit["title"]).replace("\xa0", " ")
            lost.append((cost, f"{entry['id']} ({value})"))
    return [text for _, text in sorted(lost, reverse=True)]


def judge(name: str, base: str, browser: str) -> list[str]:
    """Measure one page, print its line of the table, return what it misses."""
    wanted = limits((HTML / name).read_text(encoding="utf-8"))
    reports = [measure(base + name, browser)]
    if "performance" in misses(scores(reports[0]), wanted):
        reports += [measure(base + name, browser) for _ in range(RUNS - 1)]
    found = {c: round(median(scores(r)[c] for r in reports)) for c in wanted}
    size = reports[0]["audits"]["total-byte-weight"]["numericValue"] / 1000
    row = " ".join(f"{found[c]:>5}" for c in wanted)
    print(f"{row} {size:6.0f} kB {os.getloadavg()[0]:6.1f}  {name}", flush=True)
    return [
        f"{name}: {c} {found[c]}, at least {wanted[c]} wanted: "
        + ", ".join(failing(reports[-1], c))
        for c in misses(found, wanted)
    ]


def pages(parts: list[str]) -> list[str]:
    """Built pages whose names have one of the parts; all of them without any."""
    names = [path.relative_to(HTML).as_posix() for path in sorted(HTML.rglob("*.html"))]
    apart = ("_static/", "index.html", "404.html")
    names = [name for name in names if not name.startswith(apart)]
    found = [n for n in names if not parts or any(part in n for part in parts)]
    if not found:
        raise AuditError(f"no built page in {HTML}; run `make book` first")
    return found


def main(parts: list[str]) -> int:
    """Print the table and what is missed; returns the exit status."""
    try:
        names, browser = pages(parts), chromium.find()
        if browser is None:
            raise AuditError(chromium.MISSING)
        install()
        print(" perf  a11y  best   seo   weight   load  page")
        with served() as base:
            missed = [text for name in names for text in judge(name, base, browser)]
    except AuditError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", *missed]) if missed else f"\n{len(names)} pages, all light")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
