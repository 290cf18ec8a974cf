"""The figure about limits: what memory and arithmetic allow, and what is reached."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from stacklm.notebook.figures import style
from stacklm.notebook.figures.plots import numbers

STEP = 15  # between the names of neighbouring points, in points of type


def roofline(
    peak: float,
    bandwidth: float,
    points: Mapping[str, tuple[float, float]],
    *,
    ax: Axes | None = None,
) -> None:
    """Draw min(peak, bandwidth · x) over the arithmetic intensity x, and what ran.

    The roof bends at ``peak / bandwidth``, wherever the points are.

    Args:
        peak: What the processor multiplies and adds (FLOP/s).
        bandwidth: What its memory moves (bytes/s).
        points: Intensity (FLOP/byte) and speed (FLOP/s) of what was measured, by the
            name written beside its mark.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: There is no point, or a number is not positive and finite.

    References:
        Williams, Waterman and Patterson 2009, https://doi.org/10.1145/1498765.1498785

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.roofline(
        ...     1e11, 2e10, {"a sum": (0.125, 2e9), "a product": (85, 9e10)}
        ... )  # doctest: +SKIP
    """
    _check(peak, bandwidth, points)
    marks = sorted(points.items(), key=lambda point: point[1][0])
    x, speed = (numbers(row, "points") for row in zip(*points.values(), strict=True))
    bend = peak / bandwidth
    ends = min(bend, x.min()) / 2, max(bend, x.max()) * 2
    with style.canvas(ax, size=(5.6, 3.5)) as ax:
        ax.set(xscale="log", yscale="log")
        ax.set(xlabel="arithmetic intensity (FLOP per byte)", ylabel="GFLOP/s")
        roof = np.array([bandwidth * ends[0], peak, peak]) / 1e9
        ax.plot([ends[0], bend, ends[1]], roof, **style.line_style(0))
        look = style.line_style(1) | {"linestyle": "none"}
        ax.plot(x, speed / 1e9, marker="o", markersize=5.5, **look)
        style.calm_ticks(ax)
        _name_roof(ax, peak, bandwidth, ends)
        _name_points(ax, marks)


def _name_roof(
    ax: Axes, peak: float, bandwidth: float, ends: tuple[float, float]
) -> None:
    """Write each limit over its part of the roof."""
    bend, colour = peak / bandwidth, style.COLOURS[0]
    slope = (ends[0] * bend) ** 0.5
    text = f"{bandwidth / 1e9:.0f} GB/s"
    at = bandwidth * slope / 1e9
    style.note(ax, text, slope, at, (-6, 6), color=colour, ha="right")
    text = f"{peak / 1e9:.0f} GFLOP/s"
    style.note(ax, text, bend, peak / 1e9, (0, 10), color=colour)


def _name_points(ax: Axes, marks: list[tuple[str, tuple[float, float]]]) -> None:
    """Write names below the marks, as stairs where marks are near one another.

    Every name begins under its mark and the right one of two is the higher, so that
    the thin line from a mark to its name meets no other name.
    """
    height = ax.figure.get_size_inches()[1] * 72 * 0.72  # points that the axes have
    to_axes = ax.transData + ax.transAxes.inverted()
    colour, right, lowest = style.COLOURS[1], np.inf, np.inf
    for name, (x, speed) in reversed(marks):
        at = to_axes.transform((x, speed / 1e9))[1] * height
        near = right < 10 * x  # a name is about as wide as a decade
        lowest = min(at - 12, lowest - STEP) if near else at - 12
        right = x
        ax.annotate(
            name,
            (x, speed / 1e9),
            xytext=(0, lowest - at),
            textcoords="offset points",
            annotation_clip=False,
            fontsize=10,
            fontweight="bold",
            va="top",
            color=colour,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.7,
                "relpos": (0, 1),
            },
        )


def _check(
    peak: float, bandwidth: float, points: Mapping[str, tuple[float, float]]
) -> None:
    if not points:
        raise ValueError("a roofline needs at least one measured point, got none")
    given = {"peak": (peak,), "bandwidth": (bandwidth,), **points}
    for name, values in given.items():
        if not all(0 < value < np.inf for value in values):
            raise ValueError(
                f"a roofline has logarithmic axes and needs positive, finite numbers, "
                f"but {name} has {min(values):.3g}; measure it again"
            )
