"""What is mended in a built page, rule by rule, and the cards of terms and sources."""

import json

import pytest
from bs4 import BeautifulSoup

from book.site import cards, markup


def page(body):
    text = (
        f"<html><head></head><body><main><article>{body}</article></main></body></html>"
    )
    return BeautifulSoup(text, "html.parser")


def mended(body):
    soup = page(body)
    markup.mend(soup)
    return soup


def test_the_sidebar_is_a_landmark():
    soup = mended('<div id="pst-primary-sidebar"></div>')
    assert soup.find(id="pst-primary-sidebar")["role"] == "complementary"


def test_a_fold_of_the_contents_says_whose_pages_it_holds():
    soup = mended(
        "<nav><ul><li><a>Exercise 1</a><details><summary><i></i></summary>"
        "</details></li></ul></nav>"
    )
    assert soup.summary["aria-label"] == "Pages that belong to Exercise 1"


def test_the_search_button_is_called_what_it_shows():
    soup = mended(
        '<button class="search-button__button" aria-label="Search">Search Ctrl+K'
        "</button>"
    )
    assert not soup.button.has_attr("aria-label")


def test_sources_are_items_of_a_list():
    soup = mended('<div role="list"><div role="doc-biblioentry">x</div></div>')
    assert [e["role"] for e in soup.select("[role]")] == ["list", "listitem"]


def test_the_marks_of_a_solution_are_not_shown(html):
    """The lines go whole, and the code between them stays as it is."""
    code = (
        '<div class="highlight"><pre>def f():\n    <span class="c1">### BEGIN SOLUTION'
        '</span>\n    <span class="k">return</span> 1\n    <span class="c1">### END '
        'SOLUTION</span>\n\n<span class="c1"># why</span>\n</pre></div>'
    )
    assert mended(code).pre.get_text() == "def f():\n    return 1\n\n# why\n"
    pages = sorted(html.glob("solutions/*.html"))
    assert len(pages) > 5
    for path in pages:
        assert "### BEGIN" not in path.read_text("utf-8")


def test_a_table_scrolls_in_a_frame_of_its_own():
    soup = mended("<table><tr><td><table></table></td></tr></table>")
    markup.wrap_tables(soup)  # a table that the theme has wrapped is left alone
    assert len(soup.select(f".{markup.FRAME}")) == 1
    assert soup.article.find(recursive=False)["class"] == [markup.FRAME]


def explorer(selected):
    """A page whose widget is a box of a slider and a stack of two frames."""
    models = {
        "box": ("VBoxModel", {"children": ["IPY_MODEL_dial", "IPY_MODEL_stack"]}),
        "dial": ("SelectionSliderModel", {"index": selected}),
        "stack": (
            "StackModel",
            {"children": ["IPY_MODEL_a", "IPY_MODEL_b"], "selected_index": selected},
        ),
        "a": ("HTMLModel", {"value": "<p>first &amp; best</p>"}),
        "b": ("HTMLModel", {"value": "<p>second</p>"}),
    }
    state = {k: {"model_name": n, "state": s} for k, (n, s) in models.items()}
    view = json.dumps({"model_id": "box"})
    return (
        f'<script type="{markup.STATE}">{json.dumps({"state": state})}</script>'
        f'<script type="{markup.VIEW}">{view}</script>'
    )


@pytest.mark.parametrize(
    ("selected", "frame"), [(0, "<p>first &amp; best</p>"), (1, "<p>second</p>")]
)
def test_without_scripts_an_explorer_shows_its_first_frame(selected, frame):
    soup = mended(explorer(selected))
    assert soup.noscript.decode_contents() == frame
    assert soup.head.link["href"] == "_static/widgets.css"


TEXTS = {
    "glossary.html#term-rank": "How many <b>directions</b>.",
    "bibliography.html#id1": "A. Author.",
}


def test_a_link_gets_the_card_of_its_term_once():
    soup = page(
        '<a class="internal" href="../book/glossary.html#term-rank" title="t">rank</a>'
        '<a class="internal" href="../book/glossary.html#term-rank">rank</a>'
        '<a class="internal" href="../book/bibliography.html#id1">2024</a>'
        '<a class="internal" href="02.html#term-rank">elsewhere</a>'
    )
    cards.add(soup, TEXTS)
    named = [link.get("aria-describedby") for link in soup.find_all("a")]
    assert named == ["card-1", "card-1", "card-2", None]
    assert not soup.a.has_attr("title")
    shown = soup.select("main > .hover-card[hidden]")
    assert [card["id"] for card in shown] == ["card-1", "card-2"]
    assert shown[0].decode_contents() == TEXTS["glossary.html#term-rank"]


def test_definitions_are_read_without_links(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "glossary.html").write_text(
        '<dl><dt id="term-rank">rank<a class="headerlink">#</a></dt><dd><p>See '
        '<a href="#x">width</a>.</p><p>More.</p></dd></dl>'
    )
    (tmp_path / "book" / "bibliography.html").write_text(
        '<div class="citation" id="id1"><span class="label">[1]</span><p>A. Author. '
        '2024. URL: <a href="https://example.org">https://example.org</a>.</p></div>'
    )
    assert cards.definitions(tmp_path) == {
        "glossary.html#term-rank": "See width.<br/>More.",
        "bibliography.html#id1": "A. Author. 2024.<br/>https://example.org.",
    }


def test_every_link_to_a_term_or_source_has_a_card(html):
    """In the built pages: none is left without, and each card is there."""
    links = 0
    for path in sorted(html.glob("*/*.html")):
        if path.stem in ("glossary", "bibliography"):
            continue
        soup = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        for link in soup.select("article a.internal[href]"):
            target = link["href"].rsplit("/", 1)[-1]
            if target.startswith((cards.GLOSSARY + "term-", cards.BIBLIOGRAPHY + "id")):
                assert soup.find(id=link.get("aria-describedby")), f"{path}: {link}"
                links += 1
    assert links > 100
