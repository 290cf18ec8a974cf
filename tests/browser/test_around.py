"""The pages around the chapters: status, changes, citation, index, learning paths."""

import importlib
import re
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from pybtex.database import parse_string
from sphinx.errors import ExtensionError

from book.pipeline.pages import find_pages
from book.site.citing import bibtex
from book.site.recorded import in_words, read_time, recorded, short_name, words


@pytest.fixture(scope="module")
def article(html):
    """`article("book/status")` is the body of a built page."""

    def read(name):
        text = (html / f"{name}.html").read_text("utf-8")
        return BeautifulSoup(text, "html.parser").find("article")

    return read


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "5\xa0s"),
        (5, "5\xa0s"),
        (41, "45\xa0s"),
        (60, "60\xa0s"),
        (61, "2\xa0min"),
        (600, "10\xa0min"),
    ],
)
def test_a_time_is_rounded_up_to_what_a_reader_wants(seconds, said):
    assert in_words(seconds) == said


def test_words_are_those_of_the_prose():
    page = (
        "---\nkey: none of these\n---\n\n# One two\n\n```{code-cell}\nx = y\n```\nthree"
    )
    assert words(page) == 3


def test_pages_of_one_chapter_are_told_apart():
    name = short_name("exercises/11_route_a_model", "chapters/05_x")
    assert name == "exercise\N{NO-BREAK SPACE}11"
    assert short_name("chapters/15_a_ranks", "chapters/15_a") == "ranks"
    assert short_name("chapters/errata", "chapters/15_a") == "errata"


def test_a_page_that_is_gone_is_named():
    environment = SimpleNamespace(found_docs={"book/index"})
    with pytest.raises(ExtensionError, match="'chapters/99' is no page; name one of"):
        read_time(environment, ["chapters/99"])


def test_the_status_page_shows_every_recorded_time(root, article):
    page = article("book/status")
    rows = [
        [cell.get_text(" ", strip=True) for cell in row.find_all("td")]
        for row in page.select("table.run-times tbody tr, table tbody tr")
    ]
    shown = {(row[1], row[2]) for row in rows}
    known = {page.name for page in find_pages(root)}
    (found,) = recorded(root)
    assert set(found["notebooks"]) <= known, "a notebook is gone; record again"
    for times in found["notebooks"].values():
        keys = ("set_up_seconds", "cell_seconds")
        pair = tuple(f"{times[key]}\N{NO-BREAK SPACE}s" for key in keys)
        assert pair in shown
    assert found["hardware"]["processor"] in page.get_text()
    assert f"torch {found['versions']['torch']}" in page.get_text()


def test_the_front_page_says_how_long_each_chapter_takes(article):
    text = article("book/index").get_text()
    paths, pages = article("book/index").find_all("table")[:2]
    assert len(paths.select("tbody tr")) == 7
    for row in pages.select("tbody tr"):
        times = row.find_all("td")[-1].get_text(strip=True)
        assert re.fullmatch(r"\d+\xa0min · \d+\xa0(min|s)", times)
    assert "hundred words a minute" in text


def test_the_changes_are_those_of_the_changelog(root, article):
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.M)
    shown = [h.get_text() for h in article("book/changes").find_all("h2")]
    assert [h.rstrip("#") for h in shown] == headings
    items = len(re.findall(r"^- ", changelog, re.M))
    assert len(article("book/changes").select("section ul > li")) == items


def test_the_citation_is_an_entry_that_bibtex_reads(root, article):
    block = article("book/cite").select_one("div.highlight-bibtex pre").get_text()
    assert block.strip() == bibtex(root)
    (entry,) = parse_string(block, "bibtex").entries.values()
    cited = (root / "CITATION.cff").read_text("utf-8")
    assert entry.fields["title"].strip("{}") in cited
    assert f"version: {entry.fields['version']}" in cited
    assert f"date-released: {entry.fields['year']}-" in cited
    (author,) = entry.persons["author"]
    assert author.last_names == ["{The stacklm authors}"]


@pytest.mark.parametrize("part", ["config", "optim", "train"])
def test_the_api_page_lists_what_a_package_exports_above_the_texts(part, article):
    """The sidebar names packages only, and a phone shows no sidebar."""
    first = article("book/api").select_one(f'dt[id^="stacklm.{part}."]')
    links = first.find_previous("p").select("a")
    exported = importlib.import_module(f"stacklm.{part}").__all__
    assert [link.get_text() for link in links] == list(exported)
    for link in links:
        assert link["href"] == f"#stacklm.{part}.{link.get_text()}"


def test_the_index_lists_every_term_and_every_name(root, html, article):
    index = article("book/subjects")
    linked = {link["href"] for link in index.select("a.reference")}
    terms = BeautifulSoup((html / "book/glossary.html").read_text(), "html.parser")
    anchors = [dt["id"] for dt in terms.select("dl.glossary dt[id]")]
    assert len(anchors) > 80
    assert {f"glossary.html#{anchor}" for anchor in anchors} <= linked
    assert any(href.startswith("api.html#stacklm.optim.Muon") for href in linked)
    entry = next(
        li for li in index.select("li") if li.get_text().startswith("polar factor")
    )
    uses = {a["href"].split("#")[0] for a in entry.select("a")[1:]}
    assert {"../chapters/01_why_muon.html", "../chapters/02_newton_schulz.html"} <= uses
    assert not any("solutions" in use for use in uses)


def test_every_term_is_used_somewhere(article):
    """One that no page uses is no help in the margin, and a dead end in the index."""
    entries = [entry.select("a") for entry in article("book/subjects").select("li")]
    terms = [links for links in entries if links[0]["href"].startswith("glossary")]
    assert len(terms) > 80
    assert [links[0].get_text() for links in terms if len(links) == 1] == []


def test_every_use_in_the_index_is_one(html, article):
    pages, uses = {}, 0
    for entry in article("book/subjects").select("li"):
        term, *places = (link["href"].split("#") for link in entry.select("a"))
        for name, *_ in places:
            path = (html / "book" / name).resolve()
            pages.setdefault(path, path.read_text("utf-8"))
            assert f"glossary.html#{term[1]}" in pages[path], (term, name)
            uses += 1
    assert uses > 150


def test_what_is_returned_is_prose(article):
    """Napoleon would take everything before a colon for a type, and set it apart."""
    terms = [t for t in article("book/api")("dt") if t.text.strip() == "Returns:"]
    assert len(terms) > 50
    for term in terms:
        assert not term.find_next_sibling("dd").select("p > em:first-child")


def test_sources_stand_in_the_order_of_names(article):
    """Teams and umlauts as well; pybtex itself puts both after Z."""
    entries = article("book/bibliography").select("div.citation p")
    found = [entry.get_text().replace("\xa0", " ") for entry in entries]
    near = ["Gemma Team", "Alexander Hägele", "Hugging Face", "Kimi Team", "Biao Zhang"]
    places = [[text.startswith(name) for text in found].index(True) for name in near]
    assert places == sorted(places)
