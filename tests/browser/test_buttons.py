"""Every button leads to a file that the repository has."""

import re
from urllib.parse import urlsplit

import pytest
import yaml

from book.site.address import address

FOLDERS = ("chapters", "exercises", "solutions")
COLAB = re.compile(r'href="(https://colab\.research\.google\.com/[^"]+)"')
EDIT = re.compile(r'href="([^"]+/edit/[^"]+)"')
DOWNLOAD = re.compile(r'href="([^"]*_sources/[^"]+)"')


@pytest.fixture(scope="module")
def branch(root):
    config = yaml.safe_load((root / "_config.yml").read_text("utf-8"))
    return config["repository"]["branch"]


@pytest.fixture(scope="module")
def where(root):
    """The address's owner and name; the buttons exist on GitHub only."""
    parts = urlsplit(address(root))
    if parts.hostname != "github.com":
        pytest.skip(f"{parts.hostname} has no Colab button")
    return parts.path.strip("/")


def sources(root):
    """Pages with a notebook beside them."""
    found = [p for folder in FOLDERS for p in sorted((root / folder).glob("*.ipynb"))]
    return [p.relative_to(root).with_suffix("").as_posix() for p in found]


def test_colab_opens_the_committed_notebook(root, html, where, branch):
    """One Colab button a notebook page, to the .ipynb beside its source."""
    prefix = f"https://colab.research.google.com/github/{where}/blob/{branch}/"
    assert sources(root), "no notebook found"
    for page in sources(root):
        text = (html / f"{page}.html").read_text("utf-8")
        assert set(COLAB.findall(text)) == {f"{prefix}{page}.ipynb"}
        assert (root / f"{page}.ipynb").exists()


def test_edit_leads_to_the_source(root, html, where, branch):
    """The edit button of every page names a file of the repository."""
    seen = 0
    for path in sorted(html.glob("*/*.html")):
        for link in set(EDIT.findall(path.read_text("utf-8"))):
            prefix = f"https://github.com/{where}/edit/{branch}/"
            assert link.startswith(prefix), f"{path.name}: {link}"
            assert (root / link.removeprefix(prefix)).exists(), link
            seen += 1
    assert seen >= len(sources(root))


def test_downloads_are_the_committed_files(root, html):
    """The downloaded notebook is the tested one, not the build's own."""
    for page in sources(root):
        path = html / f"{page}.html"
        links = DOWNLOAD.findall(path.read_text("utf-8"))
        names = {link for link in links if link.endswith(".ipynb")}
        assert len(names) == 1
        given = (path.parent / names.pop()).read_bytes()
        assert given == (root / f"{page}.ipynb").read_bytes()
