"""Figures: the same bytes, readable on both backgrounds; what cannot be is an error."""

import base64
import io
import struct

import matplotlib.image
import numpy as np
import pytest
import torch

from stacklm.notebook import figures
from stacklm.notebook.figures import style
from stacklm.notebook.figures.plots import numbers

BACKGROUNDS = ("#ffffff", "#121212")


SWEEP = {0.01: [3, 4], 0.02: [1, 2], 0.04: [2, 6]}


def u_curve(named, **options):
    figures.u_curve(named, xlabel="rate", ylabel="loss", **options)


def cubic(sigma):
    return 1.5 * sigma - 0.5 * sigma**3


CALLS = {
    "iterates": lambda ax=None: figures.iterates(cubic, steps=3, band=(0.7, 1), ax=ax),
    "iterates, log": lambda ax=None: figures.iterates(cubic, steps=2, low=1e-3, ax=ax),
    "trace": lambda ax=None: figures.trace([[0.1, 0.9], [0.3, 1.1]], ax=ax),
    "spectra": lambda ax=None: figures.spectra({"a": [1, 3], "b": [2, 1]}, ax=ax),
    "lines": lambda ax=None: figures.lines(
        [1, 2],
        {"a": torch.ones(2), "b": np.ones(2)},
        xlabel="x",
        ylabel="y",
        logx=True,
        level=(1, "one"),
        ax=ax,
    ),
    "bars": lambda ax=None: figures.bars({"a": 1, "b": 2}, unit="MB", ax=ax),
    "u_curve": lambda ax=None: u_curve({"a": SWEEP}, marked={"low": 0.02}, ax=ax),
}


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_every_colour_shows_on_both_backgrounds(background):
    for colour in style.COLOURS:
        assert contrast(colour, background) >= 3.0
    assert contrast(style.INK, background) >= 4.3  # text


def test_lines_differ_in_dash_where_they_might_be_confused():
    looks = [style.line_style(index) for index in range(len(style.COLOURS))]
    assert len({look["color"] for look in looks}) == len(looks)
    assert len({str(look["linestyle"]) for look in looks[:4]}) == 4
    with pytest.raises(ValueError, match="at most 5"):
        style.line_style(5)


@pytest.mark.parametrize("name", CALLS)
def test_a_figure_is_one_png_at_twice_its_shown_size(name, shown):
    assert CALLS[name]() is None
    ((data, metadata),) = shown
    png = base64.b64decode(data["image/png"])
    width, height = struct.unpack(">II", png[16:24])
    size = metadata["image/png"]
    assert (width, height) == (2 * size["width"], 2 * size["height"])
    assert b"Software" not in png
    assert b"Date" not in png
    assert data["text/plain"] == "[figure]"


@pytest.mark.parametrize("name", CALLS)
def test_a_figure_is_the_same_bytes_each_time(name, shown):
    CALLS[name]()
    CALLS[name]()
    assert shown[0] == shown[1]


def test_the_background_is_transparent(shown):
    CALLS["lines"]()
    pixels = matplotlib.image.imread(
        io.BytesIO(base64.b64decode(shown[0][0]["image/png"]))
    )
    assert pixels.shape[2] == 4
    assert pixels[0, 0, 3] == 0
    assert pixels[:, :, 3].max() == 1


@pytest.mark.parametrize("name", CALLS)
def test_with_axes_given_nothing_is_displayed(name, shown):
    _, (ax,) = style.new_figure((6, 3))
    CALLS[name](ax)
    assert shown == []
    assert ax.lines or ax.patches


def drawn(call):
    _, (ax,) = style.new_figure((6, 3))
    call(ax)
    return ax


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_lines_draws_its_data_and_names_each_line():
    ax = drawn(CALLS["lines"])
    assert ax.lines[0].get_xdata().tolist() == [1, 2]
    assert ax.lines[1].get_ydata().tolist() == [1, 1]
    assert set(texts(ax)) == {"a", "b", "one"}
    assert ax.get_legend() is None
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")


def test_names_that_end_at_one_height_do_not_overlap():
    ax = drawn(CALLS["lines"])
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.texts if t.get_text() in "ab"]
    assert not boxes[0].overlaps(boxes[1])


def test_spread_moves_no_more_than_it_must():
    assert style.spread([0, 50, 90], gap=14, top=100) == [0, 50, 90]
    assert style.spread([50, 50, 52], gap=10, top=100) == [50, 60, 70]
    assert style.spread([95, 99], gap=10, top=100) == [90, 100]


