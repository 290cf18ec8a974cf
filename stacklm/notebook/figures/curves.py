"""Figures of many runs: the loss over a grid of learning rates."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from stacklm.notebook.figures import style
from stacklm.notebook.figures.plots import numbers


def u_curve(
    named: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    marked: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw the mean loss over a grid of learning rates, and the band of its seeds.

    Args:
        named: Up to five sweeps by name: the losses of the seeds, by learning rate.
        xlabel: Quantity and unit of the learning rates; the axis is logarithmic.
        ylabel: Quantity and unit of the losses.
        marked: Learning rates to ring on the first sweep, with a word for each.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: If there is no sweep or a sixth, a loss is not finite, or a marked
            learning rate is not in the first sweep.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.u_curve(
        ...     {"width 32": {0.01: [2.9, 3.0], 0.02: [2.6, 2.7], 0.04: [2.7, 3.1]}},
        ...     xlabel="peak", ylabel="loss (nats per token)", marked={"lowest": 0.02},
        ... )  # doctest: +SKIP
    """
    rows = {
        name: [
            (float(lr), numbers(each, f"{name} at {lr:g}"))
            for lr, each in sorted(losses.items())
        ]
        for name, losses in named.items()
    }
    _check(rows, marked or {})
    with style.canvas(ax) as ax:
        ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log")
        ends = []
        for index, (name, row) in enumerate(rows.items()):
            look = style.line_style(index)
            x = [lr for lr, _ in row]
            middle = [each.mean() for _, each in row]
            low, high = ([f(each) for _, each in row] for f in (np.min, np.max))
            ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
            ax.plot(x, middle, marker="o", markersize=4.5, **look)
            ends.append((x[-1], middle[-1], name, look["color"]))
        grid = sorted({lr for row in rows.values() for lr, _ in row})
        ax.set_xticks(grid, [f"{lr:g}" for lr in grid])
        ax.xaxis.set_minor_locator(NullLocator())
        _ring(ax, next(iter(rows.values())), marked or {})
        style.label_ends(ax, ends)


def _ring(ax: Axes, row: list, marked: Mapping[str, float]) -> None:
    """Ring points of a sweep, their words below them."""
    means = {lr: each.mean() for lr, each in row}
    for word, lr in marked.items():
        ring = {"markersize": 11, "markerfacecolor": "none", "color": style.INK}
        ax.plot([lr], [means[lr]], marker="o", **ring)
        style.note(ax, word, lr, means[lr], (0, -15), ha="center", fontweight="normal")
    if marked:
        ax.margins(y=0.16)  # room for the words


def _check(rows: dict[str, list], marked: Mapping[str, float]) -> None:
    if not rows:
        raise ValueError("a figure of sweeps needs at least one sweep, got none")
    style.line_style(len(rows) - 1)  # refuses a sixth
    for name, row in rows.items():
        for lr, each in row:
            if not np.isfinite(each).all():
                raise ValueError(
                    f"a figure draws finite losses, but {name} has {each.max()} at "
                    f"{lr:g}; leave that learning rate out"
                )
    first = [lr for lr, _ in next(iter(rows.values()))]
    if missing := [lr for lr in marked.values() if lr not in first]:
        raise ValueError(
            f"marked learning rates must be points of the first sweep, got {missing}; "
            f"it has {first}"
        )
