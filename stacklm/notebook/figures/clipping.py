"""The figure about QK-clip: every head's largest logit, before and after."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stacklm.notebook.figures import style
from stacklm.notebook.figures.plots import numbers

WORD = 0.15  # of the axes' width, left free for "τ = 100"
GAP = 0.5  # between KV groups, in widths of a head


def head_logits(
    before: Any,
    after: Mapping[str, Any],
    *,
    tau: float,
    groups: int,
    top: float | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw one outlined bar per head, and in it what each rule makes of it.

    Args:
        before: Largest logit of every head, H numbers, not negative.
        after: Up to three rows of H numbers by the name of the rule.
        tau: The threshold: a thin guide across the figure (logit units).
        groups: Query heads per KV head; groups are set apart.
        top: Upper end of the axis; give it in an explorer, so that frames compare.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: If a row's length differs from that of ``before``, there are no or
            more than three rows, a number is negative, or ``groups`` does not divide H.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.head_logits(
        ...     [120, 50], {"clipped": [100, 45.6]}, tau=100, groups=2
        ... )  # doctest: +SKIP
    """
    before = numbers(before, "before")
    rows = {name: numbers(row, name) for name, row in after.items()}
    _check(before, rows, groups)
    heads = np.arange(before.size)
    at = heads + GAP * (heads // groups)
    with style.canvas(ax) as ax:
        style.guide(ax, tau, f"τ = {tau:g}")
        ax.bar(at, before, width=0.86, fill=False, edgecolor=style.INK, linewidth=1.0)
        ends = [(at[-1] + 0.4, before[-1], f"before {before[-1]:.0f}", style.INK)]
        width = 0.76 / len(rows)
        for index, (name, row) in enumerate(rows.items()):
            colour = style.COLOURS[index]
            shift = (index - (len(rows) - 1) / 2) * width
            ax.bar(at + shift, row, width=width, color=colour)
            ends.append((at[-1] + 0.4, row[-1], f"{name} {row[-1]:.0f}", colour))
        left, right = at[0] - 0.5, at[-1] + 0.5
        # The threshold's word stands in a column of its own: bars would cross it.
        ax.set_xlim(left - WORD / (1 - WORD) * (right - left), right)
        ax.set_xticks(at, [str(head) for head in heads])
        ax.tick_params(axis="x", length=0)
        ax.grid(axis="x", visible=False)
        ax.set(xlabel="query head", ylabel="largest logit", ylim=(0, top))
        style.label_ends(ax, ends)


def _check(before: np.ndarray, rows: dict[str, np.ndarray], groups: int) -> None:
    if not 1 <= len(rows) <= 3:
        raise ValueError(f"head_logits compares one to three rules, got {len(rows)}")
    if groups < 1 or before.size % groups:
        raise ValueError(
            f"groups must divide the number of heads, got {groups} for {before.size}"
        )
    for name, row in {"before": before, **rows}.items():
        if row.size != before.size:
            raise ValueError(
                f"every rule has one logit per head, but {name} has {row.size} for "
                f"{before.size}"
            )
        if (row < 0).any():
            raise ValueError(f"bars start at 0, but {name} has {row.min():.3g}")
