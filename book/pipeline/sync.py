"""Page and notebook agree, every cell ran, and enough of it is compared.

nbval compares outputs. These checks cover what it lets through: a cell that never ran
("passed"), a notebook that belongs to an older page, an output changed by hand where
nbval does not look, and a page that asserts too little.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import nbformat

from book.pipeline.execute import WIDGET_VIEW, stray_outputs
from book.pipeline.exercises import exercise_files
from book.pipeline.make import copy_outputs, finished, sealed
from book.pipeline.pages import (
    FOLDERS,
    ROOT,
    Page,
    PageError,
    code_cells,
    find_pages,
    read_notebook,
    read_source,
    same_code,
    tags,
)
from book.pipeline.prose import typed_numbers
from book.pipeline.targets import Targets, contents
from book.pipeline.translate import leftovers

SKIPPED = {"skip-execution", "nbval-skip"}
UNCOMPARED = SKIPPED | {"nbval-ignore-output"}
COMPARED_SHARE = 0.8
CONSTRUCTOR = re.compile(r"\w+\(")
MAX_BYTES = 1_500_000
MAX_CELLS, MAX_LINES, MAX_COLUMNS = 25, 20, 75
REMAKE = "run `make notebooks`"


def problems_of_book() -> list[str]:
    """Everything that is wrong, one message a line, each with its remedy."""
    found = []
    for path, text in exercise_files(ROOT).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(
                f"{path.relative_to(ROOT)} is not what its solution generates; {REMAKE}"
            )
    found += left_over(ROOT)
    targets = Targets.scan(ROOT)
    for page in find_pages():
        found += problems(page, targets)
    for path in sorted((ROOT / "book").glob("*.md")):
        found += typed_numbers(path.read_text(encoding="utf-8"), f"book/{path.name}")
    return found


def left_over(root: Path) -> list[str]:
    """Files that no page accounts for: nobody reads them, or nothing makes them."""
    pages = find_pages(root)
    listed = set(contents(root))
    known = {page.notebook for page in pages}
    found = [
        f"{path.relative_to(root)} has no page beside it; delete it or write its .md"
        for folder in FOLDERS
        for path in sorted((root / folder).glob("*.ipynb"))
        if path not in known
    ]
    exercises = exercise_files(root)
    for page in pages:
        if page.name not in listed:
            found.append(f"{page.name}.md is not in _toc.yml; list it there")
        if page.folder == "exercises" and page.source not in exercises:
            found.append(f"{page.name}.md has no solution; write it in solutions/")
    return found


def problems(page: Page, targets: Targets) -> list[str]:
    """What is wrong with one page and its notebook."""
    try:
        source, nb = read_source(page), read_notebook(page)
    except PageError as error:
        return [str(error)]
    found = typed_numbers(page.source.read_text(encoding="utf-8"), f"{page.name}.md")
    found += too_big(page, source)
    if not same_code(source, nb):
        changed = f"{page.name}.md: its code changed since the notebook was made"
        return [*found, f"{changed}; {REMAKE}"]
    if not sealed(nb):
        edited = f"{page.name}.ipynb was edited by hand"
        return [*found, f"{edited}; edit {page.name}.md instead and {REMAKE}"]
    copy_outputs(nb, source)
    if finished(source, page, targets) != page.notebook.read_text(encoding="utf-8"):
        found.append(f"{page.name}.md: its text changed; {REMAKE}")
    found += unexecuted(page, nb) + raw_myst(page, nb)
    if page.folder == "chapters":
        found += compares_too_little(page, nb)
    return found


def too_big(page: Page, source: nbformat.NotebookNode) -> list[str]:
    """Limits that keep a page readable on a phone and light in the repository."""
    found = []
    if page.notebook.stat().st_size > MAX_BYTES:
        found.append(f"{page.name}.ipynb is over {MAX_BYTES:,} bytes; show less")
    cells = code_cells(source)
    if len(cells) > MAX_CELLS:
        found.append(f"{page.name}.md: {len(cells)} code cells, at most {MAX_CELLS}")
    for number, cell in enumerate(cells, 1):
        lines = cell.source.split("\n")
        if len(lines) > MAX_LINES:
            found.append(
                f"{page.name}.md, code cell {number}: {len(lines)} lines, at most "
                f"{MAX_LINES}; split it or move ink into stacklm.notebook"
            )
        wide = [line for line in lines if len(line) > MAX_COLUMNS]
        # The set-up cell holds the repository's address, which is as long as it is.
        if wide and number > 1:
            found.append(
                f"{page.name}.md, code cell {number}: {len(wide[0])} columns, "
                f"at most {MAX_COLUMNS}: {wide[0].strip()!r}"
            )
    return found


def unexecuted(page: Page, nb: nbformat.NotebookNode) -> list[str]:
    """Cells that nbval would pass unseen, and outputs that no page should show."""
    found = []
    for number, cell in enumerate(code_cells(nb), 1):
        where = f"{page.name}.ipynb, code cell {number}"
        skipped = tags(cell) & SKIPPED
        if skipped and skipped != SKIPPED:
            found.append(f"{where}: give it both tags {sorted(SKIPPED)} or none")
        if not skipped and cell.execution_count is None:
            found.append(f"{where} was never executed; {REMAKE}")
        if any(o.output_type == "error" for o in cell.outputs):
            found.append(f"{where} shows an error; catch it and print its message")
        found += [f"{where} {stray}" for stray in stray_outputs(cell)]
    return found


def raw_myst(page: Page, nb: nbformat.NotebookNode) -> list[str]:
    """Roles, directives and labels that a Colab reader would see as they are."""
    return [
        f"{page.name}.ipynb, cell {number}: raw MyST {raw!r} is left; {REMAKE}"
        for number, cell in enumerate(nb.cells, 1)
        if cell.cell_type == "markdown"
        for raw in leftovers(cell.source)
    ]


def compares_too_little(page: Page, nb: nbformat.NotebookNode) -> list[str]:
    """A page of whose cells nbval compares less than the share that makes it a test."""
    cells = code_cells(nb)
    counted = [cell for cell in cells if is_compared(cell)]
    if len(counted) >= COMPARED_SHARE * len(cells):
        return []
    silent = [str(n) for n, cell in enumerate(cells, 1) if not is_compared(cell)]
    return [
        f"{page.name}.ipynb: {len(counted)} of {len(cells)} code cells print text or "
        f"assert, under {COMPARED_SHARE:.0%}; cells {', '.join(silent)} do neither: "
        "print the data of a figure or assert the claim"
    ]


def is_compared(cell: nbformat.NotebookNode) -> bool:
    """Whether a change of result can turn this cell red."""
    if tags(cell) & UNCOMPARED or cell.execution_count is None:
        return False
    return any(map(prints_text, cell.outputs)) or asserts(cell.source)


def prints_text(output: nbformat.NotebookNode) -> bool:
    """Whether an output is text that nbval compares, not only a picture or a widget.

    An explorer counts: its plain text holds the caption of every frame. A widget's own
    plain text is its constructor, which says nothing of what it shows.
    """
    if output.output_type == "error":
        return False
    data = output.get("data", {})
    if WIDGET_VIEW in data:
        return not CONSTRUCTOR.match(data.get("text/plain", "X()"))
    return not any(kind.startswith("image/") for kind in data)


def asserts(source: str) -> bool:
    """Whether the code has an `assert`, or calls a function named so."""
    # Magics are not Python; a set-up cell that has one asserts nothing anyway.
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    called = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    names = (getattr(f, "id", getattr(f, "attr", "")) for f in called)
    return any(isinstance(n, ast.Assert) for n in ast.walk(tree)) or any(
        name.startswith("assert_") for name in names
    )


def report() -> int:
    """Print every problem; returns the exit status."""
    found = problems_of_book()
    for problem in found:
        print(f"- {problem}")
    pages = len(find_pages())
    print(
        json.dumps({"pages": pages, "problems": len(found)})
        if found
        else f"{pages} pages agree with their notebooks"
    )
    return 1 if found else 0
