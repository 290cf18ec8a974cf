"""What a reader sees is what the committed notebooks hold: outputs, values, numbers."""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from bs4 import BeautifulSoup

FOLDERS = ("chapters", "exercises", "solutions")
# Outputs that a page shows otherwise than by their plain text.
RICH = {
    "text/html",
    "text/markdown",
    "image/png",
    "image/svg+xml",
    "application/papermill.record/text/plain",
    "application/vnd.jupyter.widget-view+json",
}
STRAIGHT = str.maketrans("’‘“”", "''\"\"")
TAG = re.compile(r"\\tag\{(\d+)\}")
GLUED = re.compile(r"\{glue:text\}`[^`]+`")
MARKUP = re.compile(r"[`*$\[\]{}<>|_\\]")
LINK = re.compile(r"\[([^\[\]]+?)(?:, | \()(\d{4}[a-z]?)\)?\]\(")


@dataclass
class Read:
    """One page as its author wrote it, as Colab shows it, and as the browser does."""

    source: str
    cells: list[dict[str, Any]]
    article: BeautifulSoup

    @property
    def markdown(self) -> str:
        texts = (c["source"] for c in self.cells if c["cell_type"] == "markdown")
        return "\n".join("".join(text) for text in texts)

    @property
    def prose(self) -> str:
        """The page's text without its cells."""
        copy = BeautifulSoup(str(self.article), "html.parser")
        for cell in copy.select("div.cell, script"):
            cell.decompose()
        return plain(copy.get_text())


def plain(text: str) -> str:
    """Text without white space and curly quotes, which only one of the two has."""
    return "".join(text.translate(STRAIGHT).split())


def printed(cells):
    """What each output prints, as plain text, in order."""
    for cell in cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain")
            if text and not RICH & set(data):
                yield plain("".join(text))


@pytest.fixture(scope="module")
def pages(root, html):
    """Every page with a notebook."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*.ipynb")):
            built = (html / folder / f"{path.stem}.html").read_text("utf-8")
            article = BeautifulSoup(built, "html.parser").find("article")
            source = path.with_suffix(".md").read_text("utf-8")
            cells = json.loads(path.read_text("utf-8"))["cells"]
            found.append(Read(source, cells, article))
    assert found, "no notebook found"
    return found


def test_every_printed_output_is_on_the_page(pages):
    """The same texts, in the same order, and no others."""
    total = 0
    for page in pages:
        wanted = list(printed(page.cells))
        shown = page.article.select("div.cell_output div.output pre")
        given = [
            plain(pre.get_text()) for pre in shown if not pre.find_parents("table")
        ]
        # The page joins what one cell prints in pieces.
        assert "".join(given) == "".join(wanted)
        total += len(wanted)
    assert total > 20


def test_equations_have_the_same_numbers(pages):
    r"""Each \tag of a notebook is the number beside that equation on the page."""
    total = 0
    for page in pages:
        shown = [re.sub(r"\D", "", n.get_text()) for n in page.article.select(".eqno")]
        assert shown == TAG.findall(page.markdown)
        total += len(shown)
    assert total > 2


def test_glued_values_read_the_same(pages):
    """Around each value the same words, and between them the same value."""
    total = 0
    for page in pages:
        there, here = plain(page.markdown), page.prose
        for line in page.source.splitlines():
            words = GLUED.split(line)
            # Only lines without other markup are spelled alike in both, and a value
            # needs words around it to be found by.
            bare = not MARKUP.search("".join(words))
            if len(words) < 2 or not (bare and words[0].strip() and words[-1].strip()):
                continue
            pattern = r"(\S{1,24}?)".join(re.escape(plain(w)) for w in words)
            shown, held = re.search(pattern, here), re.search(pattern, there)
            assert held, line
            assert shown, line
            assert shown[0] == held[0]
            total += 1
    assert total > 10


def test_citations_read_the_same(pages):
    """Author and year of each work that a notebook names are on its page."""
    total = 0
    for page in pages:
        for author, year in LINK.findall(page.markdown):
            pattern = re.escape(plain(author)) + r"[,(\[]*" + year
            assert re.search(pattern, page.prose), f"{author} {year}"
            total += 1
    assert total > 3
