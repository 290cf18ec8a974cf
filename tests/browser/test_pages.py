"""Every page at both widths in both themes, as a reader's browser shows it."""

import pytest

from tests.browser.weight import overweight

WIDTHS = (1280, 390)
# Each page is opened twice, which covers both themes and both ways to read.
READERS = [("http", "light"), ("file", "dark")]

# What sticks out of the window although nothing around it scrolls.
CLIPPED = """() => {
  const scrolls = (element) => {
    for (let e = element; e && e.tagName !== "ARTICLE"; e = e.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true;
    }
    return false;
  };
  return [...document.querySelectorAll("article *, footer *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
    .filter((e) => !scrolls(e) && !e.closest("mjx-assistive-mml"))
    .map((e) => `${e.tagName} ${e.className}: ${e.textContent.trim().slice(0, 60)}`);
}"""

# Images with a background or a filter of the theme: a pale box in the dark.
BOXED = """() => [...document.querySelectorAll(
    "article img, .widget-subarea, .cell_output .text_html")]
  .filter((e) => {
    const style = getComputedStyle(e);
    return style.backgroundColor !== "rgba(0, 0, 0, 0)"
      || !/^(none|brightness.*)$/.test(style.filter);
  }).map((e) => e.alt || e.className)"""

UNTYPESET = """() => [...document.querySelectorAll(".math")]
  .filter((e) => !e.querySelector("mjx-container") || e.querySelector("mjx-merror"))
  .map((e) => e.textContent.trim().slice(0, 80))"""

UNNAMED = """() => [...document.querySelectorAll("img")]
  .filter((e) => !e.alt.trim()).map((e) => e.src.slice(0, 80))"""

STRETCHED = """() => [...document.querySelectorAll("article img")]
  .filter((e) => e.offsetParent && e.naturalWidth)
  .filter((e) => {
    const shown = e.clientWidth / e.clientHeight;
    return Math.abs(shown / (e.naturalWidth / e.naturalHeight) - 1) > 0.02;
  }).map((e) => e.alt)"""

NARROW = """() => [...document.querySelectorAll("aside.margin, div.margin")]
  .filter((e) => e.offsetWidth < 0.8 * e.closest("article").clientWidth)
  .map((e) => e.textContent.trim().slice(0, 60))"""


@pytest.mark.browser
@pytest.mark.parametrize(("base", "mode"), READERS, indirect=["base"])
def test_page_is_sound(visit, html, base, page_name, mode):
    """No error, no other host, light, a heading, alt texts, mathematics, no cuts."""
    seen = visit(base, page_name, mode)
    page = seen.page
    assert page.evaluate("document.documentElement.dataset.theme") == mode
    assert overweight(page.content(), seen.requests, base, html) == ""
    assert page.locator("h1:visible").count() == 1
    assert page.evaluate(UNNAMED) == [], "images without alt text"
    assert page.evaluate(UNTYPESET) == [], "mathematics that is not typeset"
    assert page.evaluate(BOXED) == [], "images in a box, which one theme shows pale"
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        size = page.evaluate("document.documentElement.scrollWidth")
        assert size <= width, f"the page scrolls sideways at {width} px"
        assert page.evaluate(CLIPPED) == [], f"content is cut off at {width} px"
        assert page.evaluate(STRETCHED) == [], f"images are stretched at {width} px"
    assert page.evaluate(NARROW) == [], "margin content is squeezed on a phone"
    assert seen.problems == []


@pytest.mark.browser
def test_front_door(contexts, base):
    """index.html leads to the front page."""
    page = contexts["light"].new_page()
    page.goto(base + "index.html")
    page.wait_for_url("**/book/index.html")
    assert page.locator("h1:visible").count() == 1
    page.close()


@pytest.mark.browser
def test_a_first_visit_and_the_theme_button(browser, http_base, visit_in):
    """Nothing is stored yet: no error, and the button goes through the themes."""
    context = browser.new_context()
    seen = visit_in(context, http_base, "book/index.html")
    themes = set()
    for _ in range(3):
        seen.page.locator("button.theme-switch-button:visible").first.click()
        themes.add(seen.page.evaluate("document.documentElement.dataset.theme"))
    assert themes == {"light", "dark"}
    assert seen.problems == []
    context.close()


@pytest.mark.browser
def test_search_finds_a_word(visit, base):
    """A word of a page's title finds that page, without a kernel or a server."""
    seen = visit(base, "search.html?q=orthogonalizing")
    seen.page.wait_for_selector("#search-results li a")
    found = seen.page.locator("#search-results li a").all_text_contents()
    assert any("rthogonaliz" in title for title in found), found
    assert seen.problems == []
