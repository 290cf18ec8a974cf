"""What a page's head says and loads."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# doctools defines what inline scripts and the search page call while it is parsed.
FIRST = ("_static/documentation_options.js", "_static/doctools.js")
MAX_DESCRIPTION = 160


def lighten(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Defer every script that may wait, and describe the page."""
    for script in context.get("script_files", []):
        name = getattr(script, "filename", None)
        if name and name not in FIRST and "async" not in script.attributes:
            script.attributes.setdefault("defer", "defer")
    context["description"] = describe(doctree) if doctree else ""


def describe(doctree: nodes.document) -> str:
    """Return the page's first paragraph as plain text of at most 160 characters.

    A description given in the page's own front matter (html_meta) is left alone.
    """
    for meta in doctree.findall(nodes.meta):
        if meta.get("name") == "description":
            return ""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if isinstance(paragraph.parent, nodes.section) and text:
            return shorten(text)
    return ""


def shorten(text: str) -> str:
    """Cut at a word's end, with an ellipsis where something was cut."""
    if len(text) <= MAX_DESCRIPTION:
        return text
    return text[: MAX_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"