def test_iterates_applies_p_again_and_again():
    ax = drawn(CALLS["iterates"])
    sigma = torch.tensor(ax.lines[1].get_xdata())
    for step, line in enumerate(ax.lines[1:], start=1):
        want = sigma
        for _ in range(step):
            want = cubic(want)
        assert np.array_equal(line.get_ydata(), want.numpy())
    assert len(ax.lines) == 1 + 3


def test_trace_names_smallest_and_largest_of_the_last_row():
    ax = drawn(CALLS["trace"])
    assert {"largest 1.100", "smallest 0.300"} <= set(texts(ax))


def test_spectra_sorts_and_divides():
    ax = drawn(lambda ax: figures.spectra({"a": [1, 4, 2]}, relative=True, ax=ax))
    assert ax.lines[0].get_ydata().tolist() == [1, 0.5, 0.25]
    assert ax.get_ylabel() == "singular value ÷ largest"


def test_bars_write_number_and_group_and_share_colours_in_a_group():
    values = {"matrices": 84.54, "embedding": 16.8, "gains": 0.035}
    groups = {"matrices": "Muon", "embedding": "AdamW", "gains": "AdamW"}
    ax = drawn(lambda ax: figures.bars(values, unit="M", groups=groups, ax=ax))
    assert texts(ax) == ["84.5 Muon", "16.8 AdamW", "0.035 AdamW"]
    colours = [bar.get_facecolor() for bar in ax.patches]
    assert colours[1] == colours[2] != colours[0]
    assert [bar.get_width() for bar in ax.patches] == list(values.values())


def test_u_curve_draws_means_bands_and_rings():
    ax = drawn(lambda ax: u_curve({"a": SWEEP, "b": {0.02: [3]}}, ax=ax))
    assert ax.lines[0].get_xdata().tolist() == [0.01, 0.02, 0.04]
    assert ax.lines[0].get_ydata().tolist() == [3.5, 1.5, 4]
    band = ax.collections[0].get_datalim(ax.transData)
    assert (band.ymin, band.ymax) == (1, 6)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [
        "0.01",
        "0.02",
        "0.04",
    ]
    assert set(texts(ax)) == {"a", "b"}
    ax = drawn(CALLS["u_curve"])
    assert ax.lines[1].get_xydata().tolist() == [[0.02, 1.5]]
    assert "low" in texts(ax)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.0],
        np.array([1, 2]),
        torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True),
        [torch.tensor(1.0), np.float32(2)],
        range(1, 3),
    ],
)
def test_numbers_takes_lists_arrays_and_tensors(values):
    row = numbers(values, "values")
    assert row.dtype == np.float64
    assert row.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: numbers([], "x"), "shape"),
        (lambda: numbers(torch.ones(2, 2), "x"), r"shape \(2, 2\)"),
        (lambda: numbers([1, float("nan")], "x"), "NaN"),
        (lambda: figures.lines([1], {}, xlabel="", ylabel=""), "at least one"),
        (lambda: figures.lines([1], {"a": [1, 2]}, xlabel="", ylabel=""), "per x"),
        (
            lambda: figures.lines([1], {"a": [0]}, xlabel="", ylabel="", logy=True),
            "posi",
        ),
        (
            lambda: figures.lines([0], {"a": [1]}, xlabel="", ylabel="", logx=True),
            "posi",
        ),
        (
            lambda: figures.lines(
                [1], {key: [1] for key in "abcdef"}, xlabel="", ylabel=""
            ),
            "at most 5",
        ),
        (lambda: figures.spectra({"a": [1, 0]}), "positive"),
        (lambda: figures.spectra({}), "at least one"),
        (lambda: figures.spectra({"a": [1, 2], "b": [1]}), "per x"),
        (lambda: figures.trace([[1, 2]]), "two or more"),
        (lambda: figures.trace([[1, 2], [1]]), "two or more"),
        (lambda: figures.trace([[1, 2], [1, 0]]), "logarithmic"),
        (lambda: figures.iterates(cubic, steps=0), "at least one step"),
        (lambda: figures.iterates(lambda s: s / 0, steps=1), "not finite"),
        (lambda: figures.iterates(cubic, low=-1.0), "positive"),
        (lambda: u_curve({}), "at least one sweep"),
        (lambda: u_curve(dict.fromkeys("abcdef", SWEEP)), "at most 5"),
        (lambda: u_curve({"a": {0.1: [1, float("inf")]}}), "leave that"),
        (lambda: u_curve({"a": SWEEP}, marked={"low": 0.03}), "points of the first"),
        (lambda: figures.bars({}, unit=""), "shape"),
        (lambda: figures.bars({"a": -1}, unit=""), "negative"),
        (lambda: figures.bars({"a": 1}, unit="", groups={"b": "x"}), "group"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_and_displays_nothing(call, message, shown):
    with pytest.raises(ValueError, match=message):
        call()
    assert shown == []
