"""Which pages there are, and their source as notebooks.

A page is a MyST notebook `NN_slug.md`; its executed notebook lies beside it under the
same name. The reader is MyST-NB's own, so what is executed here and what the page
build looks up in the cache are parsed by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import nbformat
from myst_nb.core.read import MystMetadataParsingError, read_myst_markdown_notebook

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("chapters", "exercises", "solutions")
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


class PageError(ValueError):
    """A page that cannot be read or made; the message says what to do."""


@dataclass(frozen=True)
class Page:
    """One MyST notebook of the book."""

    source: Path
    root: Path = ROOT

    @property
    def name(self) -> str:
        """Path under the root without suffix, such as `chapters/02_newton_schulz`."""
        return self.source.relative_to(self.root).with_suffix("").as_posix()

    @property
    def folder(self) -> str:
        return self.name.split("/", 1)[0]

    @property
    def notebook(self) -> Path:
        return self.source.with_suffix(".ipynb")


def find_pages(root: Path = ROOT, folders: tuple[str, ...] = FOLDERS) -> list[Page]:
    """Every page of the book, in a fixed order."""
    found = (p for folder in folders for p in sorted((root / folder).glob("*.md")))
    return [Page(path, root) for path in found]


def read_source(page: Page) -> nbformat.NotebookNode:
    """The page as a notebook without outputs.

    Raises:
        PageError: if the header does not name the book's kernel (the kernel's name and
            display name are part of the cache key, so one spelling serves all pages),
            a cell's options are no YAML, or a cell is neither text nor code.
    """
    try:
        nb = read_myst_markdown_notebook(page.source.read_text(encoding="utf-8"))
    except MystMetadataParsingError as error:
        raise PageError(f"{page.name}.md: {error}; mend that cell's options") from None
    if any(cell.cell_type == "raw" for cell in nb.cells):
        raise PageError(
            f"{page.name}.md has a {{raw-cell}}; write text or code instead"
        )
    if nb.metadata.get("kernelspec") != KERNELSPEC:
        raise PageError(
            f"{page.name}.md: the header's kernelspec must be {KERNELSPEC}, "
            f"got {nb.metadata.get('kernelspec')}; copy the header of another chapter"
        )
    return nb


def read_notebook(page: Page) -> nbformat.NotebookNode:
    """The committed notebook beside the page.

    Raises:
        PageError: if there is none, or it is not valid JSON.
    """
    try:
        text = page.notebook.read_text(encoding="utf-8")
        return nbformat.reads(text, as_version=4)
    except FileNotFoundError:
        raise PageError(
            f"{page.name}.ipynb does not exist; run `make notebooks`"
        ) from None
    except nbformat.reader.NotJSONError:
        raise PageError(
            f"{page.name}.ipynb is not valid JSON; delete it and run `make notebooks`"
        ) from None


def code_cells(nb: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The code cells, in order."""
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def tags(cell: nbformat.NotebookNode) -> set[str]:
    """The tags of a cell."""
    return set(cell.metadata.get("tags", ()))


def same_code(a: nbformat.NotebookNode, b: nbformat.NotebookNode) -> bool:
    """Whether two notebooks run the same cells with the same metadata, in order.

    Stricter than the cache key, which sees code and tags only: captions and alt text
    live in cell metadata too.
    """

    def key(nb):
        return [(cell.source, cell.metadata) for cell in code_cells(nb)]

    return key(a) == key(b)
