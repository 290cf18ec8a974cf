"""A tiny book in a temporary folder: one chapter page, no executed notebook yet."""

import pytest

from book.pipeline.pages import Page

HEADER = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""


@pytest.fixture
def make_page(tmp_path):
    """Write `chapters/01_x.md` with a body and return it as a page."""

    def write(body: str, name: str = "chapters/01_x", header: str = HEADER) -> Page:
        path = tmp_path / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header + body, encoding="utf-8")
        return Page(path, tmp_path)

    return write
