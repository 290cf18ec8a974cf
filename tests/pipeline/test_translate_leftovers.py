"""The detector that reads committed notebooks finds raw MyST, and nothing else."""

import pytest

from book.pipeline.translate import leftovers

RAW = {
    "a {ref}`x` b": "role: {ref}`x`",
    "{glue:text}`x:.2f`": "role: {glue:text}`x:.2f`",
    "`a` {cite:p}`x` `b`": "role: {cite:p}`x`",
    "| a | {eq}``x`` |": "role: {eq}``x``",
    "{unknown}`x`": "role: {unknown}`x`",
    "$a$ {ref}`x` $b$": "role: {ref}`x`",
    "- a\n\n  :::{note}\n  x\n  :::": "directive: :::{note}",
    "> ```{tip}\n> x\n> ```": "directive: :::{tip}",
    "::: note\nx": "directive: ::: note",
    "~~~{note}\nx\n~~~": "directive: ~~~{note}",
    "(a-b)=\n# T": "target: (a-b)=",
    "- (a)=": "target: (a)=",
    "$$ x $$ (eq-a)": "equation label: (eq-a)",
    "$$\nx\n$$ (eq-a)\ny": "equation label: (eq-a)",
    "a\n% b": "comment: % b",
    "> % b": "comment: % b",
    "+++ {}": "block break: +++ {}",
    "{#a .b}\n# T": "attributes: {#a .b}",
    "a {{ b }}": "substitution: {{ b }}",
}
PLAIN = [
    "`{ref}`, ``{ref}`x` ``, \\{ref}`x`",
    "```\n{ref}`x`\n:::{note}\n(a)=\n% b\n```",
    "> ````md\n> ```{note}\n> ```\n> ````",
    "$\\frac{a}{b}$ $$ {{x}} $$ \\$5 (a)",
    "$$\n% c\n(a)=\n\\tag{1}\n$$",
    "f(x)=y, 5 % of a, a % b",
    "(a) = b",
    "{a, b} and `c`",
    "| 50% | :--- |",
    "a::b, a:::b",
]


@pytest.mark.parametrize("text", RAW)
def test_finds_raw_myst(text):
    assert RAW[text] in leftovers(text)


@pytest.mark.parametrize("text", PLAIN)
def test_passes_over_plain_markdown_code_and_math(text):
    assert leftovers(text) == []


def test_a_long_formula_without_a_label_is_read_once():
    # With one backslash that fits two ways, this would not end within the day.
    assert leftovers("$$ " + r"\alpha \\ " * 40 + "$$ and more") == []
