"""show() gives the code that runs; glue() gives what myst-nb reads back."""

import ast
import inspect
import math
import types

import numpy as np
import pytest
import torch

from stacklm import config
from stacklm.notebook import display, glue, show
from stacklm.notebook.explorer import Dial

CLASS = '''
class Thing:
    """What it is.

    More.
    """

    x = 1  # a comment that stays

    def f(self):
        """Only a docstring."""

    def g(self):
        "One quote."
        # why
        return """not a docstring"""
'''


def test_show_is_markdown_with_plain_text_beside_it(shown):
    show(config.flops_per_token)
    ((data, metadata),) = shown
    assert set(data) == {"text/markdown", "text/plain"}
    assert metadata == {}
    assert data["text/markdown"] == f"```python\n{data['text/plain']}\n```"


def test_show_names_the_file_and_leaves_out_the_docstring(shown):
    show(config.flops_per_token)
    head, *code = shown[0][0]["text/plain"].split("\n")
    file = inspect.getsourcefile(config.flops_per_token)
    assert head.startswith("# stacklm/")
    assert file.endswith(head.removeprefix("# "))
    tree = ast.parse("\n".join(code))
    assert ast.get_docstring(tree.body[0]) is None
    assert ast.get_docstring(
        ast.parse(inspect.getsource(config.flops_per_token)).body[0]
    )
    assert code[0].startswith("def flops_per_token(")


def test_show_puts_several_things_in_one_block(shown):
    show(config.flops_per_token, Dial)
    ((data, _),) = shown
    assert "def flops_per_token(" in data["text/plain"]
    assert "\n\n\n# stacklm/notebook/explorer.py\n@dataclass" in data["text/plain"]


def test_show_dedents_methods(shown):
    show(Dial.__post_init__)
    assert shown[0][0]["text/plain"].split("\n")[1].startswith("def __post_init__")


def test_docstrings_are_cut_everywhere_and_nothing_else():
    code = display.without_docstrings(CLASS.strip())
    expected = '''class Thing:
    x = 1  # a comment that stays

    def f(self):
        ...

    def g(self):
        # why
        return """not a docstring"""'''
    assert code == expected


def test_code_without_docstring_is_unchanged():
    code = "def f(x):\n    # why\n    return x"
    assert display.without_docstrings(code) == code


def test_every_shown_source_still_parses():
    for thing in (config.StackConfig, config.TrainConfig, Dial, display.source):
        ast.parse(display.source(thing))


@pytest.mark.parametrize("thing", [3, "text", Dial("k", [1, 2]), types, None])
def test_show_refuses_what_has_no_source(thing, shown):
    with pytest.raises(TypeError, match="functions and classes"):
        show(thing)
    assert shown == []


@pytest.mark.parametrize("thing", [torch.nn.Linear, len, inspect.getsource])
def test_show_refuses_code_of_others(thing, shown):
    with pytest.raises(ValueError, match="displays code of stacklm"):
        show(thing)
    assert shown == []


def test_show_needs_something():
    with pytest.raises(ValueError, match="at least one"):
        show()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456789, "0.123457"),
        (np.float64(2 / 3), "0.666667"),
        (np.float32(0.1), "0.1"),
        (torch.tensor(2 / 3), "0.666667"),
        (torch.tensor(1.5, requires_grad=True), "1.5"),
        (torch.tensor(7), "7"),
        (101_353_728, "101353728"),
        (np.int64(210), "210"),
        (-1e-30, "-1e-30"),
        (-0.0, "0.0"),
        (1e22 / 3, "3.33333e+21"),
        ("two cores", "'two cores'"),
    ],
)
def test_glue_writes_plain_numbers(value, text, shown):
    glue("name", value)
    assert shown == [
        (
            {"application/papermill.record/text/plain": text},
            {
                "scrapbook": {
                    "name": "name",
                    "mime_prefix": "application/papermill.record/",
                }
            },
        )
    ]


def test_glue_keeps_the_digits_asked_for(shown):
    glue("a", math.pi, digits=2)
    glue("b", math.pi, digits=15)
    texts = [next(iter(data.values())) for data, _ in shown]
    assert texts == ["3.1", "3.14159265358979"]


def test_myst_nb_reads_back_what_glue_wrote(shown):
    extract = pytest.importorskip("myst_nb.ext.glue").extract_glue_data_cell
    nbformat = pytest.importorskip("nbformat")
    glue("low", 0.6818181)
    outputs = [
        nbformat.v4.new_output("display_data", data, metadata=metadata)
        for data, metadata in shown
    ]
    cell = nbformat.v4.new_code_cell("", outputs=outputs)
    ((key, found),) = extract(cell)
    assert key == "low"
    assert found["data"]["text/plain"] == "0.681818"
    assert cell.outputs == []  # nothing is left to show below the cell


@pytest.mark.parametrize("name", ["", "two words", "a:b", "1a", "a-b", 3])
def test_glue_refuses_names_that_a_role_cannot_hold(name, shown):
    with pytest.raises(ValueError, match="identifier"):
        glue(name, 1.0)
    assert shown == []


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, torch.tensor(math.nan)]
)
def test_glue_refuses_what_is_not_finite(value, shown):
    with pytest.raises(ValueError, match="finite"):
        glue("name", value)
    assert shown == []


@pytest.mark.parametrize("value", [None, [1.0], np.ones(1), torch.ones(2), True, 1j])
def test_glue_refuses_what_is_not_one_number(value, shown):
    with pytest.raises(TypeError, match="one number or a string"):
        glue("name", value)
    assert shown == []


@pytest.mark.parametrize("digits", [0, 16, -1])
def test_glue_refuses_digits_out_of_range(digits):
    with pytest.raises(ValueError, match="1 to 15"):
        glue("name", 1.0, digits=digits)
