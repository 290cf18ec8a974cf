"""What ranks that differ are told, word for word, without ranks."""

import pytest

from stacklm.optim.agree import _difference, _first_line, _named

REMEDY = (
    "; nothing was changed. Give every rank the same parameters, options and "
    "gradients: a parameter that only some ranks used needs p.grad = "
    "torch.zeros_like(p) on the others"
)


@pytest.mark.parametrize(
    ("facts", "who"),
    [
        ({0: ["a"], 1: ["b"]}, "a on rank 0; b on rank 1"),
        ({2: ["a", "x"], 5: ["a", "y"], 7: ["a", "x"]}, "x on ranks 2, 7; y on rank 5"),
        ({0: ["a", "x", "p"], 1: ["a", "y", "q"]}, "x on rank 0; y on rank 1"),
        ({0: ["a"], 1: ["a", "b"], 2: ["a"]}, "nothing on ranks 0, 2; b on rank 1"),
        ({0: [], 1: ["a"]}, "nothing on rank 0; a on rank 1"),
    ],
)
def test_the_first_difference_is_told_with_who_has_what(facts, who):
    told = f"all ranks must take the same step of Muon, got {who}"
    assert _difference(facts) == told + REMEDY


def test_ranks_are_named():
    assert _named([3]) == "rank 3"
    assert _named([0, 1, 12]) == "ranks 0, 1, 12"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Timed out. . ", "Timed out"),
        ("\n  Connection closed.\nby peer\n", "Connection closed"),
        ("lost rank X", "lost rank X"),
        ("", "no text"),
    ],
)
def test_of_an_error_the_first_line_is_told(text, line):
    assert _first_line(RuntimeError(text)) == line
