"""Where an axis has its ticks, and how their numbers are written."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

FEW = 8  # points whose own numbers find room below the axis
SHORT = 5  # characters of a number that find room there


def calm_ticks(ax: Axes, points: np.ndarray | None = None) -> None:
    """Write plain numbers on short logarithmic axes; no minor ticks on any of them.

    An axis of two decades or more keeps its powers of ten. A shorter one has 1, 2 and 5
    times each power, and below a factor of five round steps.

    Args:
        ax: Axes with its data drawn.
        points: The abscissas measured. If the x axis is logarithmic and they are few
            and round, they are its ticks.
    """
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if axis.get_scale() != "log":
            continue
        axis.set_minor_locator(NullLocator())
        if axis is ax.xaxis and points is not None and _fit(points, high / low):
            axis.set_ticks(points)
            _plain(axis)
        elif high < 5 * low:
            axis.set_major_locator(MaxNLocator(5))
            _plain(axis)
        elif high < 100 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            _plain(axis)


def whole_steps() -> MaxNLocator:
    """Return a locator for counts: at most seven steps of 1, 2 or 5, or of 25."""
    return MaxNLocator(7, integer=True, steps=[1, 2, 2.5, 5, 10])


def _plain(axis: Axis) -> None:
    axis.set_major_formatter(lambda value, _position: f"{value:g}")


def _fit(points: np.ndarray, span: float) -> bool:
    """Whether numbers below the points are few, short and apart from each other."""
    points = np.unique(points)
    if points.size > FEW or any(len(f"{x:g}") > SHORT for x in points):
        return False
    return bool((np.diff(np.log(points)) > np.log(span) / (FEW + 4)).all())
