"""Pictures of every built page, for whoever edits the book and wants to look.

`python -m book.site.screenshots [FOLDER] [PART OF A NAME]` writes a PNG of each built
page at laptop and phone width in both themes, by default to _build/screenshots.
"""

import sys
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from book.site import chromium

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"


def take(context: BrowserContext, page_path: Path, picture: Path, width: int) -> None:
    """Write one picture of a whole page."""
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(page_path.as_uri(), wait_until="load")
    chromium.settle(page)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=picture, full_page=True)
    page.close()


def main(folder: str = str(ROOT / "_build" / "screenshots"), part: str = "") -> None:
    """Take all pictures."""
    path = chromium.find()
    if path is None:
        sys.exit(chromium.MISSING)
    if not HTML.exists():
        sys.exit(f"{HTML} is not built; run `make book` first")
    pages = [p for p in sorted(HTML.glob("*/*.html")) if p.parent.name[0] != "_"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        for mode in chromium.MODES:
            context = browser.new_context()
            context.add_init_script(chromium.remember(mode))
            for page in (p for p in pages if part in str(p.relative_to(HTML))):
                name = "-".join(page.relative_to(HTML).with_suffix("").parts)
                for width in chromium.WIDTHS:
                    picture = Path(folder, f"{name}-{width}-{mode}.png")
                    take(context, page, picture, width)
                    print(picture)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
