"""The picture that other sites show beside a link to the book.

`python -m book.site.card` draws it again, after the title in `_config.yml` has changed.
The line is a Warmup–Stable–Decay schedule.
"""

import html
import sys
from pathlib import Path

import yaml
from playwright.sync_api import sync_playwright

from book.site import chromium

ROOT = Path(__file__).resolve().parents[2]
CARD = ROOT / "book" / "site" / "static" / "card.png"
SIZE = {"width": 1200, "height": 630}  # px, what the sites that show it ask for
PAGE = """<meta charset="utf-8"><style>
  body {{ margin: 0; background: #14181e; color: #f3f4f5; font-family: sans-serif; }}
  h1 {{ margin: 72px 72px 24px; font-size: 68px; line-height: 1.15;
       text-wrap: balance; }}
  p {{ margin: 0 72px; font-size: 34px; color: #b4bac2; }}
  svg {{ position: absolute; left: 72px; bottom: 64px; }}
</style><h1>{title}</h1><p>An executable book on training optimizers</p>
<svg width="1056" height="170" fill="none" stroke="#5b9cf2" stroke-width="8">
<path d="M4 164 L110 6 H800 L1052 164" stroke-linejoin="round"/></svg>"""


def main() -> None:
    """Draw the card with the title of the book."""
    path = chromium.find()
    if path is None:
        sys.exit(chromium.MISSING)
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        page = browser.new_page(viewport=SIZE)
        page.set_content(PAGE.format(title=html.escape(config["title"])))
        page.screenshot(path=CARD)
        browser.close()
    print(CARD)


if __name__ == "__main__":
    main()
