"""What the runner's processes do: replay a notebook, or run tests, in this process.

They are forked from one that has imported torch and computed nothing, so a try costs
what its cells cost. A cell fails as in nbval: it raises, or prints something else than
what the notebook holds. Pictures and widgets are not compared.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path

# Imported once, before the forks: all that takes long of what stacklm and its tests
# import. Nothing here computes or imports stacklm.
import hypothesis  # noqa: F401
import IPython.core.interactiveshell as shells
import ipywidgets  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import pytest
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.nn.attention.flex_attention
import torch.utils.flop_counter  # noqa: F401
from IPython.display import display
from IPython.utils.capture import capture_output

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


def attempt(catcher: str, root: str, path: list[str], answer) -> None:
    """Run a notebook or tests; send the id of what failed, None, or an exception.

    Args:
        catcher: A notebook, "notebook::Cell 7" for a notebook up to that cell, or tests
            as pytest names them, seen from ``root``.
        root: The repository.
        path: Comes first on the path of this process and of those it starts.
        answer: One end of a pipe.
    """
    os.setsid()  # so that all it starts can be ended with it
    os.chdir(root)
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTHONSAFEPATH"] = "1"  # the folder it starts in does not come first
    sys.path[:0] = path
    sys.dont_write_bytecode = True
    # The server of forks may be one that other tests started, with stacklm imported.
    for name in [name for name in sys.modules if name.split(".")[0] == "stacklm"]:
        del sys.modules[name]
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    run = replay if ".ipynb" in catcher else test
    try:
        answer.send(run(catcher))
    except BaseException as error:  # SystemExit, too, is for the one who waits
        answer.send(RuntimeError(f"{catcher} ran nothing: {error!r}"))
    sys.stdout.flush()
    os._exit(0)  # no thread of a cell or test holds this process up


def test(catcher: str) -> str | None:
    """The first test that fails, by pytest's own id; None if all pass."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", "pythonpath="]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main([*options, "--disable-plugin-autoload", catcher])
    if status == pytest.ExitCode.OK:
        return None
    found = FAILED.findall(said.getvalue())
    if status in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED) and found:
        return found[0]
    raise RuntimeError(said.getvalue()[-2000:])


def replay(catcher: str) -> str | None:
    """The first cell that fails, by nbval's id of it; None if all are as they were."""
    notebook, _, last = catcher.partition("::Cell ")
    cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    os.chdir(Path(notebook).parent)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    shell = shells.InteractiveShell.instance()
    # The value of a cell's last line is shown as in a notebook, without "Out[1]:".
    shell.display_trap.hook = lambda value: value is None or display(value)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for number, cell in enumerate(code[: int(last) + 1] if last else code):
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        if "nbval-skip" in tags:
            continue
        with capture_output() as seen:
            result = shell.run_cell(source, store_history=False)
        shown = [each.data for each in seen.outputs]
        same = "nbval-ignore-output" in tags or (
            said(seen.stdout, shown) == wanted(cell["outputs"])
        )
        if not (result.success and same):
            return f"{notebook}::Cell {number}"
    return None


def wanted(outputs: list[dict]) -> tuple[str, list[str]]:
    """What a notebook holds of a cell, as ``said`` gives it."""
    streams = (each for each in outputs if each["output_type"] == "stream")
    text = "".join("".join(s["text"]) for s in streams if s["name"] == "stdout")
    return said(text, [each["data"] for each in outputs if "data" in each])


def said(text: str, shown: list[dict]) -> tuple[str, list[str]]:
    """The text of a cell: what it printed, and the plain text of what it showed.

    Markdown is what ``show`` makes of source, which would catch any edit of the source.
    """
    left_out = ("image/", "application/vnd", "text/markdown")
    compared = (
        data for data in shown if not any(kind.startswith(left_out) for kind in data)
    )
    return text, [
        "".join(words)
        for data in compared
        for kind, words in sorted(data.items())
        if kind.endswith("text/plain")  # also what was glued
    ]
