"""The roofline of chapter 04: it bends where it must, whatever was measured."""

import numpy as np
import pytest

from stacklm.notebook import figures
from stacklm.notebook.figures import style

PEAK, BANDWIDTH = 1e11, 2e10
# Far from the bend at 5 FLOP per byte: a roof through their intensities misses it.
POINTS = {"a sum": (0.125, 2e9), "128 × 512": (28, 8e10), "512 × 512": (85, 9e10)}


def drawn(points=POINTS):
    _, (ax,) = style.new_figure((5.6, 3.5))
    with style.styled():
        figures.roofline(PEAK, BANDWIDTH, points, ax=ax)
    return ax


@pytest.mark.parametrize(
    "points", [POINTS, {"left": (0.1, 1e9)}, {"right": (1e3, 9e10)}]
)
def test_the_roof_bends_at_peak_over_bandwidth(points):
    x, roof = drawn(points).lines[0].get_data()
    assert x[1] == PEAK / BANDWIDTH
    # Between its corners a line is straight, also on two logarithmic axes.
    assert np.allclose(roof, np.minimum(PEAK, BANDWIDTH * x) / 1e9, rtol=1e-12)
    assert roof[0] < roof[1] == roof[2] == PEAK / 1e9
    assert x[0] < min(i for i, _ in points.values())
    assert max(i for i, _ in points.values()) < x[2]


def test_points_are_marks_that_no_line_joins():
    ax = drawn()
    assert len(ax.lines) == 2
    marks = ax.lines[1]
    assert marks.get_linestyle() == "None"
    assert marks.get_marker() == "o"
    want = [(x, speed / 1e9) for x, speed in POINTS.values()]
    assert marks.get_xydata().tolist() == [list(point) for point in want]


def test_limits_and_points_are_named_and_names_do_not_overlap():
    ax = drawn()
    texts = {text.get_text(): text for text in ax.texts}
    assert set(texts) == {"20 GB/s", "100 GFLOP/s", *POINTS}
    ax.figure.canvas.draw()
    for name in POINTS:
        # Without their lines: extents of the words alone.
        texts[name].arrowprops = texts[name].arrow_patch = None
    boxes = [texts[name].get_window_extent() for name in POINTS]
    for at, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:at])


def test_without_axes_it_is_one_displayed_image(shown):
    for _ in range(2):
        figures.roofline(PEAK, BANDWIDTH, POINTS)
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert set(shown[0][0]) == {"image/png", "text/plain"}


@pytest.mark.parametrize(
    ("peak", "points", "message"),
    [
        (PEAK, {}, "at least one measured point"),
        (0, POINTS, "peak has 0"),
        (PEAK, {"a sum": (0.125, float("nan"))}, "a sum has"),
        (PEAK, {"a sum": (-1, 2e9)}, "a sum has -1"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_and_displays_nothing(
    peak, points, message, shown
):
    with pytest.raises(ValueError, match=message):
        figures.roofline(peak, BANDWIDTH, points)
    assert shown == []
