"""An explorer holds every frame, links them with no kernel, and does without Stack."""

import base64
import html
import re

import ipywidgets as widgets
import pytest
from ipywidgets import Widget

from stacklm.notebook import Dial, explore

HAS_STACK = hasattr(widgets, "Stack")
needs_stack = pytest.mark.skipif(
    not HAS_STACK, reason="ipywidgets 7 has no Stack to hold all frames"
)


def draw(ax, kind, k):
    ax.plot([0, 1, 2], [0, k, k * k])
    return f"{kind} & slope {k}"


DIALS = {
    "kind": Dial("Kind", ["a", "b"], "buttons"),
    "k": Dial("Slope", [1, 2, 3], start=2),
}


def frames(explorer):
    """The HTML of every frame, in the order of the dials' values."""
    found = []

    def walk(widget):
        if isinstance(widget, widgets.HTML):
            found.append(widget.value)
        for child in getattr(widget, "children", ()):
            walk(child)

    walk(explorer.widget)
    return found


def svgs(explorer):
    sources = (re.search(r'base64,([^"]*)"', frame)[1] for frame in frames(explorer))
    return [base64.b64decode(source).decode() for source in sources]


def visible(widget):
    """The caption in sight, following a stack's index as the browser does."""
    if isinstance(widget, widgets.HTML):
        caption = re.search(r"<figcaption>(.*)</figcaption>", widget.value)[1]
        return html.unescape(caption)
    if isinstance(widget, getattr(widgets, "Stack", ())):
        return visible(widget.children[widget.selected_index])
    return visible(widget.children[-1])


@pytest.fixture
def links(monkeypatch):
    """Record jslinks, which only a browser carries out, and the setting they join."""
    made = []
    original = widgets.jslink

    def record(source, target):
        made.append((source, target))
        return original(source, target)

    monkeypatch.setattr(widgets, "jslink", record)
    return made


def turn(made, control, index):
    """Do what the browser does when a control moves."""
    control.index = index
    for (source, name), (target, attribute) in made:
        if source is control:
            setattr(target, attribute, getattr(source, name))


@needs_stack
def test_two_dials_reach_every_frame(links):
    explorer = explore(draw, DIALS)
    kind, slope, _ = explorer.widget.children
    assert visible(explorer.widget) == "a & slope 2"
    for i, name in enumerate("ab"):
        for j, k in enumerate([1, 2, 3]):
            turn(links, kind, i)
            turn(links, slope, j)
            assert visible(explorer.widget) == f"{name} & slope {k}"


@needs_stack
def test_one_dial_reaches_every_frame(links):
    explorer = explore(lambda ax, k: draw(ax, "a", k), {"k": Dial("Slope", [1, 2, 3])})
    (slope, _) = explorer.widget.children
    for j in (2, 0, 1):
        turn(links, slope, j)
        assert visible(explorer.widget) == f"a & slope {j + 1}"


@needs_stack
def test_links_start_where_the_dials_stand(links):
    explore(draw, DIALS)
    assert links
    for (source, name), (target, attribute) in links:
        assert getattr(source, name) == getattr(target, attribute)


@pytest.mark.parametrize("count", [1, 2])
def test_without_stack_the_kernel_swaps_frames(monkeypatch, count):
    monkeypatch.delattr(widgets, "Stack", raising=False)
    dials = dict(list(DIALS.items())[-count:])

    def paint(ax, k, kind="a"):
        return draw(ax, kind, k)

    explorer = explore(paint, dials)
    *controls, box = explorer.widget.children
    assert type(box) is widgets.Box
    assert visible(box) == "a & slope 2"
    for j, k in enumerate([1, 2, 3]):
        controls[-1].index = j
        assert visible(box) == f"a & slope {k}"
    if count == 2:
        controls[0].index = 1
        assert visible(box) == "b & slope 3"


@needs_stack
def test_each_frame_has_alt_text_and_its_numbers_as_text():
    explorer = explore(draw, DIALS)
    found = zip(frames(explorer), explorer.captions.items(), strict=True)
    for frame, ((kind, slope), caption) in found:
        assert f'<img alt="Plot for Kind {kind}, Slope {slope}.' in frame
        assert f"<figcaption>{html.escape(caption)}</figcaption>" in frame


