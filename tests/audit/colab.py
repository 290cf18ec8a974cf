"""Every notebook from its own set-up cell, as Colab would run it.

    python -m tests.audit.colab [PART OF A NAME ...]
    python -m tests.audit.colab --record ...   and keep the times in book/measured

A machine like Colab's has the versions of ``colab.txt``, not ``stacklm``, and another
working folder (see ``colab_machine``). Each notebook starts on a fresh one. Its cells
are those that the Colab button opens, unchanged; only git finds the repository here
instead of at the address that the set-up cell names. It is a fault if a cell raises,
if the set-up takes over a minute, if ``stacklm`` came from elsewhere, if a dial of an
explorer changes nothing, and if a check answers other than the page says. What this
cannot show: Colab's Python and torch, and its own output frames.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from book.pipeline.pages import Page, code_cells, find_pages, read_notebook
from stacklm.bench import report
from tests.audit.colab_machine import (
    ROOT,
    Machine,
    addresses,
    machine,
    pins,
    snapshot,
    version_of,
)

MEASURED = ROOT / "book" / "measured"
SET_UP_LIMIT_S = 60
CELL_TIMEOUT_S = 600
# Runs after the notebook's last cell, in its kernel.
PROBE = """
import json as _json, stacklm as _stacklm, ipywidgets as _widgets
from stacklm.notebook import Explorer as _Explorer
_turned = []
for _one in [_v for _v in list(Out.values()) if isinstance(_v, _Explorer)]:
    *_dials, _box = _one.widget.children
    for _dial in _dials:
        _before = _box.children
        _dial.index = 1 if _dial.index == 0 else 0
        _turned.append(_box.children != _before)
print(_json.dumps({"from": _stacklm.__file__, "widgets": _widgets.__version__,
                   "turned": _turned}))
