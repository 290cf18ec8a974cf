"""`{how-to-cite}`: the book's own entry for a bibliography, made from CITATION.cff."""

from __future__ import annotations

from pathlib import Path

import yaml
from docutils import nodes
from pybtex.database import BibliographyData, Entry, Person
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from book.site.address import address

SOURCE = "CITATION.cff"
KEY = "stacklm"


def bibtex(root: str | Path) -> str:
    """Return the BibTeX entry of the book.

    Args:
        root: The folder with CITATION.cff, and the repository that the address is of.
    """
    text = Path(root, SOURCE).read_text(encoding="utf-8")
    cited = yaml.safe_load(text)
    year, month, _ = str(cited["date-released"]).split("-")
    fields = {
        "title": f"{{{cited['title']}}}",
        "year": year,
        "month": str(int(month)),
        "version": str(cited["version"]),
        "url": address(root),
    }
    # Braces keep a group's name from being parted into first and last names.
    people = [Person(last=f"{{{each['name']}}}") for each in cited["authors"]]
    entry = Entry("software", fields, persons={"author": people})
    return BibliographyData({KEY: entry}).to_string("bibtex").strip()


class HowToCite(SphinxDirective):
    """Shows the entry as a block that the copy button copies."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(Path(self.env.srcdir, SOURCE)))
        block = nodes.literal_block("", bibtex(self.env.srcdir), language="bibtex")
        return [block]


def setup(app: Sphinx) -> None:
    """Register the directive; called by the extension's own setup."""
    app.add_directive("how-to-cite", HowToCite)
