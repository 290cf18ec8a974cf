"""A reader without a pointer, without scripts, without sight, or without motion."""

import re

import pytest
from playwright.sync_api import expect

from book.site import chromium
from stacklm.notebook.figures import style

PAGE = "chapters/02_newton_schulz.html"
# What stands in the order of tabs and is in sight.
STOPS = """() => [...document.querySelectorAll(
    "article :is(a[href], button, select, summary, [tabindex='0'])")]
  .filter((e) => e.checkVisibility({visibilityProperty: true}))
  .map((e) => e.outerHTML.slice(0, 120))"""
# The element with the focus: itself, whether it is marked, whether it is in the window.
FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const box = e.getBoundingClientRect();
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  return {
    html: e.outerHTML.slice(0, 120), end: e === document.body,
    marked: outlined || style.boxShadow !== "none",
    inside: box.bottom > 0 && box.top < innerHeight && box.width > 0,
    article: Boolean(e.closest("article")),
  };
}"""
MOVING = """() => [...document.querySelectorAll("*")].filter((e) => {
  const style = getComputedStyle(e);
  const lasts = (list) => list.split(",").some((time) => parseFloat(time) > 0);
  return lasts(style.transitionDuration) && style.transitionProperty !== "none"
    || style.animationName !== "none" || style.scrollBehavior === "smooth";
}).map((e) => e.outerHTML.slice(0, 80))"""
# What scrolls without being a stop, or is one without need.
STOPLESS = """() => [...document.querySelectorAll("article :is(pre, mjx-container)")]
  .filter((e) => (e.localName === "pre" || e.parentElement.matches("div.math"))
    && (e.scrollWidth > e.clientWidth) !== (e.tabIndex === 0))
  .map((e) => e.outerHTML.slice(0, 120))"""
# Whether a section that is laid out late paints nothing beside itself.
CUT = """image => {
  const style = getComputedStyle(image.closest("section"));
  return style.contentVisibility === "auto" && style.overflowClipMargin !== "16px";
}"""
# The narrowest box around an image that cuts what is outside.
BOX = """image => {
  let [left, right] = [0, innerWidth];
  for (let e = image.parentElement; !e.matches("section"); e = e.parentElement) {
    if (getComputedStyle(e).overflowX === "visible") continue;
    left = Math.max(left, e.getBoundingClientRect().left);
    right = Math.min(right, e.getBoundingClientRect().right);
  }
  return {left, right};
}"""
UNREADABLE = """() => [...document.querySelectorAll("mjx-container")].filter((e) => {
  const spoken = e.querySelector("mjx-assistive-mml > math");
  const drawn = e.querySelector("mjx-math");
  return !spoken || !spoken.textContent.trim()
    || getComputedStyle(spoken.parentElement).display === "none"
    || drawn.getAttribute("aria-hidden") !== "true";
}).length"""


@pytest.mark.browser
def test_the_first_tab_skips_to_the_text(contexts, base):
    """The skip link comes first, is seen, and leads into the text."""
    page = contexts["light"].new_page()
    page.goto(base + PAGE)
    page.keyboard.press("Tab")
    skip = page.locator("a[href='#main-content']")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    page.close()


@pytest.mark.browser
def test_tab_reaches_everything(visit, http_base):
    """From the start of the text to its end: each stop is marked and in the window."""
    page = visit(http_base, PAGE).page
    wanted = page.evaluate(STOPS)
    assert len(wanted) > 50
    page.locator("article h1").evaluate("e => { e.tabIndex = -1; e.focus(); }")
    reached = []
    while len(reached) < 3 * len(wanted):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if not at["article"]:
            break
        assert at["marked"], f"the focus is not seen on {at['html']}"
        assert at["inside"], f"the focus is out of the window on {at['html']}"
        reached.append(at["html"])
    assert set(wanted) <= set(reached)


@pytest.mark.browser
@pytest.mark.parametrize("name", [PAGE, "book/api.html"])
def test_what_scrolls_sideways_is_a_stop(browser, http_base, visit_in, name):
    """On a phone, in view or far below it; what fits is none."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = visit_in(context, http_base, name).page
    page.wait_for_function(f"!({STOPLESS})().length")
    assert page.locator("article pre[tabindex='0']").count() > 3
    assert page.locator("article pre:not([tabindex])").count() > 3
    context.close()