"""


@dataclass
class Result:
    """What one notebook did.

    Args:
        name: Such as ``chapters/02_newton_schulz``.
        set_up: Seconds of its first cell.
        whole: Seconds of all its cells, the first included.
        load: Processes that wanted a processor, on average around its last minute.
        dials: How many dials of explorers were turned.
        faults: What was wrong, one sentence each.
    """

    name: str
    set_up: float = 0.0
    whole: float = 0.0
    load: float = 0.0
    dials: int = 0
    faults: list[str] = field(default_factory=list)


class Clock:
    """Takes the time of each cell; nbclient calls it."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._began = 0.0

    def start(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        self._began = time.monotonic()

    def stop(self, cell: nbformat.NotebookNode, cell_index: int, **_: object) -> None:
        self.seconds[cell_index] = time.monotonic() - self._began


def run(page: Page, repository: Path, light: bool = False) -> Result:
    """Run one notebook on a fresh machine."""
    nb = read_notebook(page)
    result = Result(page.name)
    first = code_cells(nb)[0]
    named = addresses(first.source)
    if len(named) != 1:
        result.faults.append("its first cell installs from no address, or from several")
        return result
    shown = [texts(cell) for cell in code_cells(nb)]
    probe = nbformat.v4.new_code_cell(PROBE)
    nb.cells.append(probe)
    clock = Clock()
    with machine(repository, named[0], light) as colab:
        try:
            execute(nb, colab, clock)
        except CellExecutionError as error:
            result.faults.append(f"a cell raised {error.ename}: {error.evalue}")
        except Exception as error:  # a dead kernel, a timeout: the others go on
            result.faults.append(f"{type(error).__name__}: {str(error)[:400]}")
        else:
            look(result, probe, colab)
            result.faults += other_verdicts(nb, shown)
    result.load = report.load()
    result.whole = sum(clock.seconds.values())
    result.set_up = clock.seconds.get(nb.cells.index(first), 0.0)
    if result.set_up > SET_UP_LIMIT_S:
        result.faults.append(f"the set-up took over {SET_UP_LIMIT_S} s")
    return result


def execute(nb: nbformat.NotebookNode, colab: Machine, clock: Clock) -> None:
    """Run all cells in the machine's kernel, in place."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "colab")
        kernel.mkdir()
        command = [str(colab.python), "-m", "ipykernel_launcher", "-f"]
        spec = {"argv": [*command, "{connection_file}"], "language": "python"}
        spec["display_name"] = "Colab"
        (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
        specs = KernelSpecManager(kernel_dirs=[folder], ensure_native_kernel=False)
        manager = AsyncKernelManager(kernel_name="colab", kernel_spec_manager=specs)
        client = NotebookClient(
            nb,
            km=manager,
            timeout=CELL_TIMEOUT_S,
            resources={"metadata": {"path": str(colab.content)}},
            on_cell_start=clock.start,
            on_cell_executed=clock.stop,
            on_cell_error=clock.stop,
        )
        try:
            client.execute(env=colab.environment)
        except Exception:
            # nbclient answers a signal by dropping the kernel, and stumbles over that.
            if client.km is None:
                raise KeyboardInterrupt from None
            raise
        finally:  # nbclient ends no kernel whose manager it was given
            run_sync(manager.shutdown_kernel)(now=True)
            if client.kc is not None:
                client.kc.stop_channels()


def look(result: Result, probe: nbformat.NotebookNode, colab: Machine) -> None:
    """Judge what the probe found."""
    found = json.loads(probe.outputs[0]["text"])
    own = colab.python.parents[1]
    if own not in Path(found["from"]).parents:
        result.faults.append(f"stacklm came from {found['from']}")
    if not found["widgets"].startswith("7."):
        result.faults.append(f"it ran with ipywidgets {found['widgets']}, not Colab's")
    result.dials = len(found["turned"])
    if not all(found["turned"]):
        result.faults.append("a dial of an explorer changes nothing")


def texts(cell: nbformat.NotebookNode) -> str:
    """What a cell printed."""
    streams = (o for o in cell.outputs if o.output_type == "stream")
    return "".join(o.text for o in streams if o.name == "stdout")


def other_verdicts(nb: nbformat.NotebookNode, shown: list[str]) -> list[str]:
    """Checks that do not say what the page says: not attempted, or correct."""
    return [
        f"{cell.source.splitlines()[-1]} says {texts(cell).strip()[:200]!r}, "
        f"and on the page {before.strip()[:200]!r}"
        for cell, before in zip(code_cells(nb), shown, strict=False)
        if cell.source.splitlines()[-1].startswith("check(") and texts(cell) != before
    ]


def pages(parts: list[str]) -> list[Page]:
    """The pages whose names contain one of the parts; all if there are none."""
    return [p for p in find_pages() if not parts or any(s in p.name for s in parts)]


def run_all(chosen: list[Page], keep: Path | None) -> int:
    """Run the notebooks, one after another, and say how each went.

    Args:
        chosen: The pages.
        keep: The folder to record times in, if they are to be kept. Each is written
            as soon as it is known.

    Returns:
        How many had faults.
    """
    failed = 0
    print("set-up   whole  load  dials  notebook", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        repository = snapshot(Path(folder))
        for page in chosen:
            result = run(page, repository)
            times = f"{result.set_up:5.1f} s {result.whole:5.1f} s {result.load:5.1f}"
            print(f"{times}  {result.dials:5}  {result.name}", flush=True)
            for fault in result.faults:
                print(f"  {fault}", flush=True)
            failed += bool(result.faults)
            if keep and not result.faults:
                record(result, keep)
    return failed


def record(result: Result, folder: Path) -> Path:
    """Keep a notebook's times, beside others of this machine and these versions.

    Args:
        result: What the notebook did.
        folder: Where the JSON is.

    Returns:
        The file. Times of other versions are dropped from it, and so are those of
        notebooks that are gone.
    """
    colab = dict(line.split("==") for line in pins(light=True))
    versions = {"python": platform.python_version(), "torch": version_of("torch")}
    found = {"hardware": report.hardware("cpu"), "versions": {**versions, **colab}}
    path = folder / report.file_name(found["hardware"], "notebooks")
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    same = all(kept.get(key) == value for key, value in found.items())
    rows = kept["notebooks"] if same else {}
    rows[result.name] = {
        "set_up_seconds": round(result.set_up, 1),
        "cell_seconds": round(result.whole - result.set_up, 1),
        "load": round(result.load, 1),
    }
    names = [page.name for page in find_pages()]
    found["notebooks"] = {name: rows[name] for name in names if name in rows}
    return report.write(found, folder, tail="notebooks")


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.audit.colab")
    parser.add_argument("parts", nargs="*", metavar="PART OF A NAME")
    parser.add_argument("--record", action="store_true", help="keep the times")
    opts = parser.parse_args(arguments)
    chosen = pages(opts.parts)
    if not chosen:
        parser.error(f"no notebook is called anything like {' or '.join(opts.parts)}")
    try:
        failed = run_all(chosen, MEASURED if opts.record else None)
    except KeyboardInterrupt:
        print("interrupted; what was recorded is kept", file=sys.stderr)
        return 130
    print(f"{len(chosen)} notebooks, {failed} with faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
