"""The figure of chapter 08: heads' logits before and after, group by group."""

import pytest

from stacklm.notebook import figures
from stacklm.notebook.figures import style

AFTER = {"once": [100, 45], "per head": [80, 30]}


def drawn(before=(120, 50), after=AFTER, tau=100, groups=1, **options):
    _, (ax,) = style.new_figure((5.6, 3.2))
    with style.styled():
        figures.head_logits(before, after, tau=tau, groups=groups, ax=ax, **options)
    return ax


def test_bars_have_the_heights_of_the_logits_and_stand_in_the_outline():
    ax = drawn()
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == [120, 50, 100, 45, 80, 30]
    outline, bar = ax.patches[0], ax.patches[2]
    assert not outline.get_fill()
    assert outline.get_x() < bar.get_x()
    second = ax.patches[4]
    inner = second.get_x() + second.get_width()
    assert inner < outline.get_x() + outline.get_width()
    assert bar.get_facecolor() != second.get_facecolor()


def test_the_last_head_and_the_threshold_are_named_with_their_numbers():
    words = {text.get_text() for text in drawn(top=200).texts}
    assert words == {"τ = 100", "before 50", "once 45", "per head 30"}
    assert drawn(top=200).get_ylim() == (0, 200)


def test_no_bar_crosses_the_word_of_the_threshold():
    ax = drawn(before=[120] * 8, after={"once": [100] * 8}, groups=4, top=320)
    ax.figure.canvas.draw()
    (word,) = [text for text in ax.texts if text.get_text() == "τ = 100"]
    first = ax.patches[0].get_window_extent()
    assert word.get_window_extent().x1 < first.x0


def test_groups_are_set_apart():
    ax = drawn([1, 2, 3, 4], {"a": [1, 2, 3, 4]}, groups=2)
    at = ax.get_xticks()
    assert at[1] - at[0] == at[3] - at[2] == 1
    assert at[2] - at[1] > 1


def test_without_axes_it_is_one_displayed_image(shown):
    for _ in range(2):
        figures.head_logits([120, 50], AFTER, tau=100, groups=2)
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert set(shown[0][0]) == {"image/png", "text/plain"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"after": {}}, "one to three rules, got 0"),
        ({"after": {k: [1, 2] for k in "abcd"}}, "one to three rules, got 4"),
        ({"groups": 0}, "must divide the number of heads, got 0 for 2"),
        ({"before": [1, 2, 3], "groups": 2}, "got 2 for 3"),
        ({"after": {"a": [1]}}, "a has 1 for 2"),
        ({"after": {"a": [1, -2]}}, "start at 0, but a has -2"),
        ({"before": [-1, 2]}, "before has -1"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(wrong, message):
    with pytest.raises(ValueError, match=message):
        drawn(**wrong)
