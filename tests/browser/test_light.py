"""Pages load what they use: icons, scripts, images, and no more than they may weigh."""

import re

import pytest
from fontTools.ttLib import TTFont
from playwright.sync_api import expect
from sphinx.errors import ExtensionError

from book.site.icons import ICONS, NAMES, SHEET, used_only
from tests.browser.weight import EXPLORERS, MATHEMATICS, TEXT, limit, overweight

ICON = re.compile(r'class="([^"]*\bfa[bs]?(?:-solid|-brands)?\s[^"]*)"')
# Sizes of an icon, not icons.
SIZES = {"solid", "brands", "lg"}
# A script, and what is in a page that needs it.
NEEDED = {
    "copybutton.js": 'class="highlight',
    "mathjax/es5/startup.js": 'class="math',
    "_static/mathjax.js": 'class="math',
    "_static/widgets.js": "widget-view+json",
    "searchtools.js": 'id="search-results"',
}


@pytest.fixture(scope="module")
def texts(html):
    """Every built page's text by its name."""
    pages = (p for p in sorted(html.rglob("*.html")) if "_static" not in p.parts)
    found = {p.relative_to(html).as_posix(): p.read_text("utf-8") for p in pages}
    del found["index.html"]  # only sends the reader on
    return found


def test_every_icon_is_in_the_fonts(texts, html):
    """What pages and scripts show is in the list, the fonts and the style sheet."""
    shown = {
        name
        for text in texts.values()
        for classes in ICON.findall(text)
        for name in re.findall(r"\bfa-([\w-]+)", classes)
    } - SIZES
    assert len(shown) > 10
    assert shown <= NAMES, "add them to ICONS in book/site/icons.py, run `make vendor`"
    sheet = (html / SHEET).read_text("utf-8")
    for font, icons in ICONS.items():
        glyphs = TTFont(html / "_static" / "icons" / f"{font}.woff").getBestCmap()
        assert set(icons.values()) <= set(glyphs), f"run `make vendor` for {font}"
        for name, point in icons.items():
            rule = rf"\.fa-{name}:+before[^{{]*{{content:\"\\{point:x}\"}}"
            assert re.search(rule, sheet), name


def test_style_sheets_name_files_that_exist(html):
    """No font or picture that a style sheet names was removed."""
    seen = 0
    for sheet in html.glob("_static/**/*.css"):
        for name in re.findall(r"url\([\"']?([^)\"']+)", sheet.read_text("utf-8")):
            if not name.startswith(("data:", "#")):
                assert (sheet.parent / name.partition("?")[0]).is_file(), name
                seen += 1
    assert seen >= 2


def test_an_unknown_icon_stops_the_build():
    """The theme may rename an icon; the build then says which."""
    with pytest.raises(ExtensionError, match=r"no rule for .*rocket"):
        used_only('.fa-sun:before{content:"\\f185"}')


@pytest.mark.parametrize(("script", "mark"), NEEDED.items())
def test_scripts_are_where_they_are_used(texts, script, mark):
    """A script is on the pages that need it and on no other."""
    having = {name for name, text in texts.items() if f"{script}" in text}
    needing = {name for name, text in texts.items() if mark in text}
    assert having == needing
    assert having


def test_no_script_holds_up_the_page(texts):
    """All scripts of the site are deferred, but for two that others need at once."""
    early = ("documentation_options.js", "doctools.js")
    tools = ("searchtools.js", "language_data.js", "searchindex.js")
    for name, text in texts.items():
        for tag in re.findall(r"<script[^>]*\ssrc=[^>]*>", text):
            allowed = early + (tools if name == "search.html" else ())
            assert " defer" in tag or any(word in tag for word in allowed), tag


def test_images_keep_their_place(texts):
    """Each figure has its size as attributes, and all but the first load late."""
    seen = 0
    for name, text in texts.items():
        figures = re.findall(r'<img [^>]*src="[^"]*_images/[^>]*>', text)
        for index, tag in enumerate(figures):
            sizes = re.findall(r'\s(?:width|height)="\d+"', tag)
            assert len(sizes) == 2, f"{name}: {tag}"
            assert ('loading="lazy"' in tag) == (index > 0), f"{name}: {tag}"
            seen += 1
    assert seen > 20


@pytest.mark.browser
def test_what_is_out_of_view_is_laid_out_when_it_comes_near(visit, http_base):
    """A link still leads to its place, and paper gets every section at once."""
    page = visit(http_base, "chapters/10_complete_step.html").page
    laid_out = """() => [...document.querySelectorAll("article section section")]
        .map((section) => section.firstElementChild
          .checkVisibility({contentVisibilityAuto: true}))"""
    before = page.evaluate(laid_out)
    assert len(before) > 5
    assert before[0]
    assert not before[-1]
    page.goto(f"{page.url}#summary")
    top = "document.getElementById('summary').getBoundingClientRect().top"
    page.wait_for_function(f"Math.abs({top}) < 200")
    assert page.evaluate(laid_out).count(True) > before.count(True)
    waits = """() => [...document.querySelectorAll("article section section")]
        .filter((e) => getComputedStyle(e).contentVisibility !== "visible").length"""
    assert page.evaluate(waits) == len(before)
    page.emulate_media(media="print")
    assert page.evaluate(waits) == 0


