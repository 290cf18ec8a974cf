"""The timeline of chapter 13: blocks where they were, lanes from top to bottom."""

import pytest
from matplotlib.colors import to_hex

from stacklm.notebook import figures
from stacklm.notebook.figures import style

LANES = {"exchanges": [(0, 2), (5, 7.25)], "products": [(2, 5)]}


def drawn(lanes=LANES, **options):
    _, (ax,) = style.new_figure((5.6, 3.2))
    with style.styled():
        figures.timeline(lanes, unit="milliseconds", ax=ax, **options)
    return ax


def extents(ax):
    """(begin, end) of every block, lane by lane."""
    return [
        [
            (path.vertices[:, 0].min(), path.vertices[:, 0].max())
            for path in c.get_paths()
        ]
        for c in ax.collections
    ]


def test_blocks_are_where_they_were_and_the_first_lane_is_on_top():
    ax = drawn()
    assert extents(ax) == [[(0, 2), (5, 7.25)], [(2, 5)]]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(LANES)
    low, high = ax.get_ylim()
    assert low > high  # inverted
    assert ax.get_xlim()[0] == 0
    assert ax.get_xlabel() == "milliseconds"


def test_the_end_of_every_lane_is_written_beside_it():
    assert [text.get_text() for text in drawn().texts] == ["7.25", "5"]


def test_lanes_of_one_group_share_a_colour():
    lanes = {**LANES, "other": [(0, 1)]}
    groups = {"exchanges": "a", "products": "a", "other": "b"}
    colours = [
        to_hex(c.get_facecolor()[0]) for c in drawn(lanes, groups=groups).collections
    ]
    assert colours[0] == colours[1] != colours[2]


def test_without_axes_it_is_one_displayed_image(shown):
    for _ in range(2):
        figures.timeline(LANES, unit="milliseconds")
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert set(shown[0][0]) == {"image/png", "text/plain"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lanes": {}}, "at least one lane, got none"),
        ({"lanes": {"a": []}}, "at least one block, a has none"),
        ({"lanes": {"a": [(2, 1)]}}, r"ends after it begins, a has \(2, 1\)"),
        ({"groups": {"exchanges": "x"}}, r"\['products'\] have none"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(wrong, message):
    with pytest.raises(ValueError, match=message):
        drawn(**wrong)