def test_captions_by_value_and_as_plain_text_for_nbval(shown):
    explorer = explore(draw, DIALS)
    assert explorer.captions[("b", 3)] == "b & slope 3"
    assert len(explorer.captions) == 6
    explorer._ipython_display_()
    bundle = shown[0][0]
    lines = bundle["text/plain"].split("\n")
    assert lines[0] == "Kind a, Slope 1: a & slope 1"
    assert len(lines) == 6
    view = bundle["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == explorer.widget.model_id


def test_every_frame_is_in_the_table_too(shown):
    """One row a setting, its caption in it, escaped: what a listener reads instead."""
    explorer = explore(draw, DIALS)
    explorer._ipython_display_()
    words = shown[1][0]["text/html"]
    assert words.startswith("<details><summary>")
    assert re.findall('<th scope="col">(.*?)</th>', words) == [
        "Kind",
        "Slope",
        "What it shows",
    ]
    rows = [re.findall("<td>(.*?)</td>", row) for row in words.split("<tr>")[2:]]
    assert rows == [
        [kind, str(slope), html.escape(caption)]
        for (kind, slope), caption in explorer.captions.items()
    ]
    assert len(rows) == 6


def test_every_control_is_named_and_says_where_it_stands():
    *controls, _ = explore(draw, DIALS).widget.children
    assert [control.description for control in controls] == ["Kind", "Slope"]
    assert [control.index for control in controls] == [0, 1]
    assert list(controls[1].options) == ["1", "2", "3"]
    assert [type(c).__name__ for c in controls] == ["ToggleButtons", "SelectionSlider"]


def test_twice_gives_the_same_frames_and_the_same_models():
    def states():
        before = set(models())
        explorer = explore(draw, DIALS)
        new = {key: w for key, w in models().items() if key not in before}
        names = {key: f"id{at}" for at, key in enumerate(new)}  # in creation order
        text = str([(w._model_name, w.get_state()) for w in new.values()])
        text += str([repr(svg) for svg in svgs(explorer)])
        for key, name in names.items():
            text = text.replace(key, name)
        return text

    def models():
        registry = getattr(widgets.widgets.widget, "_instances", None)
        return registry if registry is not None else Widget.widgets

    assert states() == states()


def test_frames_are_small_and_free_of_date_and_version():
    for svg in svgs(explore(draw, DIALS)):
        assert len(svg) < 11_000
        assert svg.startswith("<svg")
        assert svg.endswith("</svg>")
        assert not re.search(r"metadata|matplotlib|20\d\d-\d\d", svg)


def test_axes_stay_in_place_whatever_the_labels():
    def labelled(ax, k):
        ax.plot([0, 1], [0, 10**k])
        ax.annotate(
            "a long name" * k,
            (1, 10**k),
            xytext=(5, 0),
            textcoords="offset points",
            annotation_clip=False,
        )
        return "x"

    found = svgs(explore(labelled, {"k": Dial("Digits", [1, 2])}))
    # The second path of a frame is the axes' rectangle, the first the figure's.
    boxes = {re.findall(r'<path d="([^"]*)"', svg)[1] for svg in found}
    assert len(boxes) == 1


def test_labels_that_leave_no_room_are_an_error():
    def labelled(ax, k):
        ax.annotate("a very long name " * 5, (1, 0), annotation_clip=False)
        return "x"

    with pytest.raises(ValueError, match="labels leave"):
        explore(labelled, {"k": Dial("Digits", [1, 2])}, size=(3, 2))


def test_several_axes_in_a_frame():
    def pair(axes, k):
        left, right = axes
        left.plot([0, k])
        right.plot([k, 0])
        return f"{k}"

    explorer = explore(pair, {"k": Dial("k", [1, 2])}, columns=2)
    assert explorer.captions == {(1,): "1", (2,): "2"}


@pytest.mark.parametrize(
    "dials",
    [{}, {"a": Dial("a", [1, 2]), "b": Dial("b", [1, 2]), "c": Dial("c", [1, 2])}],
)
def test_one_or_two_dials(dials):
    with pytest.raises(ValueError, match="one or two dials"):
        explore(draw, dials)


def test_frames_over_budget_are_refused_before_any_is_drawn():
    def never(ax, **_):
        raise AssertionError("drawn")

    dials = {"a": Dial("a", range(5)), "b": Dial("b", range(5))}
    with pytest.raises(ValueError, match="24 frames, got 25"):
        explore(never, dials)
    with pytest.raises(ValueError, match="2 frames, got 3"):
        explore(never, {"a": Dial("a", range(3))}, budget=2)


@pytest.mark.parametrize(("caption", "kind"), [(None, TypeError), ("  ", ValueError)])
def test_a_frame_without_caption_is_refused(caption, kind):
    with pytest.raises(kind, match="caption"):
        explore(lambda ax, k: caption, {"k": Dial("k", [1, 2])})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("k", [1]), "at least two"),
        (("k", [1, "1"]), "read differently"),
        ((" ", [1, 2]), "label"),
        (("k", [1, 2], "knob"), "control"),
        (("k", [1, 2], "slider", 3), "start"),
    ],
)
def test_dials_that_make_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        Dial(*arguments)
