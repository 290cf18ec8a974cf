"""Which pages the PDF holds: those of the contents, with all solutions last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = "solutions/"


@dataclass(frozen=True)
class Part:
    """A group of pages.

    Args:
        caption: Its name in the contents.
        pages: Names such as ``chapters/02_newton_schulz``.
    """

    caption: str
    pages: tuple[str, ...]


def parts(root: Path = ROOT) -> list[Part]:
    """Return the parts of ``_toc.yml``, the front page first and the solutions last.

    Example:
        >>> parts()[0].pages
        ('book/index',)
    """
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = [Part("About this book", (toc["root"],))]
    solutions: list[str] = []
    for part in toc["parts"]:
        names = list(named(part["chapters"]))
        solutions += [name for name in names if name.startswith(SOLUTIONS)]
        kept = tuple(name for name in names if not name.startswith(SOLUTIONS))
        found.append(Part(part["caption"], kept))
    return [*found, Part("Solutions", tuple(solutions))]


def named(entries: list[dict]):
    """Yield the files of a list of contents, depth first."""
    for entry in entries:
        if "file" in entry:
            yield entry["file"]
        yield from named(entry.get("sections", []))
