"""What a page weighs over the wire: everything a reader's browser asks for, gzipped.

Counted from the addresses that a browser asked for while the whole page was read, so
fonts and what scripts load are in it, and a browser's cache makes no difference.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.served import packed

TEXT = 200_000  # bytes: a page of text, its style, its figures
MATHEMATICS = 350_000  # more, with MathJax and its fonts
EXPLORERS = 1_200_000  # in all, with the widget manager and the frames


def parts(requests: set[str], base: str, html: Path) -> dict[str, int]:
    """Bytes of each file of the site that was asked for, the heaviest first."""
    asked = (unquote(urlsplit(url).path) for url in requests if url.startswith(base))
    start = unquote(urlsplit(base).path)
    names = {path.removeprefix(start) for path in asked}
    sizes = {name: len(packed(html / name)) for name in names}
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def limit(content: str) -> int:
    """Bytes that a page may weigh, by what is on it."""
    if "widget-view+json" in content:
        return EXPLORERS
    return TEXT + (MATHEMATICS if 'class="math' in content else 0)


def overweight(content: str, requests: set[str], base: str, html: Path) -> str:
    """Say what is too heavy; empty for a light page."""
    sizes = parts(requests, base, html)
    total, most = sum(sizes.values()), limit(content)
    if total <= most:
        return ""
    heaviest = ", ".join(f"{name} {size:,}" for name, size in list(sizes.items())[:6])
    return f"{total:,} bytes, limit {most:,}; the heaviest parts: {heaviest}"
