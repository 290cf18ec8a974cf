"""The book on paper: a sample of pages, printed and bound as `make pdf` binds all.

Text is compared without white space, since lines are broken anew on paper.
"""

import re
import unicodedata

import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader

from book.pdf.__main__ import make
from book.pdf.contents import Part, parts
from book.pdf.printing import OVERFLOW, PrintError, press, print_page, split

CHAPTER, EXERCISE = "chapters/02_newton_schulz", "exercises/01_embedding_on_muon"
GLOSSARY = "book/glossary"
SAMPLE = [Part("Chapters", (CHAPTER,)), Part("Around it", (EXERCISE, GLOSSARY))]


def squeezed(text):
    """Without white space, and without the ligatures that a font has for fi."""
    return "".join(unicodedata.normalize("NFKC", text).split())


@pytest.fixture(scope="module")
def bound(html, browser, tmp_path_factory):
    """The sample's file, and the volume that it was written from."""
    out = tmp_path_factory.mktemp("pdf") / "sample.pdf"
    volume = make(SAMPLE, out, html, browser)
    return PdfReader(out), volume


@pytest.fixture(scope="module")
def printed(bound):
    """What each sheet says."""
    return [squeezed(sheet.extract_text()) for sheet in bound[0].pages]


def article(html, name):
    text = (html / f"{name}.html").read_text("utf-8")
    return BeautifulSoup(text, "html.parser").article


def outline(entries):
    """The bookmarks as (title, [below])."""
    found = []
    for entry in entries:
        if isinstance(entry, list):
            found[-1][1].extend(outline(entry))
        else:
            found.append((entry, []))
    return found


@pytest.mark.browser
def test_every_line_of_code_is_on_paper(html, printed):
    whole = "".join(printed)
    lines = [
        line
        for name in (CHAPTER, EXERCISE)
        for block in article(html, name).select("pre")
        for line in block.get_text().splitlines()
    ]
    assert max(map(len, lines)) > 75
    assert [line for line in lines if squeezed(line) not in whole] == []


@pytest.mark.browser
def test_bookmarks_lead_to_parts_pages_and_sections(bound, printed):
    reader, _ = bound
    top = outline(reader.outline)
    assert [entry.title for entry, _ in top] == ["Chapters", "Around it"]
    ((chapter, sections),) = top[0][1]
    assert chapter.title == "02 Orthogonalizing with Newton–Schulz"
    assert len(sections) == 11
    for entry, _ in [(chapter, []), *sections, *top[1][1]]:
        sheet = reader.get_destination_page_number(entry)
        assert squeezed(entry.title) in printed[sheet]


@pytest.mark.browser
def test_the_contents_name_the_sheet_that_a_page_begins_on(bound, printed):
    _, volume = bound
    for name in (CHAPTER, EXERCISE, GLOSSARY):
        sheet = volume.places[name, ""][0]
        assert re.search(rf"\.?{sheet + 1}(\D|$)", printed[1])
        assert printed[sheet].endswith(str(sheet + 1))
    assert "fromthealgebratomanydevices" in printed[0]


@pytest.mark.browser
def test_links_between_pages_lead_to_sheets(bound, printed):
    reader, volume = bound
    targets = []
    for number, sheet in enumerate(reader.pages):
        for link in (each.get_object() for each in sheet.get("/Annots", ())):
            uri = str(link.get("/A", {}).get("/URI", ""))
            assert not uri.startswith("file:"), uri
            if "/Dest" in link:
                targets.append((number, reader.get_page_number(link["/Dest"][0])))
    glossary = volume.places[GLOSSARY, ""][0]
    assert len({pair for pair in targets if pair[0] < glossary <= pair[1]}) > 5
    sheet, _ = volume.places[GLOSSARY, "term-polar-factor"]
    assert "polarfactor" in printed[sheet]


@pytest.mark.browser
def test_an_explorer_is_a_picture_for_each_setting(printed):
    whole = "".join(printed)
    for step in range(1, 7):
        assert f"Spectrumlog-spaced,Steps{step}" in whole
    assert "Polynomialclassicalcubic" in whole


@pytest.mark.browser
def test_hints_are_open_and_the_window_is_not_printed(printed):
    whole = "".join(printed)
    assert squeezed("Three in each step: one that forms") in whole
    for chrome in ("Searchthisbook", "Previous", "Copyright"):
        assert chrome not in whole
    assert "\\(" not in whole
    assert "\\frac" not in whole


@pytest.mark.browser
def test_what_does_not_fit_the_paper_is_an_error(browser, tmp_path):
    (tmp_path / "wide.html").write_text(
        '<article class="bd-article"><h1 id="wide">Wide</h1>'
        f"<pre>{'x' * 400}</pre></article>"
    )
    with (
        press(browser) as page,
        pytest.raises(PrintError, match=r"wide: wider than the paper"),
    ):
        print_page(page, tmp_path, "wide", set(), tmp_path)
    assert OVERFLOW.exists()


def test_the_book_holds_every_page_and_the_solutions_last(root, html):
    listed = [name for part in parts(root) for name in part.pages]
    built = {
        p.relative_to(html).with_suffix("").as_posix() for p in html.glob("*/*.html")
    }
    assert set(listed) == {name for name in built if not name.startswith("_")}
    assert len(listed) == len(set(listed))
    *_, last = parts(root)
    assert last.caption == "Solutions"
    assert {name.split("/")[0] for name in last.pages} == {"solutions"}
    assert sum(name.startswith("solutions/") for name in listed) == len(last.pages)


def test_a_page_that_is_not_built_is_named(html, tmp_path):
    with pytest.raises(
        PrintError, match=r"99_gone\.html is not built; run `make book`"
    ):
        make([Part("None", ("chapters/99_gone",))], tmp_path / "x.pdf", html)


@pytest.mark.parametrize(
    ("href", "found"),
    [
        ("../book/glossary.html#term-a", ("book/glossary", "term-a")),
        ("02_b.html", ("chapters/02_b", "")),
        ("#here", ("chapters/01_a", "here")),
        ("https://x.org/a.html", (None, "")),
    ],
)
def test_a_link_is_split_into_page_and_id(href, found):
    assert split(href, "chapters/01_a") == found
