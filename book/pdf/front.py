"""Cover, table of contents and page numbers, as HTML that Chromium prints."""

from __future__ import annotations

import html as markup
from pathlib import Path

import yaml

from book.pdf.contents import ROOT, Part
from book.pdf.printing import Printed

STYLE = """
@page { size: A4; margin: 17mm 17mm 20mm; }
body { font: 11pt/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; margin: 0; }
.cover { break-after: page; padding-top: 70mm; text-align: center; }
.cover h1 { font-size: 26pt; font-weight: 500; line-height: 1.25; margin: 0 0 8mm; }
.cover .small { color: #555; margin-top: 80mm; font-size: 10pt; }
h2 { font-size: 17pt; font-weight: 500; margin: 0 0 4mm; }
h3 { font-size: 11pt; margin: 5mm 0 1mm; break-after: avoid; }
a { display: flex; color: inherit; text-decoration: none; gap: 2mm; }
a span:nth-child(2) { flex: 1; border-bottom: 1px dotted #999; margin-bottom: 1.5mm; }
"""
NUMBERS = """
@page { size: A4; margin: 0; }
body { margin: 0; font: 8.5pt system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
div { height: 296mm; position: relative; break-after: page; color: #555; }
span { position: absolute; bottom: 10mm; left: 17mm; }
span + span { left: auto; right: 17mm; }
"""


def front(
    parts: list[Part], at: dict[str, int], printed: dict[str, Printed], html: Path
):
    """Return the HTML of the cover and the table of contents.

    Args:
        parts: What the contents list, in order.
        at: {page: the number of its first sheet}.
        printed: {page: what was printed of it}.
        html: The folder of the built pages; links into it are made inner ones.
    """
    lines = []
    for part in parts:
        lines.append(f"<h3>{markup.escape(part.caption)}</h3>")
        for name in part.pages:
            title = markup.escape(printed[name].title)
            href = (html / f"{name}.html").as_uri()
            number = f"<span>{at[name]}</span>"
            lines.append(
                f'<a href="{href}"><span>{title}</span><span></span>{number}</a>'
            )
    return document(STYLE, f"{cover()}<h2>Contents</h2>{''.join(lines)}")


def cover(root: Path = ROOT) -> str:
    """The first sheet: title, authors, version and licences, from CITATION.cff."""
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    title, _, subtitle = cited["title"].partition(": ")
    authors = ", ".join(author["name"] for author in cited["authors"])
    text = map(markup.escape, (title, subtitle, authors))
    small = (
        f"Version {cited['version']}. Code: MIT licence. Text and figures: CC BY 4.0."
    )
    return '<div class="cover"><h1>{}</h1><p>{}</p><p>{}</p>'.format(*text) + (
        f'<p class="small">{markup.escape(small)}</p></div>'
    )


def numbers(titles: list[str]) -> str:
    """Sheets that hold nothing but a title and their number; the first has none."""
    sheets = "".join(
        f"<div><span>{markup.escape(title)}</span><span>{number}</span></div>"
        if number > 1
        else "<div></div>"
        for number, title in enumerate(titles, 1)
    )
    return document(NUMBERS, sheets)


def document(style: str, body: str) -> str:
    """A page of HTML with a style sheet."""
    head = f'<meta charset="utf-8"><style>{style}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'
    )
