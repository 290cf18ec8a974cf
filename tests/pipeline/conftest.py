"""A tiny book in a temporary folder: one chapter page, no executed notebook yet."""

from functools import partial

import pytest

from book.pipeline.pages import Page

HEADER = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""


def write_page(root, body: str, name="chapters/01_x", header=HEADER) -> Page:
    """Write a page under `root`."""
    path = root / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + body, encoding="utf-8")
    return Page(path, root)


@pytest.fixture
def make_page(tmp_path):
    """Write `chapters/01_x.md` with a body and return it as a page."""
    return partial(write_page, tmp_path)


@pytest.fixture(scope="module")
def make_shared_page(tmp_path_factory):
    """The same, once for all tests of a file."""
    return partial(write_page, tmp_path_factory.mktemp("shared"))