@pytest.mark.browser
def test_without_scripts_explorers_are_still_read(browser, http_base):
    """The first frame is drawn, and every frame is in a table that unfolds."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(http_base + PAGE)
    stills = page.locator("article noscript img")
    tables = page.locator("article details:has-text('What the figure shows')")
    assert stills.count() == tables.count() == 2
    for still, table in zip(stills.all(), tables.all(), strict=True):
        expect(still).to_be_visible()
        expect(table.locator("td").first).to_be_hidden()
        table.locator("summary").click()
        expect(table.locator("td").first).to_be_visible()
    context.close()


@pytest.mark.browser
def test_a_frame_is_a_row_of_the_table_below_it(visit, http_base, widget_page):
    """What is in sight is told in the table, for every explorer of the book."""
    page = visit(http_base, widget_page).page
    areas = page.locator(".widget-subarea:has(figcaption)")
    assert areas.count()
    for area in areas.all():
        caption = area.locator("figcaption:visible").inner_text().strip()
        cell = area.locator("xpath=ancestor::div[contains(@class, 'cell_output')]")
        assert caption in cell.locator("details td:last-child").all_text_contents()
        # Read out when it changes, without leaving the dial.
        assert area.locator("[aria-live=polite] figcaption").is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("name", [PAGE, "book/index.html"])
def test_nothing_moves_for_who_asked_for_rest(browser, http_base, visit_in, name):
    """No transition, animation or smooth scrolling."""
    context = browser.new_context(reduced_motion="reduce")
    seen = visit_in(context, http_base, name)
    assert seen.page.evaluate(MOVING) == []
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("name", [PAGE, "book/notation.html"])
def test_equations_can_be_read_out(visit, http_base, name):
    """Each has its MathML for a screen reader, and its drawing is hidden from it."""
    page = visit(http_base, name).page
    assert page.locator("mjx-container").count() > 20
    assert page.evaluate(UNREADABLE) == 0


def luminance(colour):
    """WCAG's relative luminance of 0 to 255 for red, green and blue."""
    parts = [value / 255 for value in colour]
    red, green, blue = (
        v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ratio(one, other):
    """WCAG's contrast of two colours."""
    high, low = sorted([luminance(one), luminance(other)], reverse=True)
    return (high + 0.05) / (low + 0.05)


def contrast(place, ink, paper):
    """Contrast of two colours of an element, by the names of their properties."""
    style = f"e => [getComputedStyle(e).{ink}, getComputedStyle(e).{paper}]"
    colours = [re.findall(r"\d+", text)[:3] for text in place.evaluate(style)]
    return ratio(*([int(part) for part in colour] for colour in colours))


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_words_in_figures_stand_out(visit, http_base, mode):
    """Ink, as each theme shows it, has the contrast of 4.5 that small words need."""
    page = visit(http_base, PAGE, mode).page
    seen = "e => [getComputedStyle(e).filter, getComputedStyle(document.body)"
    image = page.locator(".cell_output img").first
    shown, behind = image.evaluate(f"{seen}.backgroundColor]")
    factor = float(re.fullmatch(r"brightness\(([\d.]+)\)", shown)[1])
    paper = [int(part) for part in re.findall(r"\d+", behind)[:3]]
    ink = [int(style.INK[at : at + 2], 16) * factor for at in (1, 3, 5)]
    assert ratio(ink, paper) >= 4.5


@pytest.mark.browser
@pytest.mark.parametrize("name", [PAGE, "chapters/13_stacked_and_sharded.html"])
def test_words_in_figures_can_be_read_on_a_phone(browser, http_base, visit_in, name):
    """A figure goes from edge to edge, and no section cuts it off."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = visit_in(context, http_base, name).page
    images = page.locator(".cell_output > figure img")
    assert images.count() > 1
    for image in images.all():
        image.scroll_into_view_if_needed()
        box, pixels = image.bounding_box(), image.evaluate("e => e.naturalWidth")
        assert (box["x"], box["width"]) == (0, 390)
        points = style.PNG_DPI / 72 * box["width"] / pixels
        assert 10 * points > 9.5  # px; the smallest words are of 10 points
        assert image.evaluate(CUT) is False
    for frame in page.locator(".widget-subarea figure img:visible").all():
        box, inside = frame.bounding_box(), frame.evaluate(BOX)
        assert box["width"] > 380  # and nothing around it cuts it off
        assert inside["left"] <= box["x"] < box["x"] + box["width"] <= inside["right"]
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_button_back_to_the_top_can_be_read(browser, http_base, visit_in, mode):
    """It comes when a reader of a phone scrolls up, so axe-core does not see it."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    context.add_init_script(chromium.remember(mode))
    page = visit_in(context, http_base, PAGE).page
    page.evaluate("scrollTo(0, 0)")
    button = page.locator("#pst-back-to-top")
    page.mouse.wheel(0, 3000)
    page.wait_for_timeout(300)
    page.mouse.wheel(0, -400)
    expect(button).to_be_visible()
    assert contrast(button, "color", "backgroundColor") >= 4.5
    context.close()
