"""Ticks a reader can read, and names beyond the edge of what runs under them."""

import numpy as np
import pytest

from stacklm.notebook import figures
from stacklm.notebook.figures import style, ticks


def lines(x, y, **options):
    _, (ax,) = style.new_figure((5.6, 3.2))
    with style.styled():
        figures.lines(x, {"name": y}, xlabel="x", ylabel="y", ax=ax, **options)
        ax.figure.canvas.draw()
    return ax


def words(axis):
    low, high = sorted(axis.get_view_interval())
    each = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [label.get_text() for at, label in each if low <= at <= high]


def test_a_logarithmic_axis_of_one_decade_has_plain_numbers():
    ax = lines(range(10), np.geomspace(2, 30, 10), logy=True)
    assert words(ax.yaxis) == ["2", "5", "10", "20"]
    assert len(ax.yaxis.get_minorticklocs()) == 0


def test_a_shorter_one_has_round_steps_and_a_longer_one_powers():
    assert set(words(lines([0, 1], [1.2, 2.2], logy=True).yaxis)) >= {"1.5", "2"}
    powers = words(lines([0, 1], [1, 1e4], logy=True).yaxis)
    assert all("10^" in word for word in powers)


def test_few_round_points_are_the_ticks():
    assert words(lines([32, 64, 256], [1, 2, 3], logx=True).xaxis) == [
        "32",
        "64",
        "256",
    ]


@pytest.mark.parametrize(
    "points",
    [
        np.geomspace(1, 60, 9),  # too many
        [1, 2.34567, 60],  # too long
        [1, 1.01, 60],  # too close
    ],
)
def test_other_points_are_not(points):
    ax = lines(points, np.ones(len(points)), logx=True)
    assert words(ax.xaxis) == ["1", "2", "5", "10", "20", "50"]


def test_steps_are_counted_in_ones_twos_and_fives():
    assert words(lines(range(1, 101), range(100)).xaxis) == [
        "0",
        "20",
        "40",
        "60",
        "80",
        "100",
    ]
    assert ticks.whole_steps().tick_values(0, 3).tolist() == [0, 1, 2, 3]


def test_names_begin_beyond_the_edge_where_the_guides_end():
    ax = lines([1, 2, 3], [1, 2, 3], level=[(1.0, "one"), (2.0, "two")])
    found = {text.get_text(): text for text in ax.texts}
    assert set(found) == {"name", "one", "two"}
    edge = ax.get_window_extent().x1
    assert found["name"].get_window_extent().x0 > edge
    assert [line.get_ydata()[0] for line in ax.lines[1:]] == [1.0, 2.0]


def test_a_line_that_stops_early_keeps_its_name_beside_it():
    _, (ax,) = style.new_figure((5.6, 3.2))
    ax.set(xlim=(0, 10), ylim=(0, 1))
    style.label_ends(ax, [(10, 0.2, "whole", "k"), (5, 0.8, "half", "k")])
    at = {text.get_text(): text.xy for text in ax.texts}
    assert at == {"half": (5, 0.8), "whole": (1, 0.2)}
