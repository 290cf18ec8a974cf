"""Author–year labels and links of the works in book/references.bib.

The labels come from the very templates that sphinxcontrib-bibtex renders the pages
with, so a notebook and its page name a work alike.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from pybtex.backends.plaintext import Backend as PlainText
from pybtex.database import Entry, parse_file
from pybtex.richtext import BaseText, Text
from sphinxcontrib.bibtex.style.referencing import PersonStyle
from sphinxcontrib.bibtex.style.template import year as year_template


@dataclass(frozen=True)
class Citation:
    """A work as the text names it; `url` is None if the entry gives no link."""

    author: str
    year: str
    url: str | None


def read_bibliography(path: Path) -> dict[str, Citation]:
    """Return the works of a BibTeX file by key; none if there is no such file.

    Example:
        >>> read_bibliography(Path("no-such-file.bib"))
        {}
    """
    if not path.is_file():
        return {}
    entries = parse_file(str(path), bib_format="bibtex").entries
    return {key: _citation(entry) for key, entry in entries.items()}


def _citation(entry: Entry) -> Citation:
    style = PersonStyle()
    data = {"entry": entry, "style": SimpleNamespace(person=style)}
    author = style.author_or_editor_or_title(full=False).format_data(data)
    year = year_template.format_data(data)
    return Citation(_plain(author), _plain(year), _link(entry))


def _plain(text: BaseText | str) -> str:
    # As plain text, so that the ties between the parts of a name are plain spaces.
    return Text(text).render(PlainText())


def _link(entry: Entry) -> str | None:
    fields = entry.fields
    if "url" in fields:
        return fields["url"]
    if "doi" in fields:
        return "https://doi.org/" + fields["doi"].removeprefix("https://doi.org/")
    if "eprint" in fields:
        return f"https://arxiv.org/abs/{fields['eprint']}"
    return None