@pytest.mark.browser
def test_no_block_out_of_view_is_asked_how_wide_it_is(contexts, http_base):
    """That would lay out the whole page while a phone's reader waits for its start."""
    page = contexts["light"].new_page()
    page.add_init_script("""
        const width = Object.getOwnPropertyDescriptor(Element.prototype, "scrollWidth");
        window.asked = [];
        Object.defineProperty(Element.prototype, "scrollWidth", {get() {
            const laidOut = this.checkVisibility({contentVisibilityAuto: true});
            window.asked.push([this.localName, laidOut]);
            return width.get.call(this);
        }});
        window.requestIdleCallback = () => 0;  // a page that is never at rest""")
    page.goto(http_base + "book/api.html", wait_until="load")
    page.wait_for_function("asked.length > 0")
    asked = page.evaluate("asked")
    assert ["pre", True] in asked
    assert ["pre", False] not in asked
    page.close()


DRAWN = """[...document.querySelectorAll(".math")]
    .every((formula) => formula.querySelector("mjx-container"))"""
MOVES = """
window.moved = 0;
new PerformanceObserver((list) => {
    for (const { value } of list.getEntries()) moved += value;
}).observe({type: "layout-shift", buffered: true})"""


@pytest.mark.browser
@pytest.mark.parametrize("name", ["exercises/02_rms_and_scale", "chapters/09_wsd"])
def test_lines_stay_where_they_are_while_a_page_is_drawn(browser, http_base, name):
    """On a phone, first visit: neither formulas nor the theme's script move them."""
    context = browser.new_context(viewport={"width": 412, "height": 823})
    page = context.new_page()
    page.add_init_script(MOVES)

    def late(route):  # as over a network
        page.wait_for_timeout(500)
        route.continue_()

    for script in ("**/pydata-sphinx-theme.js", "**/mathjax/es5/core.js"):
        page.route(script, late)
    page.goto(f"{http_base}{name}.html", wait_until="load")
    page.wait_for_function(DRAWN)
    assert page.evaluate("moved") < 0.05  # Lighthouse's full marks: 0.1
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_page_has_the_readers_colours_before_the_theme_starts(
    browser, http_base, mode
):
    context = browser.new_context(color_scheme=mode)
    page = context.new_page()
    page.route("**/pydata-sphinx-theme.js", lambda route: route.abort())
    page.goto(http_base + "book/notation.html", wait_until="load")
    assert page.evaluate("document.documentElement.dataset.theme") == mode
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("lost", ["**/mathjax/es5/core.js", "**/mathjax/**"])
def test_without_mathjax_its_tex_is_read(contexts, http_base, lost):
    """A formula has its room until it is drawn, and its TeX if nothing can draw it."""
    page = contexts["light"].new_page()
    page.route(lost, lambda route: route.abort())
    page.goto(http_base + "book/notation.html", wait_until="load")
    formula = page.locator("article .math").first
    expect(formula).not_to_have_css("color", "rgba(0, 0, 0, 0)")
    assert formula.bounding_box()["width"] > 20
    page.unroute(lost)
    page.reload(wait_until="load")
    expect(formula.locator("mjx-container")).to_be_visible()
    page.close()


def test_limits():
    """By what is on a page."""
    mathematics = '<span class="math notranslate">'
    widget = '<script type="application/vnd.jupyter.widget-view+json">'
    assert limit("<p>text") == TEXT
    assert limit(mathematics) == TEXT + MATHEMATICS
    assert limit(mathematics + widget) == EXPLORERS


def test_a_heavy_page_is_named_with_its_parts(tmp_path):
    """Compressed where hosts compress, each file once, other hosts left out."""
    (tmp_path / "a.js").write_text("x" * 300_000)
    (tmp_path / "b c.png").write_bytes(bytes(199_000))
    base = "http://127.0.0.1:1/"
    asked = {f"{base}a.js", f"{base}a.js?v=1", f"{base}b%20c.png", "data:,x"}
    assert overweight("<p>", asked, base, tmp_path) == ""
    (tmp_path / "d.png").write_bytes(bytes(2_000))
    said = overweight("<p>", {*asked, f"{base}d.png"}, base, tmp_path)
    assert re.match(r"201,\d+ bytes, limit 200,000; .*: b c.png 199,000, d.png", said)
