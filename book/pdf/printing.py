"""Chromium prints the built pages, one PDF each."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

from book.site import chromium

PREPARE = Path(__file__).with_name("prepare.js")
OVERFLOW = Path(__file__).with_name("overflow.js")
# The width of the paper's text, in pixels, so that nothing is laid out twice.
SIZE = {"width": 665, "height": 1000}
# Mathematics is drawn by a script; on paper a formula that it missed would stay TeX.
DRAWN = r"""() => ![...document.querySelectorAll('article .math')]
    .some((math) => /\\[(\[]/.test(math.textContent))"""


class PrintError(RuntimeError):
    """A page that cannot be printed; the message says what to do."""


@dataclass(frozen=True)
class Printed:
    """One page of the book on paper.

    Args:
        name: Such as ``chapters/02_newton_schulz``.
        pdf: The file.
        headings: (level, id, text) of each heading of the first two levels.
    """

    name: str
    pdf: Path
    headings: tuple[tuple[int, str, str], ...]

    @property
    def title(self) -> str:
        return self.headings[0][2]


@contextmanager
def press(browser: Browser | None = None) -> Iterator[Page]:
    """A browser page to print from.

    Args:
        browser: A running one; None starts one.

    Raises:
        PrintError: if there is no Chromium.
    """
    if browser is not None:
        # A light page whatever the machine prefers, as wide as the paper's text.
        page = browser.new_page(color_scheme="light", viewport=SIZE)
        page.add_init_script("localStorage.mode = localStorage.theme = 'light'")
        yield page
        page.close()
        return
    path = chromium.find()
    if path is None:
        raise PrintError(chromium.MISSING)
    with sync_playwright() as playwright:
        own = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        with press(own) as page:
            yield page
        own.close()


def wanted_anchors(html: Path, names: Iterable[str]) -> dict[str, set[str]]:
    """{page: the ids in it that any of the pages links to}."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for name in found:
        path = html / f"{name}.html"
        if not path.exists():
            raise PrintError(f"{path} is not built; run `make book` first")
        article = BeautifulSoup(path.read_text("utf-8"), "html.parser").article
        for link in article.select("a[href]"):
            target, anchor = split(link["href"], name)
            if anchor and target in found:
                found[target].add(anchor)
    return found


def split(href: str, name: str) -> tuple[str | None, str]:
    """Which page of the book a link on page ``name`` leads to, and to which id.

    Example:
        >>> split("../book/glossary.html#term-rank", "chapters/01_why_muon")
        ('book/glossary', 'term-rank')
    """
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        return None, ""
    if not parts.path:
        return name, unquote(parts.fragment)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), parts.path))
    return unquote(target).removesuffix(".html"), unquote(parts.fragment)


def print_page(page: Page, html: Path, name: str, ids: set[str], folder: Path):
    """Print one built page.

    Args:
        page: From ``press``.
        html: The folder of the built pages.
        name: The page's name.
        ids: What other pages link to in it.
        folder: Where the PDF goes.

    Returns:
        What was printed.

    Raises:
        PrintError: if a formula is still TeX after half a minute, or something is
            wider than the paper.
    """
    page.goto((html / f"{name}.html").as_uri(), wait_until="load")
    page.evaluate("window.MathJax?.startup?.promise")
    try:
        page.wait_for_function(DRAWN, timeout=30_000)
    except TimeoutError:
        raise PrintError(f"{name}: a formula was not drawn in half a minute") from None
    headings = page.evaluate(PREPARE.read_text("utf-8"), sorted(ids))
    page.emulate_media(media="print", color_scheme="light")
    cut = page.evaluate(OVERFLOW.read_text("utf-8"))
    if cut:
        raise PrintError(f"{name}: wider than the paper, mend print.css: {cut}")
    path = folder / f"{name.replace('/', '-')}.pdf"
    to_pdf(page, path)
    return Printed(name, path, tuple(map(tuple, headings)))


def to_pdf(page: Page, path: Path) -> None:
    """Print what the browser page shows, on A4."""
    page.emulate_media(media="print", color_scheme="light")
    page.evaluate("document.fonts.ready")
    page.pdf(path=path, format="A4", print_background=True, prefer_css_page_size=True)
