"""One look for every figure of the book, and the two ways a figure leaves matplotlib.

The background is transparent, because pages have a light and a dark theme. Ink and
lines are chosen so that each has a contrast of at least 3 : 1 on white and on
``#121212``; a test computes it. Lines are named where they run, not in a legend, and
differ in dash as well as in colour, so that nothing rests on colour alone.
"""

import base64
import io
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stacklm.notebook.figures.ticks import calm_ticks as calm_ticks

INK = "#797979"  # text and axes: the grey with equal contrast on white and #121212
FAINT = "#7979794d"  # grid and guides
# After Okabe and Ito's palette for colour-blind readers (2008), keeping the hues that
# show on both backgrounds; purple is darkened for that.
COLOURS = ("#0076ba", "#d55e00", "#009e73", "#b8629a", INK)
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), "-")

PNG_DPI = 200  # shown at 100 dots per inch: two pixels of file for one of the page
_RC = {
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 1.0,
    "axes.prop_cycle": mpl.cycler(color=COLOURS),
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 11,
    "lines.linewidth": 2.0,
    "path.simplify": True,
    "svg.hashsalt": "stacklm",
    "svg.fonttype": "none",  # glyphs as outlines would triple each frame
}


def styled() -> AbstractContextManager:
    """Return a context in which matplotlib draws in the book's style."""
    return mpl.rc_context(_RC)


@contextmanager
def canvas(ax: Axes | None = None, size: tuple[float, float] = (5.6, 3.2)) -> Iterator:
    """Give axes to draw on; without ``ax``, make a figure and display it at the end.

    Args:
        ax: Axes of a figure that someone else will display (an explorer's frame), or
            None.
        size: Width and height in inches of the figure that is made when ``ax`` is None.
            A phone shrinks it to 3.4 inches and the words in it with it: keep it small.

    Yields:
        The axes.
    """
    if ax is not None:
        yield ax
        return
    with styled():
        figure, (axes,) = new_figure(size)
        yield axes
        display_png(figure)


def new_figure(
    size: tuple[float, float], columns: int = 1, layout: str | None = "constrained"
) -> tuple[Figure, list[Axes]]:
    """Make a figure in the book's style, outside of pyplot's global state.

    Args:
        size: Width and height in inches.
        columns: Number of axes side by side.
        layout: Matplotlib's layout engine, or None for :func:`align` to settle it.

    Returns:
        The figure and its axes, left to right.
    """
    with styled():
        figure = Figure(figsize=size, layout=layout)
        return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def align(figures: list[Figure]) -> None:
    """Give figures of one size the same margins, wide enough for each one's labels.

    The axes then stay where they are while an explorer switches between frames.

    Args:
        figures: Figures of :func:`new_figure` with ``layout=None``, drawn.

    Raises:
        ValueError: If labels leave less than an inch for the axes.
    """
    need = np.zeros(4)  # left, bottom, right, top, in inches
    with styled():
        for ax in (ax for figure in figures for ax in figure.axes):
            inner, outer = ax.get_window_extent(), ax.get_tightbbox()
            gaps = np.concatenate([inner.min - outer.min, outer.max - inner.max])
            need = np.maximum(need, gaps / ax.figure.dpi)
    left, bottom, right, top = need + 0.06
    (width, height), columns = figures[0].get_size_inches(), len(figures[0].axes)
    room = width / columns - left - right
    if room < 1 or height - bottom - top < 1:
        raise ValueError(
            f"labels leave {room:.1f} × {height - bottom - top:.1f} inches for the "
            "axes, at least 1 × 1 is needed; shorten names or give a larger size"
        )
    for figure in figures:
        figure.subplots_adjust(
            left / width,
            bottom / height,
            1 - right / width,
            1 - top / height,
            wspace=(left + right) / room,
        )


def display_png(figure: Figure) -> None:
    """Display ``figure`` as a PNG at twice the page's pixels, the same bytes each time.

    Args:
        figure: A figure of :func:`new_figure`.
    """
    buffer = io.BytesIO()
    with styled():
        # Matplotlib writes its version into a PNG unless told not to.
        figure.savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": None})
    width, height = (round(100 * inches) for inches in figure.get_size_inches())
    display(
        {
            "image/png": base64.b64encode(buffer.getvalue()).decode("ascii"),
            "text/plain": "[figure]",
        },
        raw=True,
        metadata={"image/png": {"width": width, "height": height}},
    )


