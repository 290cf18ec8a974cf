"""The book's own Sphinx extension: what the theme leaves open.

- `address`: the repository's address, from one place (buttons follow it);
- `options`: theme options that depend on it, and the notebook that a page offers;
- `exports`: the API page, from what each package exports;
- `recorded`: how long each notebook ran, from book/measured;
- `citing`: how to cite the book, from CITATION.cff;
- `subjects`: the index, from the terms that each page uses;
- `head`: a light page — deferred scripts, a description, nothing that is not used;
- `markup`, `cards`: after the build, labels and roles that a listener needs, and the
  definitions that a link shows on hover;
- `icons`: of the icon fonts and their style sheet, what the pages show;
- `images`: their size and when they are loaded;
- `programs`: plain Markdown of every page, llms.txt, a site map, 404.html;
- `check`: after the build, an image without alt text or a file from another host is a
  warning, and the build treats warnings as errors.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from book.site import (
    check,
    citing,
    exports,
    head,
    icons,
    images,
    markup,
    options,
    programs,
    recorded,
    subjects,
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the parts to Sphinx's events."""
    # Jupyter Book sets this for sphinx_comments, which is not loaded.
    app.add_config_value("comments_config", {}, "html")
    for part in (exports, recorded, citing, subjects):
        part.setup(app)
    app.connect("config-inited", options.follow_address)
    # After the extensions that add scripts to a page (their priority is 500).
    app.connect("html-page-context", head.lighten, priority=900)
    app.connect("doctree-resolved", images.load_late)
    app.connect("html-page-context", images.keep_place)
    app.connect("html-page-context", programs.write_markdown)
    app.connect("html-collect-pages", programs.not_found)
    app.connect("build-finished", options.offer_committed_notebooks)
    app.connect("build-finished", markup.mend_pages)
    app.connect("build-finished", icons.shrink)
    app.connect("build-finished", programs.finish)
    app.connect("build-finished", check.check_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
