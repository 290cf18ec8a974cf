"""Print the built pages into one PDF.

    python -m book.pdf [--out FILE] [PAGE ...]

Without names, every page of the contents; the file is _build/book.pdf.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import yaml
from playwright.sync_api import Browser, Page

from book.pdf.binding import Volume
from book.pdf.contents import ROOT, Part, parts
from book.pdf.front import front, numbers
from book.pdf.printing import (
    Printed,
    PrintError,
    press,
    print_page,
    to_pdf,
    wanted_anchors,
)

HTML = ROOT / "_build" / "html"
OUT = ROOT / "_build" / "book.pdf"
LIMIT_BYTES = 15_000_000


def make(
    chosen: list[Part],
    out: Path = OUT,
    html: Path = HTML,
    browser: Browser | None = None,
    say=lambda line: None,
) -> Volume:
    """Print and bind.

    Args:
        chosen: What to print, in order.
        out: The file to write.
        html: The folder of the built pages.
        browser: A running one; None starts one.
        say: Told what is printed now.

    Returns:
        The bound volume.

    Raises:
        PrintError: if there is no Chromium, a page is not built or cannot be drawn.
    """
    names = [name for part in chosen for name in part.pages]
    wanted = wanted_anchors(html, names)
    with tempfile.TemporaryDirectory() as scratch, press(browser) as page:
        folder, printed = Path(scratch), {}
        for name in names:
            say(name)
            printed[name] = print_page(page, html, name, wanted[name], folder)
        volume = Volume(html)
        volume.add("", print_front(page, chosen, printed, html, folder))
        for name in names:
            volume.add(name, printed[name].pdf)
        titles = [printed[o].title if o else "Contents" for o in volume.owners]
        volume.stamp(print_html(page, numbers(titles), folder / "numbers.pdf"))
    volume.relink()
    volume.bookmark(chosen, printed)
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    volume.write(out, config["title"], config["author"])
    return volume


def print_html(page: Page, text: str, pdf: Path) -> Path:
    """Print HTML of our own."""
    source = pdf.with_suffix(".html")
    source.write_text(text, encoding="utf-8")
    page.goto(source.as_uri(), wait_until="load")
    to_pdf(page, pdf)
    return pdf


def print_front(
    page: Page,
    chosen: list[Part],
    printed: dict[str, Printed],
    html: Path,
    folder: Path,
) -> Path:
    """Print cover and contents; twice, since their own length moves the numbers."""
    length = 0
    while True:
        volume, at = Volume(html), {}
        for name, each in printed.items():
            at[name] = length + len(volume.owners) + 1
            volume.add(name, each.pdf)
        path = print_html(page, front(chosen, at, printed, html), folder / "front.pdf")
        alone = Volume(html)
        alone.add("", path)
        if len(alone.owners) == length:
            return path
        length = len(alone.owners)


def main(arguments: list[str] | None = None) -> int:
    """Print what is asked for; return the exit status."""
    parser = argparse.ArgumentParser("python -m book.pdf", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--out", type=Path, default=OUT)
    opts = parser.parse_args(arguments)
    chosen = parts()
    if opts.pages:
        chosen = [Part("Pages", tuple(opts.pages))]
    try:
        volume = make(chosen, opts.out, say=lambda name: print(name, flush=True))
    except PrintError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    size = opts.out.stat().st_size
    print(f"{opts.out}: {len(volume.owners)} pages, {size / 1e6:.1f} MB")
    if size > LIMIT_BYTES:
        print(f"error: that is over {LIMIT_BYTES / 1e6:.0f} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