def svg(figure: Figure) -> str:
    """Return ``figure`` as SVG text: no date, fixed ids, coordinates to a hundredth.

    Args:
        figure: A figure of :func:`new_figure`.

    Returns:
        The ``<svg>`` element, without XML prolog, document type and metadata.
    """
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Metadata carries the date and the version.
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    # Ids of groups are never referred to, and a hundredth of a point is below what an
    # eye can see: without them a frame is half as long.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"\d+\.\d{3,}", lambda digits: f"{float(digits.group()):.2f}", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    # Named once, with a fallback: readers' machines need not have matplotlib's font.
    text = text.replace("font-family: 'DejaVu Sans'; ", "")
    font = "text{font-family:'DejaVu Sans',Verdana,sans-serif}</style>"
    return re.sub(r"\s*\n\s*", " ", text).replace("</style>", font).strip()


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dash of the line number ``index``, counted from 0.

    Args:
        index: Which line of the figure, 0 to 4.

    Returns:
        Keyword arguments for ``Axes.plot``.

    Raises:
        ValueError: If the figure would need a sixth kind of line.
    """
    if not 0 <= index < len(COLOURS):
        raise ValueError(
            f"a figure has at most {len(COLOURS)} named lines, got number {index + 1}; "
            "show fewer, or make two figures"
        )
    return {"color": COLOURS[index], "linestyle": DASHES[index]}


def label_ends(ax: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write each line's name to the right of its last point, kept from overlapping.

    Lines that run the whole way are named beyond the edge of the axes, so that neither
    the x axis nor a guide passes under the words.

    Args:
        ax: Axes whose limits and scales are final.
        ends: Last x, last y, name and colour of each line.
    """
    height = ax.figure.get_size_inches()[1] * 72 * 0.72  # points that the axes have
    to_axes = ax.transData + ax.transAxes.inverted()
    ends = sorted(ends, key=lambda end: end[1])
    wanted = [to_axes.transform(end[:2])[1] * height for end in ends]
    spaced = spread(wanted, gap=14.0, top=height)
    furthest = max((end[0] for end in ends), default=0.0)
    for (x, y, name, colour), old, new in zip(ends, wanted, spaced, strict=True):
        whole = x == furthest
        where = {"xycoords": ax.get_yaxis_transform()} if whole else {}
        shift = (4 if whole else 6, new - old)
        note(ax, name, 1 if whole else x, y, shift, color=colour, **where)


def spread(wanted: list[float], gap: float, top: float) -> list[float]:
    """Move sorted positions until neighbours are ``gap`` apart, none above ``top``.

    Args:
        wanted: Ascending positions.
        gap: Least distance between neighbours.
        top: Highest position allowed.

    Returns:
        Ascending positions, each moved no further than its neighbours force it.
    """
    placed: list[float] = []
    for at in wanted:
        placed.append(max(at, placed[-1] + gap) if placed else at)
    for index in reversed(range(len(placed))):
        limit = placed[index + 1] - gap if index + 1 < len(placed) else top
        placed[index] = min(placed[index], limit)
    return placed


def guide(ax: Axes, height: float, name: str) -> None:
    """Draw a thin horizontal line to compare with, named above its left end.

    Args:
        ax: Axes to draw on.
        height: Where, in data units.
        name: What the height is.
    """
    ax.axhline(height, color=INK, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    left = ax.get_yaxis_transform()  # x in fractions of the axes, y in data units
    note(ax, name, 0, height, (4, 6), xycoords=left, fontsize=9, fontweight="normal")


def note(
    ax: Axes, text: str, x: float, y: float, shift: tuple[float, float], **look: Any
) -> None:
    """Write a word at a point of the figure, also where it leaves the axes.

    Args:
        ax: Axes to draw on.
        text: The word.
        x: Abscissa in data units.
        y: Height in data units.
        shift: How far right and up of the point the text starts, in points.
        look: Text properties that differ from small bold type.
    """
    look = {"fontsize": 10, "fontweight": "bold", "va": "center", **look}
    ax.annotate(
        text,
        (x, y),
        xytext=shift,
        textcoords="offset points",
        annotation_clip=False,
        **look,
    )
