"""Figures with dials that work in a static page: every frame is drawn beforehand.

A page of the book has no kernel, so a dial cannot ask Python for a new picture. Each
setting is drawn once, as an SVG in an ``HTML`` widget, and the dial's index is linked
in the browser to the index of a ``Stack``; two dials are stacks inside a stack.
ipywidgets 7 (Colab) has no ``Stack``; there, with a kernel at hand, an ``observe``
swaps the frames.
"""

import base64
import html
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
from IPython.display import display
from matplotlib.figure import Figure

from stacklm.notebook.figures import style

BUDGET = 24  # frames on a page: each adds about 12 kB that every reader downloads
_CONTROLS = {
    "slider": widgets.SelectionSlider,
    "buttons": widgets.ToggleButtons,
    "list": widgets.Dropdown,
}


@dataclass(frozen=True)
class Dial:
    """One thing the reader can turn.

    Args:
        label: The words beside the control, with the unit where there is one.
        values: What ``draw`` gets, one value per position; at least two, no two alike
            as text.
        control: ``"slider"`` for an ordered quantity, ``"buttons"`` for up to four
            named settings, ``"list"`` for more.
        start: The value shown first; the first of ``values`` if left out.

    Raises:
        ValueError: If ``values``, ``control`` or ``start`` breaks one of these rules.
    """

    label: str
    values: Sequence[Any]
    control: str = "slider"
    start: Any = None

    def __post_init__(self):
        object.__setattr__(self, "values", tuple(self.values))
        texts = [str(value) for value in self.values]
        if len(texts) < 2 or len(set(texts)) < len(texts):
            raise ValueError(
                f"a dial needs at least two values that read differently, got {texts}"
            )
        if not self.label.strip():
            raise ValueError(f"a dial needs a label that says what it sets, got {self}")
        if self.control not in _CONTROLS:
            raise ValueError(
                f"a dial's control is one of {list(_CONTROLS)}, got {self.control!r}"
            )
        if self.start is not None and self.start not in self.values:
            raise ValueError(f"start={self.start!r} is not among the values {texts}")

    @property
    def index(self) -> int:
        """Position of the value shown first."""
        return 0 if self.start is None else self.values.index(self.start)


class Explorer:
    """What :func:`explore` returns; as the last expression of a cell it shows itself.

    Attributes:
        captions: The text of each frame by the dials' values, ``{(3, "flat"): "..."}``.
        widget: The ipywidgets box that is displayed.
    """

    def __init__(self, dials: Mapping[str, Dial], captions: dict, widget: widgets.VBox):
        self.captions = captions
        self.widget = widget
        self._dials = dials

    def __str__(self) -> str:
        labels = [dial.label for dial in self._dials.values()]
        return "\n".join(
            f"{_setting(labels, values)}: {caption}"
            for values, caption in self.captions.items()
        )

    def table(self) -> str:
        """Return every frame in words: a folded HTML table, one row per setting.

        It is what the figure tells to a reader who does not see it, and to one whose
        page runs no script.
        """
        heads = [*(dial.label for dial in self._dials.values()), "What it shows"]
        rows = [[*values, text] for values, text in self.captions.items()]
        return (
            "<details><summary>What the figure shows, as a table</summary><table>"
            f"<thead>{_row(heads, 'th')}</thead>"
            f"<tbody>{''.join(_row(row, 'td') for row in rows)}</tbody>"
            "</table></details>"
        )

    def _ipython_display_(self) -> None:
        view = {
            "version_major": 2,
            "version_minor": 0,
            "model_id": self.widget.model_id,
        }
        # The plain text is what nbval compares (it cannot see into widgets).
        bundle = {
            "text/plain": str(self),
            "application/vnd.jupyter.widget-view+json": view,
        }
        display(bundle, raw=True)
        words = {"text/plain": "[the figure as a table]", "text/html": self.table()}
        display(words, raw=True)


def explore(
    draw: Callable[..., str],
    dials: Mapping[str, Dial],
    *,
    size: tuple[float, float] = (5.6, 3.1),
    columns: int = 1,
    budget: int = BUDGET,
) -> Explorer:
    """Draw every setting of one or two dials, for a figure that switches between them.

    Args:
        draw: Called as ``draw(ax, **values)`` with a value of each dial by name; draws
            on ``ax`` (a list of axes when ``columns`` > 1) and returns one or two
            sentences that state the frame's numbers. They become the caption, which is
            the text equivalent of the picture, so they must be built from the data.
        dials: One or two dials by the name of the argument they set, outer dial first.
        size: Width and height of a frame in inches (96 page pixels each).
        columns: Axes side by side in a frame.
        budget: Most frames allowed. A page has 24 in all: with two explorers on a page,
            give each its share.

    Returns:
        The explorer. End the cell with it, or with a name bound to it, to show it.

    Raises:
        TypeError: If ``draw`` returns something else than a string.
        ValueError: If there are no dials or more than two, too many frames, or an empty
            caption.

    Example:
        >>> from stacklm.notebook import Dial, explore
        >>> def draw(ax, k):
        ...     ax.plot([0, 1], [0, k])
        ...     return f"A line of slope {k}."
        >>> lines = explore(draw, {"k": Dial("Slope", [1, 2, 3])})
        >>> lines.captions[(2,)]
        'A line of slope 2.'
    """
    _check_budget(dials, budget)
    captions, drawn = {}, {}
    for values in itertools.product(*(dial.values for dial in dials.values())):
        named = dict(zip(dials, values, strict=True))
        captions[values], drawn[values] = _frame(draw, named, size, columns)
    style.align(list(drawn.values()))
    labels = [dial.label for dial in dials.values()]
    bodies = {
        values: _body(style.svg(figure), _setting(labels, values), captions[values])
        for values, figure in drawn.items()
    }
    return Explorer(dict(dials), captions, _assemble(list(dials.values()), bodies))


