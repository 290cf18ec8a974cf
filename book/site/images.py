"""Images that keep their place while they load, and load when a reader comes near."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# docutils writes an image's size as a style, which a browser does not use to reserve
# the place of an image that it shrinks to the width of a phone; attributes it does.
SIZE = re.compile(r'(<img [^>]*)style="width: (\d+)px; height: (\d+)px;"')


def load_late(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Mark every image but a page's first, which may be in view at once."""
    for image in list(doctree.findall(nodes.image))[1:]:
        image["loading"] = "lazy"


def keep_place(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Give every image of known size its width and height as attributes."""
    if "body" in context:
        context["body"] = SIZE.sub(r'\1width="\2" height="\3"', context["body"])
