"""Accessibility of every built page: axe-core in Chromium, both themes, both widths.

`python -m tests.audit.axe [PART OF A NAME]` prints every fault with its page, rule,
place and remedy, and exits with status 1 if there is one. The rules are those of WCAG
2.2 at levels A and AA, and what axe calls best practice.
"""

import sys
from collections.abc import Iterator

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from book.site import chromium
from tests.served import HTML, served

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPTIONS = {
    "runOnly": {"type": "tag", "values": TAGS},
    # Off unless asked for: a name that does not hold the words a button shows.
    "rules": {"label-content-name-mismatch": {"enabled": True}},
    "resultTypes": ["violations"],
}
# reading.js sets the tab stops of what scrolls when the page is at rest.
STOPS_SET = """() => [...document.querySelectorAll(
    "#main-content :is(pre, .pst-scrollable-table-container)")]
  .every((e) => e.scrollWidth <= e.clientWidth || e.tabIndex === 0)"""
# What a reader can unfold is part of the page, and axe passes over what is hidden.
# What is out of view has no layout (book.css), so axe would read no colour there.
UNFOLD = """() => {
  document.querySelectorAll("article details").forEach((e) => { e.open = true; });
  document.querySelectorAll("article :is(section, dl)").forEach((e) => {
    e.style.contentVisibility = "visible";
  });
}"""
AXE = Axe()


def faults(page: Page) -> list[str]:
    """Return what axe-core finds on an open page, in the state that it is in.

    Args:
        page: A page that stands, at the width to be judged.

    Returns:
        One sentence a fault: rule, impact, selector, and where the remedy is told.
    """
    found = AXE.run(page, options=OPTIONS).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}) at {' '.join(map(str, node['target']))}: "
        f"{rule['help']}; {rule['helpUrl']}"
        for rule in found
        for node in rule["nodes"]
    ]


def faults_at(page: Page, width: int) -> list[str]:
    """Return the faults of an open page at a width, with everything unfolded."""
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(UNFOLD)
    chromium.settle(page)
    page.wait_for_function(STOPS_SET)
    return faults(page)


def visit(context: BrowserContext, url: str) -> Iterator[tuple[int, str]]:
    """Open a page and yield (width, fault) at each width."""
    page = context.new_page()
    page.goto(url, wait_until="load")
    for width in chromium.WIDTHS:
        for fault in faults_at(page, width):
            yield width, fault
    page.close()


def context_in(browser: Browser, mode: str) -> BrowserContext:
    """Return a context that opens pages in a theme and without moving colours."""
    # A colour that is halfway through a transition has another contrast.
    context = browser.new_context(reduced_motion="reduce")
    context.add_init_script(chromium.remember(mode))
    return context


def main(part: str = "") -> int:
    """Audit every page whose name has `part` in it; return the exit status."""
    pages = [p for p in sorted(HTML.rglob("*.html")) if p.parent.name[0] != "_"]
    # index.html only sends the reader on to book/index.html.
    names = [p.relative_to(HTML).as_posix() for p in pages if p.parent != HTML]
    names += [p.name for p in pages if p.parent == HTML and p.stem != "index"]
    chosen = [name for name in names if part in name]
    if not chosen:
        sys.exit(f"no built page has {part!r} in its name; run `make book` first")
    path, total = chromium.find(), 0
    if path is None:
        sys.exit(chromium.MISSING)
    # Served, since the page of a wrong address finds its style by the site's address.
    with served() as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        for mode in chromium.MODES:
            for name in chosen:
                context = context_in(browser, mode)
                for width, fault in visit(context, base + name):
                    print(f"{name}, {mode}, {width} px: {fault}")
                    total += 1
                context.close()
        browser.close()
    print(f"axe: {len(chosen)} pages × 2 themes × 2 widths, {total} faults")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
