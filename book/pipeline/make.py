"""Source -> notebook: execute what changed, translate, write one canonical file.

A notebook carries a seal, the hash of everything else in it. An edit by hand breaks the
seal, and the page is then executed again from its source.
"""

from __future__ import annotations

import hashlib

import nbformat

from book.pipeline.execute import canonicalize, dumps, execute
from book.pipeline.exercises import exercise_files
from book.pipeline.pages import (
    ROOT,
    Page,
    PageError,
    code_cells,
    find_pages,
    read_notebook,
    read_source,
    same_code,
)
from book.pipeline.targets import Targets
from book.pipeline.translate import caption_cell, translate

SCRAP = "application/papermill.record/text/plain"


def make_all(*, force: bool = False, say=print) -> None:
    """Bring every notebook up to date with its page.

    Args:
        force: execute every page again, also those whose code did not change.
        say: called with one line per page.
    """
    for path, text in exercise_files(ROOT).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            say(f"{path.relative_to(ROOT)}: generated from its solution")
    targets = Targets.scan(ROOT)
    for page in find_pages():
        say(f"{page.name}: {make(page, targets, force=force)}")


def make(page: Page, targets: Targets, *, force: bool = False) -> str:
    """Make one notebook; returns what was done, in a word or two."""
    nb = read_source(page)
    old = usable_notebook(page, nb)
    if force or old is None:
        execute(nb, page)
        done = "executed"
    else:
        copy_outputs(old, nb)
        done = "translated"
    text = finished(nb, page, targets)
    if page.notebook.exists() and page.notebook.read_text(encoding="utf-8") == text:
        return "unchanged" if done == "translated" else "executed, unchanged"
    page.notebook.write_text(text, encoding="utf-8")
    return done


def usable_notebook(
    page: Page, source: nbformat.NotebookNode
) -> nbformat.NotebookNode | None:
    """The committed notebook if its outputs still belong to the source."""
    try:
        old = read_notebook(page)
    except PageError:
        return None
    return old if same_code(source, old) and sealed(old) else None


def copy_outputs(old: nbformat.NotebookNode, new: nbformat.NotebookNode) -> None:
    """Take over outputs, counts and widget state of a notebook with the same code."""
    for before, after in zip(code_cells(old), code_cells(new), strict=True):
        after.outputs = before.outputs
        after.execution_count = before.execution_count
    if "widgets" in old.metadata:
        new.metadata["widgets"] = old.metadata["widgets"]


def finished(nb: nbformat.NotebookNode, page: Page, targets: Targets) -> str:
    """The text of the notebook file: translated, canonical, sealed."""
    kept = ("kernelspec", "widgets")
    nb.metadata = nbformat.from_dict(
        {key: nb.metadata[key] for key in kept if key in nb.metadata}
    )
    nb.cells = translated_cells(nb, page, targets)
    canonicalize(nb, page)
    nb.metadata["stacklm"] = {"source": f"{page.name}.md", "seal": seal(nb)}
    return dumps(nb)


def translated_cells(
    nb: nbformat.NotebookNode, page: Page, targets: Targets
) -> list[nbformat.NotebookNode]:
    """Cells for Colab: plain Markdown, and the captions of figures under them."""
    values = glued(nb)
    cells = []
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = translate(
                cell.source, page=page.name, targets=targets, glue=values
            )
            if not cell.source.strip():
                continue
        cells.append(cell)
        if cell.cell_type == "code" and (caption := caption_cell(cell.metadata)):
            caption = translate(caption, page=page.name, targets=targets, glue=values)
            cells.append(nbformat.v4.new_markdown_cell(caption))
    return cells


def glued(nb: nbformat.NotebookNode) -> dict[str, str]:
    """Every value that the run glued, by name, as its text: the page reads that too."""
    values: dict[str, str] = {}
    for cell in code_cells(nb):
        for output in cell.outputs:
            if SCRAP in output.get("data", {}):
                name = output.metadata["scrapbook"]["name"]
                values[name] = output.data[SCRAP]
    return values


def seal(nb: nbformat.NotebookNode) -> str:
    """SHA-256 of the notebook without its seal."""
    bare = nbformat.from_dict(nb)
    bare.metadata = {k: v for k, v in nb.metadata.items() if k != "stacklm"}
    return hashlib.sha256(dumps(nbformat.from_dict(bare)).encode()).hexdigest()


def sealed(nb: nbformat.NotebookNode) -> bool:
    """Whether the notebook is as `make notebooks` left it."""
    return nb.metadata.get("stacklm", {}).get("seal") == seal(nb)
