"""What follows the repository's address, and what the download button gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

from book.site.address import address, published

BUTTONS = ("use_repository_button", "use_edit_page_button", "use_issues_button")


def follow_address(app: Sphinx, config: Config) -> None:
    """Point the theme's buttons to the address of this clone.

    Colab opens notebooks from GitHub only, and the theme knows how to link to a page's
    source on GitHub and GitLab; elsewhere the buttons would lead nowhere.
    """
    theme = config.html_theme_options
    # The theme's own bar over the page holds a second search button and nothing else.
    theme["navbar_persistent"] = []
    url = address(app.srcdir)
    host = urlsplit(url).hostname
    # Where the pages are read: canonical links, the site map and cards name it.
    config.html_baseurl = published(url)
    if host in ("github.com", "gitlab.com"):
        theme["repository_url"] = url
    else:
        theme["repository_url"] = ""
        theme.update(dict.fromkeys(BUTTONS, False))
    if host != "github.com":
        theme["launch_buttons"] = {}


def offer_committed_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Let a page's download button give the notebook that lies beside the page.

    MyST-NB writes a notebook of its own whose text is still MyST; the committed one is
    translated and its outputs are the ones that the tests compare.
    """
    if error or app.builder.format != "html":
        return
    for page in app.env.found_docs:
        source = Path(app.srcdir, f"{page}.ipynb")
        target = Path(app.outdir, "_sources", f"{page}.ipynb")
        if source.exists() and target.parent.exists():
            shutil.copyfile(source, target)
