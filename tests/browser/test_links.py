"""Every link inside the book leads to a file, and to an anchor in it."""

import pytest

from tests.audit import links
from tests.served import prefix


def test_links_inside_lead_somewhere(html, page_name):
    assert list(links.faults(html / page_name, html)) == []


def test_links_of_404_lead_somewhere_from_any_address(html):
    """It is not among the pages of a folder, but the audit reads it too."""
    page = html / links.ANYWHERE
    assert page in links.pages(html)
    assert list(links.faults(page, html)) == []


def test_a_broken_link_of_404_is_named(tmp_path):
    page = tmp_path / links.ANYWHERE
    page.write_text(
        f'<a href="{prefix()}404.html">x</a><a href="{prefix()}gone.html">x</a>'
        '<a href="/elsewhere.html">x</a>'
    )
    gone, elsewhere = links.faults(page, tmp_path)
    assert "gone.html leads to no file of the book" in gone
    assert "works on one machine only" in elsewhere
    links.read.cache_clear()


@pytest.fixture
def two_pages(tmp_path):
    """`two_pages(target)` writes a page with one link, beside another page."""
    (tmp_path / "other page.html").write_text('<p id="here"></p><a name="old"></a>')

    def write(target):
        path = tmp_path / "page.html"
        path.write_text(f'<p id="own"></p><a href="{target}">x</a>')
        links.read.cache_clear()
        return list(links.faults(path, tmp_path))

    yield write
    links.read.cache_clear()


@pytest.mark.parametrize(
    "target",
    [
        "#own",
        "other%20page.html#here",
        "other page.html#old",
        "https://x.org/a",
        "data:,x",
    ],
)
def test_a_sound_link_is_none_of_the_faults(two_pages, target):
    assert two_pages(target) == []


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("gone.html", "no file of the book"),
        ("../outside.html", "no file of the book"),
        ("#gone", "no anchor of that page"),
        ("other page.html#gone", "no anchor of that page"),
        ("/other page.html", "one machine only"),
        ("file:///other", "one machine only"),
    ],
)
def test_a_broken_link_is_named(two_pages, target, said):
    (fault,) = two_pages(target)
    assert fault.startswith(f"page.html: {target} ")
    assert said in fault


def test_addresses_outside_are_listed_once_with_their_pages(tmp_path):
    for name in ("a.html", "b.html"):
        (tmp_path / name).write_text('<a href="https://x.org/">x</a>' * 2)
    assert links.elsewhere(tmp_path) == {"https://x.org/": ["a.html", "b.html"]}
    links.read.cache_clear()


def test_the_books_addresses_outside_are_encrypted(html):
    listed = links.elsewhere(html)
    assert len(listed) > 30
    assert [url for url in listed if not url.startswith("https://")] == []
