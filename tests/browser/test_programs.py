"""What programs read: plain Markdown, llms.txt, a site map, cards, and the page 404."""

import json
import re
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from bs4 import BeautifulSoup

from book.site.address import address, published
from book.site.markdown import markdown
from book.site.programs import at_any_depth, sitemap
from tests.browser.conftest import built_pages

FOLDERS = ("chapters", "exercises", "solutions")
# Pages that Sphinx writes without a source.
MADE = {"search.html"}
LINK = re.compile(r"^- \[.+\]\((?P<link>\S+)\): \S", re.MULTILINE)
# Left in a plain page these would be markup of MyST or HTML.
LEFT = re.compile(r"\{(?:glue|term|doc|ref|cite|eq)[:}`]|</?(?:div|span|p|script)\b")
CODE = re.compile(r"^ *```.*?^ *```$|(`+).+?\1", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(root):
    """Where the pages will be read, with a slash at the end."""
    return published(address(root))


def heads(html):
    """(name, the page's head) of every built page."""
    for name in built_pages():
        text = (html / name).read_text("utf-8").partition("</head>")[0]
        yield name, BeautifulSoup(text, "html.parser")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://github.com/Me/Book", "https://me.github.io/Book/"),
        ("https://github.com/me/me.github.io", "https://me.github.io/"),
        ("https://codeberg.org/me/book", ""),
        ("https://gitlab.com/group/sub/book", ""),
    ],
)
def test_published(url, found):
    """GitHub's address is known; of another host none is invented."""
    assert published(url) == found


def test_every_page_describes_itself(html, site):
    """One description, a title for cards, and the page's own absolute address."""
    for name, head in heads(html):
        found = {
            tag.get("name") or tag.get("property"): tag["content"]
            for tag in head.select("meta[content]")
        }
        assert len(head.select('meta[name="description"]')) == 1, name
        assert len(found["description"]) > 20, name
        assert found["og:description"] == found["description"], name
        assert found["og:title"], name
        assert found.get("og:url", "") == (f"{site}{name}" if site else ""), name
        canonical = [tag["href"] for tag in head.select('link[rel="canonical"]')]
        assert canonical == ([site + name] if site else []), name
        picture = found.get("og:image", "").removeprefix(site)
        assert not site or (html / picture).is_file(), name


def test_site_map_lists_every_page(html, site):
    """Each page that has a source, once, and nothing else."""
    if not site:
        assert not (html / "sitemap.xml").exists()
        return
    found = [e.text for e in ElementTree.parse(html / "sitemap.xml").iter() if e.text]
    wanted = [site + name for name in built_pages() if name not in MADE]
    assert sorted(found) == sorted(wanted)


def test_site_map_escapes():
    assert b"<loc>https://a.b/x&amp;y.html</loc>" in sitemap("https://a.b/", ["x&y"])


def test_llms_txt_leads_to_every_page(root, html, site):
    """The plain page of each entry of the contents, with what it is about."""
    text = (html / "llms.txt").read_text("utf-8")
    assert re.match(r"# .+\n\n> .+\n", text)
    links = [link.removeprefix(site) for link in LINK.findall(text)]
    toc = (root / "_toc.yml").read_text("utf-8")
    pages = re.findall(r"^\s*(?:root|- file): (\S+)$", toc, re.MULTILINE)
    captions = [part["caption"] for part in yaml.safe_load(toc)["parts"]]
    assert re.findall("^## (.+)$", text, re.MULTILINE) == ["Front page", *captions]
    assert links == [f"{page}.md" for page in pages]
    assert all((html / link).is_file() for link in links)


def test_every_page_has_a_plain_one(html):
    """Beside it, named in its head, without markup of MyST or HTML."""
    for name, head in heads(html):
        if name in MADE:
            continue
        [link] = head.select('link[type="text/markdown"]')
        text = (html / name).with_name(link["href"]).read_text("utf-8")
        assert text.startswith("# "), name
        assert not LEFT.findall(CODE.sub("", text)), name


def test_plain_pages_hold_code_outputs_and_links(root, html):
    """Every cell of a notebook, and links that lead to other plain pages."""
    cells = links = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*.ipynb")):
            plain = (html / folder / f"{path.stem}.md").read_text("utf-8")
            bare = "".join(plain.split())
            for cell in json.loads(path.read_text("utf-8"))["cells"]:
                hidden = {"remove-cell", "remove-input"} & set(
                    cell["metadata"].get("tags", [])
                )
                if cell["cell_type"] == "code" and not hidden:
                    assert "".join("".join(cell["source"]).split()) in bare, path.name
                    cells += 1
            for link in re.findall(r"\]\(([^)\s]+\.md)(?:#[^)]*)?\)", plain):
                if not urlsplit(link).scheme:
                    assert (html / folder / link).is_file(), f"{path.name}: {link}"
                    links += 1
    assert cells > 300
    assert links > 100


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ('<h2>A<a class="headerlink" href="#a">#</a></h2>', "## A\n"),
        (
            '<p>at <span class="math notranslate">\\(a_1 * b_1\\)</span>',
            "at $a_1 * b_1$\n",
        ),
        (
            '<div class="math notranslate"><span class="eqno">(2)<a class="headerlink"'
            ' href="#e">#</a></span>\\[a_1\\]</div>',
            "$$\na_1 \\tag{2}\n$$\n",
        ),
        ('<a href="02_x.html#y">x</a>', "[x](02_x.md#y)\n"),
        ('<a href="https://a.b/c.html">x</a>', "[x](https://a.b/c.html)\n"),
        (
            '<div class="highlight-ipython3"><div class="highlight"><pre>a_b = 1\n'
            "</pre></div></div>",
            "```python\na_b = 1\n```\n",
        ),
        ('<script type="x">{"a": 1}</script><p>b</p>', "b\n"),
    ],
)
def test_markdown(body, wanted):
    """Mathematics and code stay as they are; scripts and anchors go."""
    assert markdown(body) == wanted


def test_404_works_at_any_depth(visit_in, contexts, http_base):
    """The host shows it for any address; style, menu and search lead to the book."""
    seen = visit_in(contexts["light"], http_base, "old/deep/page.html")
    page = seen.page
    assert page.locator("h1:visible").inner_text() == "There is no page here"
    found = page.evaluate("getComputedStyle(document.body).fontFamily")
    assert "serif" in found
    style = "[...document.styleSheets].map((sheet) => sheet.cssRules.length)"
    assert min(page.evaluate(style)) > 0
    # The address itself is missing, and that is all that may be.
    others = [problem for problem in seen.problems if "status of 404" not in problem]
    assert others == [f"status 404: {http_base}old/deep/page.html"]
    page.locator("#main-content a", has_text="front page").click()
    page.wait_for_url("**/book/index.html")
    page.go_back()
    page.locator(".bd-sidebar-primary a", has_text="02 Orthogonalizing").click()
    page.wait_for_url("**/chapters/02_newton_schulz.html")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<a href="x.html">', '<a href="/n/x.html">'),
        ('<a href="./">', '<a href="/n/">'),
        ('<a href="#y">', '<a href="#y">'),
        ('<a href="/z">', '<a href="/z">'),
        ('<a href="https://a.b/">', '<a href="https://a.b/">'),
        ('<img src="data:,x">', '<img src="data:,x">'),
    ],
)
def test_404_changes_relative_addresses_only(before, after):
    assert at_any_depth(before, "https://me.github.io/n/") == after
    assert at_any_depth(before, "") == after.replace("/n/", "/")
