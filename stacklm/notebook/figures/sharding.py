"""The figure about time: when a process does what."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from stacklm.notebook.figures import style


def timeline(
    lanes: Mapping[str, Sequence[tuple[float, float]]],
    *,
    unit: str,
    groups: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> None:
    """Draw one row of blocks per lane over a common time, its end written beside it.

    Args:
        lanes: (begin, end) of every block, by the name of the lane; first on top.
            Blocks of a lane may overlap.
        unit: Quantity and unit of time, written under the axis.
        groups: The group of every lane, by name; lanes of a group share a colour.
        ax: Axes to draw on; left out, the figure is displayed.

    Raises:
        ValueError: There is no lane, a lane has no block, a block ends before it
            begins, or a lane has no group.

    Example:
        >>> from stacklm.notebook import figures
        >>> figures.timeline(
        ...     {"exchanges": [(0, 2), (5, 7)], "products": [(2, 5)]},
        ...     unit="milliseconds",
        ... )  # doctest: +SKIP
    """
    _check(lanes)
    groups = dict.fromkeys(lanes, "") if groups is None else groups
    if missing := [name for name in lanes if name not in groups]:
        raise ValueError(f"every lane needs a group, {missing} have none")
    kinds = list(dict.fromkeys(groups[name] for name in lanes))
    with style.canvas(ax, size=(5.6, 1.0 + 0.42 * len(lanes))) as ax:
        for at, (name, blocks) in enumerate(lanes.items()):
            colour = style.line_style(kinds.index(groups[name]))["color"]
            # An outline keeps a block visible that is thinner than a pixel.
            spans = [(begin, end - begin) for begin, end in blocks]
            ax.broken_barh(
                spans, (at - 0.31, 0.62), color=colour, edgecolor=colour, linewidth=0.4
            )
            last = max(end for _, end in blocks)
            style.note(ax, f"{last:,.3g}", last, at, (5, 0), color=colour)
        ax.set_yticks(range(len(lanes)), list(lanes))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(left=0)
        ax.set_xlabel(unit)


def _check(lanes: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    if not lanes:
        raise ValueError("a timeline needs at least one lane, got none")
    for name, blocks in lanes.items():
        if not blocks:
            raise ValueError(f"a lane needs at least one block, {name} has none")
        if wrong := [block for block in blocks if block[1] < block[0]]:
            raise ValueError(
                f"a block ends after it begins, {name} has {tuple(wrong[0])}; give "
                "(begin, end)"
            )
