"""Cards: by pointer and by keyboard, dismissed by Escape, never in a finger's way."""

import pytest
from playwright.sync_api import expect

PAGE = "chapters/02_newton_schulz.html"
TERM = 'article a[href$="glossary.html#term-momentum"]'
SOURCE = 'article a[href*="bibliography.html#"]'


def parts(page, selector):
    """The first such link of the page, in sight, and its card."""
    link = page.locator(selector).first
    link.scroll_into_view_if_needed()
    return link, page.locator("#" + link.get_attribute("aria-describedby"))


@pytest.mark.browser
@pytest.mark.parametrize("selector", [TERM, SOURCE])
def test_by_pointer(visit, base, selector):
    """Shown on hover, kept while the pointer is on it, gone after."""
    seen = visit(base, PAGE)
    link, card = parts(seen.page, selector)
    expect(card).to_be_hidden()
    link.hover()
    expect(card).to_be_visible()
    card.hover()
    seen.page.wait_for_timeout(500)
    expect(card).to_be_visible()
    seen.page.mouse.move(5, 5)
    expect(card).to_be_hidden()
    link.hover()
    expect(card).to_be_visible()
    seen.page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    assert seen.problems == []


@pytest.mark.browser
def test_by_keyboard(visit, base):
    """Tab shows it, Escape hides it and leaves the focus, a listener hears it."""
    seen = visit(base, PAGE)
    link, card = parts(seen.page, TERM)
    expect(link).to_have_accessible_description(card.text_content().strip())
    link.focus()
    seen.page.keyboard.press("Shift+Tab")
    expect(card).to_be_hidden()
    seen.page.keyboard.press("Tab")
    expect(card).to_be_visible()
    seen.page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(link).to_be_focused()


@pytest.mark.browser
def test_a_tap_follows_the_link(browser, http_base, visit_in):
    """On a touch screen nothing opens over the text."""
    context = browser.new_context(has_touch=True, is_mobile=True)
    seen = visit_in(context, http_base, PAGE)
    link, _ = parts(seen.page, TERM)
    link.tap()
    seen.page.wait_for_url("**/glossary.html#term-momentum")
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_no_card_leaves_the_window(visit, http_base, width):
    """Every card of a page lies within the window, whatever line its link is on."""
    seen = visit(http_base, PAGE)
    seen.page.set_viewport_size({"width": width, "height": 900})
    links = seen.page.locator("article a[aria-describedby]")
    assert links.count() > 5
    for link in links.all():
        link.scroll_into_view_if_needed()
        link.hover()
        card = seen.page.locator("#" + link.get_attribute("aria-describedby"))
        expect(card).to_be_visible()
        box = card.bounding_box()
        assert box["x"] >= 0, link
        assert box["x"] + box["width"] <= width, link
        assert box["y"] >= 0, link
        assert box["y"] + box["height"] <= 900, link
        seen.page.keyboard.press("Escape")
