"""Explorers work in the static page: by mouse, by keyboard, served and from a file."""

import json
from functools import partial

import pytest

WIDGET = "application/vnd.jupyter.widget-view+json"
FRAMES = """(area) => [...area.querySelectorAll("img")]
  .filter((image) => image.offsetParent)
  .map((image) => image.alt + image.src.length + image.src.slice(-400))"""
FOLDERS = ("chapters", "exercises", "solutions")
# WCAG's contrast of each word of a control with the page behind it.
CONTRASTS = """() => {
  const light = (colour) => {
    const rgb = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const words = ".widget-subarea :is(.widget-label, .widget-readout, figcaption)";
  return [...document.querySelectorAll(words)].map((element) => {
    const ink = light(getComputedStyle(element).color);
    return (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
  });
}"""
EDGES = """() => [...document.querySelectorAll(".widget-subarea img")]
  .filter((image) => image.offsetParent).map((image) => image.getBoundingClientRect())
  .map((box) => [box.left, box.right])"""


def frames(area):
    """What the visible frames of one explorer show."""
    return area.evaluate(FRAMES)


def assert_changes(page, area, act, what):
    """Assert that `act` makes another frame visible."""
    before = frames(area)
    assert before, "the explorer shows no frame"
    act()
    try:
        page.wait_for_function(
            f"([area, before]) => JSON.stringify(({FRAMES})(area)) !== before",
            arg=[area.element_handle(), json.dumps(before, separators=(",", ":"))],
            timeout=3000,
        )
    except Exception as error:
        raise AssertionError(f"{what} shows no other frame") from error


def controls(seen, selector):
    """(explorer, control) for every control of one kind on the page."""
    for area in seen.page.locator(".widget-subarea").all():
        for control in area.locator(selector).all():
            yield area, control


@pytest.mark.browser
def test_sliders_by_keyboard(visit, base, widget_page):
    """Home, End and an arrow move the handle, and a listener hears the value."""
    seen = visit(base, widget_page)
    for area, slider in controls(seen, ".widget-slider"):
        handle = slider.locator(".noUi-handle")
        name = handle.get_attribute("aria-label")
        assert name == slider.locator(".widget-label").inner_text().strip()
        handle.focus()
        last = handle.get_attribute("aria-valuenow") == handle.get_attribute(
            "aria-valuemax"
        )
        for key in ("Home", "ArrowRight") if last else ("End", "ArrowLeft"):
            press = partial(seen.page.keyboard.press, key)
            assert_changes(seen.page, area, press, key)
        said = handle.get_attribute("aria-valuetext")
        assert said == slider.locator(".widget-readout").inner_text().strip()
    assert seen.problems == []


@pytest.mark.browser
def test_sliders_by_mouse(visit, base, widget_page):
    """Dragging the handle to the other end shows another frame."""
    seen = visit(base, widget_page)
    for area, slider in controls(seen, ".widget-slider"):
        handle = slider.locator(".noUi-handle")
        slider.scroll_into_view_if_needed()
        track = slider.locator(".noUi-base").bounding_box()
        start = handle.bounding_box()
        left = start["x"] + start["width"] / 2 > track["x"] + track["width"] / 2
        target = track["x"] + (2 if left else track["width"] - 2)

        def drag(start=start, target=target):
            middle = start["y"] + start["height"] / 2
            seen.page.mouse.move(start["x"] + start["width"] / 2, middle)
            seen.page.mouse.down()
            seen.page.mouse.move(target, middle, steps=4)
            seen.page.mouse.up()

        assert_changes(seen.page, area, drag, f"dragging {slider.inner_text()!r}")
    assert seen.problems == []


@pytest.mark.browser
def test_lists_and_buttons(visit, base, widget_page):
    """Choosing from a list, and pressing a button by mouse and by keyboard."""
    seen = visit(base, widget_page)
    for area, choice in controls(seen, "select"):
        other = (choice.evaluate("e => e.selectedIndex") + 1) % 2
        choose = partial(choice.select_option, index=other)
        assert_changes(seen.page, area, choose, "the list")
    for area, group in controls(seen, ".widget-toggle-buttons"):
        assert group.get_attribute("aria-label")
        button = group.locator('[aria-pressed="false"]').first
        assert_changes(seen.page, area, button.click, "a click")
        assert_changes(seen.page, area, partial(button.press, "Enter"), "Enter")
    assert seen.problems == []


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_widgets_are_legible(visit, http_base, widget_page, mode):
    """The words of every control stand out from the page, and frames fit into it."""
    seen = visit(http_base, widget_page, mode)
    assert min(seen.page.evaluate(CONTRASTS)) >= 4.5
    for width in (1280, 390):
        seen.page.set_viewport_size({"width": width, "height": 900})
        for left, right in seen.page.evaluate(EDGES):
            assert 0 <= left < left + 200 < right <= width


def test_every_explorer_reaches_its_page(root, html):
    """As many widget views in the page as in the committed notebook: none got lost."""
    for folder in FOLDERS:
        for notebook in sorted((root / folder).glob("*.ipynb")):
            cells = json.loads(notebook.read_text("utf-8"))["cells"]
            outputs = [o for c in cells for o in c.get("outputs", [])]
            views = sum(WIDGET in output.get("data", {}) for output in outputs)
            page = html / folder / f"{notebook.stem}.html"
            assert page.read_text("utf-8").count(f'"{WIDGET}"') == views, page.name


@pytest.mark.browser
def test_controls_of_a_phone_end_where_the_text_ends(
    browser, http_base, visit_in, widget_page
):
    """A frame goes from edge to edge; what is read or touched does not."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = visit_in(context, http_base, widget_page).page
    page.add_style_tag(content="* { content-visibility: visible !important }")
    text = page.locator("article h1").bounding_box()
    parts = page.locator(".widget-subarea :is(select, button, .widget-readout)").all()
    boxes = [part.bounding_box() for part in parts if part.is_visible()]
    assert boxes
    assert max(b["x"] + b["width"] for b in boxes) <= text["x"] + text["width"] + 1
    assert min(b["x"] for b in boxes) >= text["x"] - 1
    context.close()


@pytest.mark.browser
def test_a_frame_is_as_wide_as_the_text_whatever_its_caption(
    visit, http_base, widget_page
):
    page = visit(http_base, widget_page).page
    page.add_style_tag(content="* { content-visibility: visible !important }")
    for area in page.locator(".widget-subarea:has(figure)").all():
        room = area.bounding_box()["width"]
        figure = area.locator("figure:visible").first
        assert figure.bounding_box()["width"] > room - 10
