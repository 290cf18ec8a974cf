"""The build's own checks: an image without alt text, a file from another host."""

import json
import re

import pytest

from book.site.check import STATE, faults

GOOD = '<img alt="Loss falls from 5 to 3." src="a.png">'


def state(model, value):
    """A page's widget state with one widget."""
    models = {"1": {"model_name": model, "state": {"value": value}}}
    return f'<script type="{STATE}">{json.dumps({"state": models})}</script>'


@pytest.mark.parametrize(
    "html",
    [
        GOOD,
        state("HTMLModel", GOOD),
        '<a href="https://example.org">elsewhere</a>',
        '<link rel="canonical" href="https://example.org/page.html">',
        '<script src="../_static/book.js"></script>',
    ],
)
def test_sound(html):
    assert faults(html) == []


@pytest.mark.parametrize(
    ("html", "words"),
    [
        ('<img src="a.png">', "no alt text"),
        ('<img alt="" src="a.png">', "no alt text"),
        ('<img alt=" " src="a.png">', "no alt text"),
        # What docutils writes where the author gave none.
        ('<img alt="../_images/a.png" src="../_images/a.png">', "no alt text"),
        ('<img alt="figure.svg" src="../_images/a.svg">', "no alt text"),
        (state("HTMLModel", '<p><img src="data:,x"></p>'), "no alt text"),
        (state("ImageModel", ""), "no alt text"),
        ('<script src="https://cdn.example/x.js"></script>', "another host"),
        ('<script src="//cdn.example/x.js"></script>', "another host"),
        ('<link rel="stylesheet" href="http://cdn.example/x.css">', "another host"),
    ],
)
def test_unsound(html, words):
    found = faults(html)
    assert len(found) == 1
    assert words in found[0]


def test_every_package_is_on_the_api_page(root, html):
    """Each public part of stacklm has its section, and each export an entry."""
    parts = {
        path.stem
        for path in (root / "stacklm").iterdir()
        if not path.name.startswith("_") and (path.is_dir() or path.suffix == ".py")
    }
    text = (root / "book" / "api.md").read_text("utf-8")
    listed = set(re.findall(r"^\.\. exports:: stacklm\.(\w+)$", text, re.MULTILINE))
    assert listed == parts
    page = (html / "book" / "api.html").read_text("utf-8")
    for part in ("config", "model", "optim", "notebook"):
        assert f'id="stacklm.{part}.' in page
