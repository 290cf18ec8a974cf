"""What a page's head says and loads."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# doctools defines what inline scripts and the search page call while it is parsed.
FIRST = ("_static/documentation_options.js", "_static/doctools.js")
MAX_DESCRIPTION = 160
# Extensions add their files to every page: (start of a file's name, what is in the body
# of a page that uses it).
USED_WITH = (
    ("clipboard.min.js", 'class="highlight'),
    ("copybutton", 'class="highlight'),
    ("design-tabs.js", "sd-tab-set"),
    ("sphinx-design", 'class="sd-'),
    ("mystnb", 'class="cell'),
    ("api.css", '<dl class="py '),
    ("graphviz", 'class="graphviz'),
    # Sphinx adds it also to a page under which others have mathematics.
    ("startup.js", 'class="math'),
    ("mathjax.js", 'class="math'),
    ("mathematics.css", 'class="math'),
)


def lighten(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Load what the page uses, defer every script that may wait, describe the page."""
    for kind in ("script_files", "css_files"):
        body = context.get("body", "")
        context[kind] = [file for file in context[kind] if is_used(file, body)]
    for script in context.get("script_files", []):
        name = getattr(script, "filename", None)
        if name and name not in FIRST and "async" not in script.attributes:
            script.attributes.setdefault("defer", "defer")
    context["book"], context["site"] = app.config.html_title, app.config.html_baseurl
    context["description"] = describe(doctree) if doctree else context["book"]


def is_used(file: Any, body: str) -> bool:
    """Whether a page with this body uses a script or a style sheet."""
    name = str(getattr(file, "filename", None) or "").rsplit("/", 1)[-1]
    return all(mark in body for start, mark in USED_WITH if name.startswith(start))


def describe(doctree: nodes.document) -> str:
    """Return what a page is about, as plain text.

    That is the description in its front matter (html_meta), or else its first
    paragraph, cut to 160 characters.
    """
    for meta in doctree.findall(nodes.meta):
        if meta.get("name") == "description":
            return meta["content"]
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