def _check_budget(dials: Mapping[str, Dial], budget: int) -> None:
    if not 1 <= len(dials) <= 2:
        raise ValueError(
            f"an explorer has one or two dials, got {len(dials)}: {list(dials)}; turn "
            "further parameters into named presets of a list"
        )
    frames = 1
    for dial in dials.values():
        frames *= len(dial.values)
    if frames > budget:
        raise ValueError(
            f"an explorer may have {budget} frames, got {frames}; every reader "
            "downloads each of them: give the dials fewer values"
        )


def _row(cells: Sequence[Any], tag: str) -> str:
    """Return one row of an HTML table; ``tag`` is ``th`` or ``td``."""
    opened = '<th scope="col">' if tag == "th" else "<td>"
    inside = (f"{opened}{html.escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{''.join(inside)}</tr>"


def _setting(labels: Sequence[str], values: Sequence[Any]) -> str:
    """Say in words where the dials stand: ``Steps 3, Spectrum flat``."""
    return ", ".join(
        f"{label} {value}" for label, value in zip(labels, values, strict=True)
    )


def _frame(draw, values, size, columns) -> tuple[str, Figure]:
    """Draw one frame; return its caption and the figure."""
    figure, axes = style.new_figure(size, columns, layout=None)
    with style.styled():
        caption = draw(axes[0] if columns == 1 else axes, **values)
    if not isinstance(caption, str):
        raise TypeError(
            f"draw must return the frame's caption as a string, got {caption!r} for "
            f"{values}; state the frame's numbers in it"
        )
    if not caption.strip():
        raise ValueError(f"draw returned an empty caption for {values}")
    return caption.strip(), figure


def _body(picture: str, setting: str, caption: str) -> str:
    """Return the HTML of one frame: the picture, and its numbers as text below."""
    data = base64.b64encode(picture.encode()).decode("ascii")
    alt = html.escape(f"Plot for {setting}. The text below states what it shows.")
    return (
        '<figure style="margin:0">'
        f'<img alt="{alt}" style="max-width:100%;height:auto" '
        f'src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _control(dial: Dial) -> Any:
    """Return the widget for ``dial``: reached by Tab, turned by the arrow keys."""
    return _CONTROLS[dial.control](
        options=[str(value) for value in dial.values],
        index=dial.index,
        description=dial.label,
        style={"description_width": "initial"},
        layout={"width": "100%", "max_width": "480px"},
    )


def _assemble(dials: list[Dial], bodies: dict[tuple, str]) -> widgets.VBox:
    """Put controls and frames together, in an order that is the same each time."""
    controls = [_control(dial) for dial in dials]
    first, *others = bodies.values()
    frames = [widgets.HTML(value=first)]
    # One layout and one style for all: a page then carries two models less per frame.
    shared = {"layout": frames[0].layout, "style": frames[0].style}
    frames += [widgets.HTML(value=body, **shared) for body in others]
    width = len(dials[-1].values)
    rows = [frames[at : at + width] for at in range(0, len(frames), width)]
    join = _stacked if hasattr(widgets, "Stack") else _swapped
    return widgets.VBox([*controls, join(controls, rows)])


def _stacked(controls: list, rows: list[list]) -> widgets.Widget:
    """Link the controls to stacks in the browser: no kernel takes part."""
    layout = widgets.Layout()
    inner, outer = controls[-1], controls[0]
    stacks = [
        widgets.Stack(row, selected_index=inner.index, layout=layout) for row in rows
    ]
    for stack in stacks:
        widgets.jslink((inner, "index"), (stack, "selected_index"))
    if len(controls) == 1:
        return stacks[0]
    whole = widgets.Stack(stacks, selected_index=outer.index, layout=layout)
    widgets.jslink((outer, "index"), (whole, "selected_index"))
    return whole


def _swapped(controls: list, rows: list[list]) -> widgets.Box:
    """Let the kernel put the chosen frame into a box, for ipywidgets without Stack."""
    box = widgets.Box()

    def swap(_change: Any = None) -> None:
        row = rows[controls[0].index] if len(controls) == 2 else rows[0]
        box.children = (row[controls[-1].index],)

    for control in controls:
        control.observe(swap, names="index")
    swap()
    return box
