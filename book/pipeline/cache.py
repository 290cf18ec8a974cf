"""Committed outputs -> the page build: fill jupyter-cache from the notebooks.

The cache is made anew each time. It knows nothing of `stacklm`, so an entry of an
earlier build could be stale; the committed notebooks are what the tests verify.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from jupyter_cache import get_cache

from book.pipeline.make import usable_notebook
from book.pipeline.pages import ROOT, Page, PageError, find_pages, read_source

CACHE = Path("_build/.jupyter_cache")


def fill(root: Path = ROOT) -> list[Page]:
    """Fill the cache; return the pages that the build must execute.

    A page whose code was edited since its notebook was made is not in the cache, so the
    build runs it and an author sees the edit at once. Nor is one whose notebook was
    edited by hand: what a reader sees came from a run.
    """
    shutil.rmtree(root / CACHE, ignore_errors=True)
    cache = get_cache(root / CACHE)
    edited = []
    for page in find_pages(root):
        if not up_to_date(page):
            edited.append(page)
            continue
        cache.cache_notebook_file(page.notebook, check_validity=False, overwrite=True)
    cache.db.dispose()  # or Python 3.13 warns of a connection that nobody closed
    return edited


def up_to_date(page: Page) -> bool:
    """Whether the notebook beside the page holds what a run of its code gave."""
    try:
        return usable_notebook(page, read_source(page)) is not None
    except PageError:
        return False
