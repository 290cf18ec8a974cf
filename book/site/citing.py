"""`{how-to-cite}`, the book's own entry, made from CITATION.cff; the order of all."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import yaml
from docutils import nodes
from pybtex.database import BibliographyData, Entry, Person
from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style
from pybtex.style.sorting.author_year_title import SortingStyle
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


class ByName(SortingStyle):
    """Sorts as a reader looks: by pybtex, teams in braces and umlauts come after Z."""

    def persons_key(self, persons: list[Person]) -> str:
        """Return the names without braces and accents."""
        letters = unicodedata.normalize("NFKD", super().persons_key(persons))
        return "".join(
            c for c in letters if not unicodedata.combining(c) and c not in "{}"
        )


class PlainByName(Style):
    """The plain style of BibTeX, sorted by name."""

    default_sorting_style = "by_name"


def setup(app: Sphinx) -> None:
    """Register the directive; called by the extension's own setup."""
    register_plugin("pybtex.style.sorting", "by_name", ByName)
    register_plugin("pybtex.style.formatting", "plain_by_name", PlainByName)
    app.add_directive("how-to-cite", HowToCite)
