"""Which browser the tests, the audit and the screenshots use, and how they wait."""

import os
import shutil

from playwright.sync_api import Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MISSING = "no Chromium here: `apt-get install chromium` (or set CHROMIUM to its path)"
WIDTHS = (1280, 390)
MODES = ("light", "dark")
# Each widget is announced by a script, and loaded when it comes near the viewport.
VIEWS = 'script[type="application/vnd.jupyter.widget-view+json"]'

# Images below the fold are loaded when a reader comes near; in a script, call for them.
LOAD_IMAGES = """() => Promise.all([...document.images].map((image) => {
  image.loading = "eager";
  return image.decode();
}))"""


def find() -> str | None:
    """Return the path of the first Chromium there is; CHROMIUM names another."""
    wanted = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in ([wanted] if wanted else NAMES))
    return next((path for path in found if path), None)


def remember(mode: str) -> str:
    """Return the script that opens a page in a theme, as for a returning reader."""
    store = f"localStorage.mode = localStorage.theme = '{mode}'"
    return f"try {{ {store} }} catch (error) {{}}"


def settle(page: Page) -> None:
    """Wait until mathematics, widgets and images of an open page are drawn."""
    page.evaluate("window.MathJax?.startup?.promise")
    views = page.locator(VIEWS)
    for index in range(views.count()):
        # A script has no place on the page, so scroll to what contains it.
        views.nth(index).evaluate("view => view.parentElement.scrollIntoView()")
        page.wait_for_selector(f".widget-subarea >> nth={index}")
    page.evaluate(LOAD_IMAGES)
