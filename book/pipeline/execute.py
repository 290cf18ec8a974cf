"""Run a page once, and write its outputs in one canonical form.

What a run leaves behind that says nothing about the result is taken out here: random
cell and widget ids, time stamps, how a stream was split into chunks, the interpreter's
patch version. Two runs that compute the same then give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from book.pipeline.pages import Page, PageError, code_cells, tags

TIMEOUT_S = 600
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
# Not \b: a reference reads IPY_MODEL_<id>, and _ is a word character.
MODEL_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")


def execute(nb: nbformat.NotebookNode, page: Page) -> None:
    """Run every cell in the page's folder, in place.

    Raises:
        PageError: if a cell raises, or writes to stderr (a warning) without the tag
            `nbval-ignore-output`.
    """
    client = NotebookClient(
        nb,
        timeout=TIMEOUT_S,
        record_timing=False,
        resources={"metadata": {"path": str(page.source.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise PageError(f"{page.name}.md: a cell failed\n{error}") from None
    except Exception:
        # nbclient answers Ctrl-C by dropping its kernel, and then stumbles over that.
        if client.km is None:
            raise KeyboardInterrupt from None
        raise
    for number, cell in enumerate(code_cells(nb), 1):
        for text in stray_outputs(cell):
            raise PageError(f"{page.name}.md, code cell {number}: {text}")


def stray_outputs(cell: nbformat.NotebookNode) -> list[str]:
    """What a compared cell must not print: warnings, and addresses that change."""
    if "nbval-ignore-output" in tags(cell):
        return []
    found = []
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            found.append(f"writes to stderr, which only warnings do:\n{output.text}")
        if ADDRESS.search(json.dumps(output)):
            found.append("prints a memory address, which differs in every run")
    return found


def canonicalize(nb: nbformat.NotebookNode, page: Page) -> None:
    """Give ids, counts and metadata one deterministic form, in place."""
    counts = iter(range(1, len(nb.cells) + 1))
    for index, cell in enumerate(nb.cells):
        cell.id = f"cell-{index:03d}"
        if cell.cell_type != "code":
            continue
        # A cell that was skipped has no count, and nbval must see that it has none.
        if cell.execution_count is not None:
            cell.execution_count = next(counts)
        cell.outputs = [canonical_output(o) for o in joined_streams(cell.outputs)]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = cell.execution_count
    nb.metadata.language_info = {"name": "python"}
    canonicalize_widgets(nb, page)
    nb.nbformat, nb.nbformat_minor = 4, 5


def joined_streams(outputs: list) -> list:
    """Neighbouring chunks of one stream as one output."""
    joined: list = []
    for output in outputs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def canonical_output(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """An output without transient fields."""
    output.pop("transient", None)
    return output


def canonicalize_widgets(nb: nbformat.NotebookNode, page: Page) -> None:
    """Number widget models in order of appearance and drop those no cell shows."""
    widgets = nb.metadata.get("widgets")
    if not widgets:
        nb.metadata.pop("widgets", None)
        return
    state = widgets[WIDGET_STATE]["state"]
    order = reachable_models(nb, state)
    names = {
        old: hashlib.sha256(f"{page.name}:{index}".encode()).hexdigest()[:32]
        for index, old in enumerate(order)
    }

    def renamed(value):
        text = json.dumps(value)
        return json.loads(MODEL_ID.sub(lambda m: names.get(m[0], m[0]), text))

    widgets[WIDGET_STATE]["state"] = {names[old]: renamed(state[old]) for old in order}
    for cell in code_cells(nb):
        cell.outputs = [nbformat.from_dict(renamed(o)) for o in cell.outputs]


def reachable_models(nb: nbformat.NotebookNode, state: dict) -> list[str]:
    """Widget models that some output shows, in depth-first order.

    A jslink refers to its widgets but no widget refers to it, so links are added once
    what they join is reachable.
    """
    order: list[str] = []

    def visit(model_id: str) -> None:
        if model_id in order or model_id not in state:
            return
        order.append(model_id)
        for found in mentioned(state[model_id]):
            visit(found)

    for cell in code_cells(nb):
        for output in cell.outputs:
            view = output.get("data", {}).get(WIDGET_VIEW)
            if view:
                visit(view["model_id"])
    links = [m for m in state if "LinkModel" in state[m]["model_name"]]
    links = [m for m in links if set(mentioned(state[m])) <= set(order)]

    def joins(link: str) -> list:
        return [order.index(target) for target in mentioned(state[link])]

    return order + sorted(links, key=joins)


def mentioned(model: dict) -> list[str]:
    """Ids of the models that a model's state refers to, in a fixed order."""
    return MODEL_ID.findall(json.dumps(model["state"], sort_keys=True))


def dumps(nb: nbformat.NotebookNode) -> str:
    """The notebook as text: sorted keys, one trailing newline."""
    split = nbformat.v4.nbjson.JSONWriter().writes(nb, sort_keys=True, indent=1)
    return split.rstrip("\n") + "\n"
