"""Every button leads to a file that the repository has."""

import json
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


@pytest.mark.browser
def test_a_cell_is_copied_as_it_is_tested(root, browser, http_base, visit_in):
    """Each copy button puts the whole source of its cell on the clipboard."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    name = "chapters/09_wsd"
    page = visit_in(context, http_base, f"{name}.html").page
    cells = json.loads((root / f"{name}.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    places = page.locator(".cell_input")
    assert places.count() == len(code) > 10
    for place, source in zip(places.all(), code, strict=True):
        place.hover()
        place.locator("button.copybtn").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.strip() == source.strip()
    context.close()


@pytest.mark.browser
def test_the_print_button_prints(contexts, http_base):
    """It is in the menu of downloads."""
    page = contexts["light"].new_page()
    page.add_init_script("window.print = () => { window.printed = true; }")
    page.goto(http_base + "chapters/09_wsd.html")
    page.locator(".dropdown-download-buttons > button").click()
    page.locator(".btn-download-pdf-button").click()
    assert page.evaluate("window.printed === true")
    page.close()
