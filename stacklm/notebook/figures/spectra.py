"""Figures about singular values: the polynomial, its trace, whole spectra."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stacklm.notebook.figures import style
from stacklm.notebook.figures.plots import lines, numbers


def iterates(
    p: Callable[[torch.Tensor], torch.Tensor],
    *,
    steps: int = 5,
    top: float = 1.2,
    band: tuple[float, float] | None = None,
    low: float | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw p, p∘p, … over a range of σ; the first and the last step stand out.

    Args:
        p: One step on singular values, float64 tensor of shape (n,) to the same shape.
        steps: How often p is applied, at least 1.
        top: Largest σ on the axis. Values after a step are shown up to 1.6.
        band: Lowest and highest value to shade, where the iterates are meant to land.
        low: Left edge, positive; given, the axis is logarithmic, which shows small σ.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: If ``steps`` is below 1, ``low`` is not between 0 and ``top``, or
            an iterate is not finite.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.iterates(lambda s: 1.5 * s - 0.5 * s**3, steps=5)  # doctest: +SKIP
    """
    if steps < 1:
        raise ValueError(f"iterates draws at least one step, got steps={steps}")
    if low is not None and not 0 < low < top:
        raise ValueError(
            f"a logarithmic axis needs a positive low below top={top}, got low={low}"
        )
    sigma = torch.linspace(low or 0, top, 401, dtype=torch.float64)
    if low:
        sigma = torch.logspace(
            math.log10(low), math.log10(top), 401, dtype=torch.float64
        )
    curves, value = [], sigma
    for step in range(1, steps + 1):
        value = p(value)
        if not torch.isfinite(value).all():
            raise ValueError(
                f"iterate {step} is not finite somewhere on [0, {top}]; lower top, the "
                "polynomial diverges there"
            )
        curves.append(numbers(value, f"iterate {step}"))
    with style.canvas(ax, size=(5.6, 3.5)) as ax:
        if band is not None:
            ax.axhspan(*band, color=style.COLOURS[2], alpha=0.15, linewidth=0)
        style.guide(ax, 1.0, "1")
        ax.set(xlabel="σ before", ylabel="σ after", xscale="log" if low else "linear")
        lowest = min(curve.min() for curve in curves)
        highest = max(curve.max() for curve in curves)
        # Beyond its basin a quintic explodes; the axis stays where the spectrum lives.
        ax.set_ylim(max(-0.4, min(0, lowest)), min(1.6, 1.05 * highest))
        ax.set_xlim(low or 0, top)
        _iterate_lines(ax, sigma.numpy(), curves)


def _iterate_lines(ax: Axes, sigma: np.ndarray, curves: list[np.ndarray]) -> None:
    ends = []
    for step, curve in enumerate(curves, start=1):
        first, last = step == 1, step == len(curves)
        look = {"color": style.INK, "linewidth": 0.9, "alpha": 0.8}
        if first or last:
            look = style.line_style(1 if first and not last else 0)
        ax.plot(sigma, curve, **look)
        name = f"{step} step" + "s" * (step > 1)
        if first or last:
            ends.append((sigma[-1], curve[-1], name, look["color"]))
        if ax.get_xscale() == "log" and not last:
            # Where they rise, the curves are apart: the number of steps goes there.
            at = int(np.argmax(curve > 0.4))
            style.note(
                ax, str(step), sigma[at], curve[at], (5, -5), color=look["color"]
            )
    style.label_ends(ax, ends)


def trace(
    per_step: Sequence[Any],
    *,
    shown: int = 9,
    ylim: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw how singular values move step by step, with smallest and largest named.

    Args:
        per_step: The singular values before the first step, after it, and so on: rows
            of equal length, each in the order of the row before (value i of a row came
            from value i of the first), positive.
        ylim: Lowest and highest value shown; give it in an explorer.
        shown: How many of the paths are drawn, evenly spread over the first row's
            order.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: If there are fewer than two rows, of unequal length, or not
            positive.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.trace([[0.01, 0.3], [0.03, 0.9], [0.12, 0.8]])  # doctest: +SKIP
    """
    rows = [numbers(row, f"step {step}") for step, row in enumerate(per_step)]
    if len(rows) < 2 or len({row.size for row in rows}) > 1:
        raise ValueError(
            f"trace needs two or more equal rows, got lengths {[r.size for r in rows]}"
        )
    table = np.stack(rows)  # (steps + 1, n)
    if (table <= 0).any():
        raise ValueError(f"trace has a logarithmic axis, got a value {table.min():.3g}")
    count = table.shape[1]
    picks = np.unique(np.linspace(0, count - 1, min(shown, count)).round().astype(int))
    steps = np.arange(len(rows))
    with style.canvas(ax, size=(5.6, 3.5)) as ax:
        ax.set_yscale("log")
        style.guide(ax, 1.0, "1")
        ax.plot(steps, table[:, picks], color=style.INK, linewidth=0.9, alpha=0.8)
        ax.plot(steps, table.max(axis=1), marker="o", **style.line_style(1))
        ax.plot(steps, table.min(axis=1), marker="o", **style.line_style(0))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="Newton–Schulz step", ylabel="singular value")
        if ylim is not None:
            ax.set_ylim(*ylim)
        style.calm_ticks(ax)
        high, low = table[-1].max(), table[-1].min()
        style.label_ends(
            ax,
            [
                (steps[-1], high, f"largest {high:.3f}", style.COLOURS[1]),
                (steps[-1], low, f"smallest {low:.3f}", style.COLOURS[0]),
            ],
        )


def spectra(
    named: Mapping[str, Any],
    *,
    log: bool = True,
    relative: bool = False,
    ylabel: str | None = None,
    ylim: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw whole spectra, each sorted from its largest singular value down.

    Args:
        named: Up to five spectra of equal length by the name written at the line's end.
        log: Logarithmic axis; needs positive values.
        relative: Divide each spectrum by its largest value, to compare shapes.
        ylabel: Words on the axis, if "singular value" is not enough.
        ylim: Lowest and highest value shown; give it in an explorer.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: As :func:`stacklm.notebook.figures.lines` does.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.spectra(
        ...     {"momentum": [9.0, 1.0, 0.1], "after five steps": [1.1, 0.9, 0.8]}
        ... )  # doctest: +SKIP
    """
    rows = {
        name: np.sort(numbers(values, name))[::-1] for name, values in named.items()
    }
    if relative:
        rows = {name: row / row[0] for name, row in rows.items()}
    longest = max((row.size for row in rows.values()), default=1)
    lines(
        np.arange(1, longest + 1),
        rows,
        xlabel="rank of the singular value (1 = largest)",
        ylabel=ylabel or "singular value" + " ÷ largest" * relative,
        logy=log,
        ylim=ylim,
        ax=ax,
    )
