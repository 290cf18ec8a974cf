"""The two general kinds of figure: named lines over a quantity, and bars."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stacklm.notebook.figures import style, ticks


def numbers(values: Any, name: str) -> np.ndarray:
    """Return ``values`` as a 1-D float64 array, from a list, an array or a tensor.

    Args:
        values: Numbers; tensors may be on any device, of any real dtype, with
            gradients.
        name: What they are, for the error.

    Returns:
        The array, of shape (n,).

    Raises:
        ValueError: If they are not one row of at least one number, or one is NaN.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().double()
    elif not isinstance(values, np.ndarray):
        values = [float(value) for value in values]  # scalars may be tensors too
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"a figure draws one row of numbers, got {name} of shape {array.shape}"
        )
    if np.isnan(array).any():
        raise ValueError(
            f"a figure draws no NaN, but {name} has {int(np.isnan(array).sum())}"
        )
    return array


def lines(
    x: Any,
    named: Mapping[str, Any],
    *,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = False,
    level: tuple[float, str] | list[tuple[float, str]] | None = None,
    markers: bool = False,
    ylim: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw one line per name over a common x, each named at its right end.

    Args:
        x: The common abscissa, n numbers.
        named: Up to five rows of n numbers, by the name written at the line's end.
        xlabel: Quantity and unit of x.
        ylabel: Quantity and unit of the lines.
        logx: Logarithmic x axis.
        logy: Logarithmic y axis.
        level: A height to compare with, and what it is: a thin guide across the figure.
            A list draws several.
        markers: Mark each point, for few or unevenly measured ones.
        ylim: Lowest and highest y shown; give it in an explorer, so that frames
            compare.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: If a row's length differs from x's, there is none or a sixth, or a
            logarithmic axis would get a number that is not positive.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.lines(
        ...     [0, 100, 200],
        ...     {"AdamW": [5.5, 2.4, 2.1], "Muon": [5.5, 2.2, 1.8]},
        ...     xlabel="step",
        ...     ylabel="validation loss (nats per byte)",
        ... )  # doctest: +SKIP
    """
    x = numbers(x, "x")
    rows = {name: numbers(row, name) for name, row in named.items()}
    _check_rows(x, rows, logx, logy)
    with style.canvas(ax) as ax:
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.set_xscale("log" if logx else "linear")
        ax.set_yscale("log" if logy else "linear")
        if not logx and (x == x.round()).all():
            ax.xaxis.set_major_locator(ticks.whole_steps())
        for index, row in enumerate(rows.values()):
            look = style.line_style(index)
            ax.plot(x, row, marker="o" if markers else None, markersize=4.5, **look)
        for each in level if isinstance(level, list) else [level]:
            if each is not None:
                style.guide(ax, *each)
        if ylim is not None:
            ax.set_ylim(*ylim)
        style.calm_ticks(ax, x)
        colours = [style.line_style(index)["color"] for index in range(len(rows))]
        ends = [
            (x[-1], row[-1], name, colour)
            for (name, row), colour in zip(rows.items(), colours, strict=True)
        ]
        style.label_ends(ax, ends)


def _check_rows(x: np.ndarray, rows: dict[str, np.ndarray], logx: bool, logy: bool):
    if not rows:
        raise ValueError("a figure of lines needs at least one line, got none")
    style.line_style(len(rows) - 1)  # refuses a sixth
    for name, row in rows.items():
        if row.shape != x.shape:
            raise ValueError(
                f"a line has one number per x, but {name} has {row.size} for {x.size}"
            )
        if logy and (row <= 0).any():
            raise ValueError(
                f"a logarithmic axis needs positive numbers, {name} has {row.min():.3g}"
            )
    if logx and (x <= 0).any():
        raise ValueError(f"a logarithmic axis needs positive x, got {x.min():.3g}")


def bars(
    values: Mapping[str, float],
    *,
    unit: str,
    groups: Mapping[str, str] | Sequence[str] | None = None,
    digits: int = 3,
    ax: Axes | None = None,
) -> None:
    """Draw one horizontal bar per name, its number and its group written at the end.

    Args:
        values: Lengths of the bars, not negative, by name; the first is on top.
        unit: Quantity and unit, written under the axis.
        groups: The group of every bar, by name; bars of one group share a colour.
        digits: Significant digits of the numbers.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: If there is no bar, a length is negative, or a bar has no group.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.bars(
        ...     {"block matrices": 84.5, "embedding": 16.8},
        ...     unit="parameters (millions)",
        ...     groups={"block matrices": "Muon", "embedding": "AdamW"},
        ... )  # doctest: +SKIP
    """
    lengths = numbers(list(values.values()), "values")
    if (lengths < 0).any():
        raise ValueError(f"bars have no negative length, got {lengths.min():.3g}")
    groups = dict.fromkeys(values, "") if groups is None else groups
    if missing := [name for name in values if name not in groups]:
        raise ValueError(f"every bar needs a group, {missing} have none")
    kinds = list(dict.fromkeys(groups[name] for name in values))
    colours = [style.line_style(kinds.index(groups[name]))["color"] for name in values]
    with style.canvas(ax, size=(5.6, 0.9 + 0.42 * len(lengths))) as ax:
        ax.barh(range(len(lengths)), lengths, color=colours, height=0.62)
        ax.set_yticks(range(len(lengths)), list(values))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.set_xlabel(unit)
        for at, (name, length) in enumerate(values.items()):
            text = f"{float(length):,.{digits}g} {groups[name]}".rstrip()
            style.note(ax, text, float(length), at, (5, 0), color=colours[at])
