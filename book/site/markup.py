"""After the build: marks that a listener, a keyboard or a page without scripts needs.

The theme and docutils leave out some labels, roles and landmarks, and an explorer is
empty where no script runs. Each rule here mends one of these in the finished page, so
that no template of the theme is copied for the sake of an attribute. What scripts make,
such as a slider, is named in `static/widgets.js`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from bs4 import BeautifulSoup
from sphinx.application import Sphinx

from book.site import cards
from book.site.places import keep_places

# The lines between which a solution's code is left out of its exercise.
MARK = re.compile(r"[ \t]*### (?:BEGIN|END) SOLUTION[^\n]*")
STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
DONE = "data-mended"
# The theme gives this to tables of the text, and a tab stop where one is too wide.
FRAME = "pst-scrollable-table-container"


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    """Mend every page that was written and is not mended yet."""
    if error or app.builder.format != "html":
        return
    texts = cards.definitions(Path(app.outdir))
    for path in sorted(Path(app.outdir).rglob("*.html")):
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        if soup.html is None or soup.html.has_attr(DONE) or soup.main is None:
            continue
        mend(soup)
        cards.add(soup, texts)
        soup.html[DONE] = ""
        path.write_text(str(soup), encoding="utf-8")


def mend(soup: BeautifulSoup) -> None:
    """Apply every rule to one page, in place."""
    name_navigation(soup)
    list_sources(soup)
    wrap_tables(soup)
    show_explorers(soup)
    keep_places(soup)
    hide_marks(soup)


def name_navigation(soup: BeautifulSoup) -> None:
    """Name the sidebar and what folds in it; the search button by what it shows."""
    sidebar = soup.find(id="pst-primary-sidebar")
    if sidebar:
        # Its title and search button would otherwise lie in no landmark.
        sidebar["role"], sidebar["aria-label"] = "complementary", "Book"
    for summary in soup.select("nav li > details > summary"):
        page = summary.find_parent("li").find("a").get_text(strip=True)
        summary["aria-label"] = f"Pages that belong to {page}"
    for button in soup.select("button.search-button__button"):
        # Its words are its name; another one beside them misleads voice control.
        del button["aria-label"]


def list_sources(soup: BeautifulSoup) -> None:
    """Make the bibliography a list of items: docutils gives roles that are no more."""
    for entry in soup.select('[role="doc-biblioentry"]'):
        entry["role"] = "listitem"


def wrap_tables(soup: BeautifulSoup) -> None:
    """Let the index and an explorer's table scroll in a frame as tables of text do."""
    for table in soup.select("article table"):
        if not table.find_parent("table") and not table.find_parent(class_=FRAME):
            table.wrap(soup.new_tag("div", attrs={"class": FRAME}))


def show_explorers(soup: BeautifulSoup) -> None:
    """Give explorers their style, and a first frame where no script runs."""
    state = soup.find("script", type=STATE)
    if state is None:
        return
    root = soup.html.get("data-content_root", "")
    style = {"rel": "stylesheet", "href": f"{root}_static/widgets.css"}
    soup.head.append(soup.new_tag("link", attrs=style))
    models = json.loads(state.string)["state"]
    for view in soup.find_all("script", type=VIEW):
        frame = first_frame(models, json.loads(view.string)["model_id"])
        if frame:
            still = soup.new_tag("noscript")
            still.append(BeautifulSoup(frame, "html.parser"))
            view.insert_after(still)


def hide_marks(soup: BeautifulSoup) -> None:
    """Leave out of code what tells an exercise from its solution."""
    for comment in soup.select(".highlight pre span.c1"):
        if not MARK.fullmatch(comment.get_text()):
            continue
        before, after = comment.previous_sibling, comment.next_sibling
        if isinstance(before, str) and isinstance(after, str):
            before.replace_with(before.rstrip(" \t"))
            after.replace_with(after.removeprefix("\n"))
            comment.decompose()


def first_frame(models: dict, at: str) -> str:
    """Return the HTML that a widget shows at first; empty if it shows none.

    Args:
        models: The page's widget state, by model id.
        at: The id of the widget to begin with, without `IPY_MODEL_`.
    """
    state = models[at]["state"]
    children = state.get("children", [])
    if "selected_index" in state:  # a stack shows one of its children
        children = children[state["selected_index"] :][:1]
    found = (
        first_frame(models, child.removeprefix("IPY_MODEL_")) for child in children
    )
    own = state.get("value", "") if models[at]["model_name"] == "HTMLModel" else ""
    return own or next((html for html in found if html), "")
