"""What a term means and which source is meant, on hover and on focus of its link.

A definition is written into each page that links to it, so it is there offline and from
a file, and `aria-describedby` gives it to a screen reader. `reading.js` shows it.
sphinx-tippy 0.4.3 does this with 46 kB of scripts from another host, and Escape does
not dismiss its cards, as WCAG 2.2 (1.4.13) asks.
"""

from __future__ import annotations

import re
from pathlib import Path

from bs4 import BeautifulSoup, Tag

GLOSSARY, BIBLIOGRAPHY = "glossary.html#", "bibliography.html#"
MATHJAX, FORMULA = re.compile(r"/mathjax/es5/"), 'class="math'


def definitions(folder: Path) -> dict[str, str]:
    """Read what each entry of the built glossary and bibliography says.

    Args:
        folder: The folder of the built pages.

    Returns:
        HTML by target, such as `glossary.html#term-rank`.
    """
    found = {}
    for term in entries(folder / "book" / "glossary.html", 'dt[id^="term-"]'):
        meaning = term.find_next_sibling("dd")
        found[GLOSSARY + term["id"]] = inner(meaning)
    for source in entries(folder / "book" / "bibliography.html", "div.citation[id]"):
        found[BIBLIOGRAPHY + source["id"]] = inner(source)
    return found


def entries(path: Path, selector: str) -> list[Tag]:
    """Return the elements that `selector` finds in a built page; none without one."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return BeautifulSoup(text, "html.parser").select(selector)


def inner(entry: Tag) -> str:
    """Return the words of an entry as HTML without links: a card is not operated."""
    for extra in entry.select("span.label, a.headerlink"):
        extra.decompose()
    for link in entry.find_all("a"):
        link.unwrap()
    paragraphs = [p.decode_contents().strip() for p in entry.find_all("p")]
    return "<br/>".join(paragraphs).replace(" URL: ", "<br/>")


def add(soup: BeautifulSoup, texts: dict[str, str]) -> None:
    """Write the definitions that a page links to at its end, and connect its links.

    A definition with a formula needs MathJax, so a page that loads none goes without.
    """
    wanted = {}
    typesets = soup.find("script", src=MATHJAX) is not None
    for link in soup.select("article a.internal[href]"):
        target = link["href"].rsplit("/", 1)[-1]
        if target in texts and (typesets or FORMULA not in texts[target]):
            wanted.setdefault(target, f"card-{len(wanted) + 1}")
            link["aria-describedby"] = wanted[target]
            # The browser's own tooltip would lie over the card.
            del link["title"]
    for target, name in wanted.items():
        card = soup.new_tag(
            "div",
            attrs={"class": "hover-card", "id": name, "role": "tooltip", "hidden": ""},
        )
        card.append(BeautifulSoup(texts[target], "html.parser"))
        soup.main.append(card)
