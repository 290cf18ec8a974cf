"""After the build: every image has alt text, nothing comes from another host."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
STATE = "application/vnd.jupyter.widget-state+json"
# Docutils falls back to the file's name, which tells a listener nothing.
FILE_NAME = re.compile(r"^\S+\.(png|svg|jpe?g|gif|webp)$", re.IGNORECASE)
REMOTE = re.compile(r"^(https?:)?//", re.IGNORECASE)
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
# These links are told to readers and programs, not loaded by the browser.
TOLD = {"canonical", "author", "license", "index", "next", "prev", "search"}


class Page(HTMLParser):
    """Collects what is wrong with one page, widget frames included."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self._state = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self._state = tag == "script" and values.get("type") == STATE
        if tag == "img":
            self.faults += alt_faults(values)
        loaded = values.get(LOADS.get(tag, ""), "")
        if REMOTE.match(loaded) and not TOLD & set(values.get("rel", "").split()):
            self.faults.append(
                f"<{tag}> loads {loaded} from another host; put the file under "
                "book/vendor or book/site/static"
            )

    def handle_data(self, data: str) -> None:
        if self._state:
            for html in widget_html(json.loads(data)):
                frame = Page()
                frame.feed(html)
                self.faults += frame.faults

    def handle_endtag(self, tag: str) -> None:
        self._state = False


def alt_faults(values: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the alt text of one <img>."""
    alt, source = values.get("alt", "").strip(), values.get("src", "")[:60]
    if not alt or alt == values.get("src") or FILE_NAME.match(alt):
        yield (
            f"image {source} has no alt text; say its finding in words "
            "(`:alt:` of a figure, `mystnb: {image: {alt: …}}` of a cell, "
            "`<img alt=…>` in a widget's frame)"
        )


def widget_html(state: dict) -> Iterator[str]:
    """Yield the HTML of every widget; an Image widget, which cannot have alt, too."""
    for model in state.get("state", {}).values():
        if model["model_name"] in ("HTMLModel", "HTMLMathModel"):
            yield model["state"].get("value", "")
        elif model["model_name"] == "ImageModel":
            yield '<img src="ipywidgets.Image">'


def faults(html: str) -> list[str]:
    """Return what is wrong with a page, each fault once.

    Args:
        html: The whole page.

    Returns:
        Sentences that name the file and the remedy; empty for a sound page.
    """
    page = Page()
    page.feed(html)
    return list(dict.fromkeys(page.faults))


def check_pages(app: Sphinx, error: Exception | None) -> None:
    """Warn about every fault of every page that was written."""
    if error or app.builder.format != "html":
        return
    for page in sorted(app.env.found_docs):
        path = Path(app.builder.get_outfilename(page))
        for fault in faults(path.read_text(encoding="utf-8")):
            LOGGER.warning(fault, location=page)
