"""The repository's address in the files that must carry it as text.

`_config.yml` holds the address and `book.site.address` decides what the buttons show.
Set-up cells and the files on the repository's front page are read as they are, on
GitHub and in Colab, so they hold it literally; `make address` writes it into all of
them, and a test compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

from book.pipeline.pages import ROOT, PageError, find_pages
from book.site.address import address, written

FORM = re.compile(r"https://[\w.-]+(?:/[\w.-]+){2,}")
FILES = ("_config.yml", "README.md", "CITATION.cff", "CHANGELOG.md", "pyproject.toml")
COLAB = "colab.research.google.com/github/"


def carriers(root: Path = ROOT) -> list[Path]:
    """Files that hold the address."""
    files = [root / name for name in FILES]
    files += [page.source for page in find_pages(root)]
    files += sorted((root / "book").glob("*.md"))
    return [path for path in files if path.exists()]


def rewrite(new: str | None = None, root: Path = ROOT) -> list[Path]:
    """Write an address everywhere.

    Args:
        new: `https://host/owner/name`; None takes the clone's own.
        root: The repository.

    Returns:
        The files that changed.

    Raises:
        PageError: if the address does not read like one.
    """
    old, new = written(root), (new or address(root)).removesuffix(".git").rstrip("/")
    if not FORM.fullmatch(new):
        raise PageError(f"the address must read https://host/owner/name, got {new!r}")
    changed = []
    for path in carriers(root):
        text = path.read_text(encoding="utf-8")
        if (spelled := respelled(text, old, new)) != text:
            path.write_text(spelled, encoding="utf-8")
            changed.append(path)
    return changed


def respelled(text: str, old: str, new: str) -> str:
    """The text with the address replaced, also where Colab spells it its own way."""
    short_old, short_new = (COLAB + "/".join(a.split("/")[3:]) for a in (old, new))
    return text.replace(old, new).replace(short_old, short_new)
