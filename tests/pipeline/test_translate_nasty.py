"""Roles and directives where they are hard to see, and two further methods.

The first: a text with holes, filled once with roles and translated, once with what
the roles become, must give the same bytes. The second: a plain CommonMark parser
renders the result, and no MyST may be in the text a reader sees.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from book.pipeline.targets import Equation, Label, Page, Targets
from book.pipeline.translate import leftovers, translate

PAGE = "chapters/01_x"
TARGETS = Targets(
    pages={
        PAGE: Page(PAGE, "X", "X", True),
        "chapters/02_y": Page("chapters/02_y", "Y | Z", "Y | Z", True),
    },
    labels={"y": Label("chapters/02_y", "Y | Z", "Y | Z")},
    equations={"e": Equation(PAGE, 1), "f": Equation(PAGE, 2)},
)


def tr(text: str) -> str:
    return translate(text, page=PAGE, targets=TARGETS, glue={"v": 0.5})


def visible(markdown: str) -> str:
    """What a reader sees beside code and math, by a parser without any MyST."""
    html = MarkdownIt("commonmark").enable("table").render(markdown)
    html = re.sub(r"<code.*?</code>", "", html, flags=re.S)
    html = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", html, flags=re.S)
    return re.sub(r"<[^>]*>", "", html)


INLINE = {
    "code span stays": ("`` {eq}`e` `` {eq}`e`", "`` {eq}`e` `` (1)"),
    "dollar in code": ("`$` {eq}`e` `$`", "`$` (1) `$`"),
    "tick in math": ("$a`b$ {eq}`e` `c`", "$a`b$ (1) `c`"),
    "brace in math": ("$\\{eq\\}_{a}$ {eq}`e`", "$\\{eq\\}_{a}$ (1)"),
    "role in math stays": ("$\\text{eq}`e`$ {eq}`e`", "$\\text{eq}`e`$ (1)"),
    "escaped brace": ("\\{eq}`e` {eq}`e`", "\\{eq}`e` (1)"),
    "escaped backslash": ("\\\\{eq}`e`", "\\\\(1)"),
    "escaped dollar": ("\\$ {eq}`e` \\$", "\\$ (1) \\$"),
    "the same text twice": ("`{eq}` {eq}`e` {eq}`e`", "`{eq}` (1) (1)"),
    "two ticks": ("{eq}``e``", "(1)"),
    "emphasis": ("*a {eq}`e`* **{eq}`f`**", "*a (1)* **(2)**"),
    "link text": ("[{glue:text}`v` {eq}`e`](u)", "[0.5 (1)](u)"),
    "after !": ("Look!{ref}`t <y>`", "Look\\![t](02_y.ipynb)"),
    "after escaped !": ("Look\\!{ref}`t <y>`", "Look\\![t](02_y.ipynb)"),
    "html": ("<b>{eq}`e`</b> <!-- {eq}`e` -->", "<b>(1)</b> <!-- {eq}`e` -->"),
    "footnote": ("a[^n]\n\n[^n]: {eq}`e`", "a[^n]\n\n[^n]: (1)"),
    "hard break": ("a  \n{eq}`e`\\\n{eq}`f`", "a  \n(1)\\\n(2)"),
    "role over two lines": ("a {ref}`t\nu <y>` b", "a [t u](02_y.ipynb) b"),
    "… in a quote": ("> a {ref}`t\n> u <y>` b", "> a [t u](02_y.ipynb) b"),
    "heading": ("## A {eq}`e` ##", "## A (1) ##"),
    "heading of hashes": ("> # # {eq}`e` #", "> # # (1) #"),
    "setext heading": ("A {eq}`e`\nb\n===", "A (1)\nb\n==="),
    "list": ("1. a\n\n   - {eq}`e`\n     {eq}`f`", "1. a\n\n   - (1)\n     (2)"),
    "lazy line": ("> - a\nb {eq}`e`", "> - a\nb (1)"),
    "tabs": ("-\ta\n\n\t{eq}`e`\tb", "-\ta\n\n\t(1)\tb"),
    "trailing spaces": ("  {eq}`e`   \n   {eq}`f`  ", "  (1)   \n   (2)  "),
    "table": (
        "| {eq}`e` | b \\| {eq}`e` |\n|--|--|\n| | {ref}`y` |\n| {eq}`e` | {eq}`e` |",
        "| (1) | b \\| (1) |\n|--|--|\n| | [Y \\| Z](02_y.ipynb) |\n| (1) | (1) |",
    ),
    "table without outer pipes": (
        "> a {eq}`e` | a {eq}`e`\n> --|--\n> `\\|` | {ref}`u\\|v <y>`",
        "> a (1) | a (1)\n> --|--\n> `\\|` | [u\\|v](02_y.ipynb)",
    ),
}


@pytest.mark.parametrize("name", INLINE)
def test_inline(name):
    source, text = INLINE[name]
    assert tr(source) == text


NESTED = {
    "dropdown in note": (
        "::::{note}\nA {eq}`e`.\n:::{dropdown} T\nb\n:::\nc\n::::",
        "> **Note**\n>\n> A (1).\n>\n> <details>\n> <summary>T</summary>\n>\n> b\n>\n"
        "> </details>\n>\n> c",
    ),
    "code in an admonition": (
        ":::{tip}\n```python\n{eq}`e`\n\n:::\n```\n:::",
        None,  # the inner ::: ends the tip, and the code has no end
    ),
    "code in a longer admonition": (
        "::::{tip}\n```python\n{eq}`e`\n\n:::\n```\n::::",
        "> **Tip**\n>\n> ```python\n> {eq}`e`\n>\n> :::\n> ```",
    ),
    "note in dropdown in list": (
        "- a\n\n  ````{dropdown} T\n  ```{note}\n  b\n  ```\n  ````\n- c",
        "- a\n\n  <details>\n  <summary>T</summary>\n\n  > **Note**\n  >\n  > b\n\n"
        "  </details>\n\n- c",
    ),
    "directive right after the marker": (
        "1. :::{note}\n   a\n   :::\n   b",
        "1. > **Note**\n   >\n   > a\n\n   b",
    ),
    "directive in a quote": (
        "> :::{note}\n> a\n> :::\n> b",
        "> > **Note**\n> >\n> > a\n>\n> b",
    ),
    "blank lines are there already": (
        "> a\n>\n> :::{note}\n> b\n> :::\n>\n> c",
        "> a\n>\n> > **Note**\n> >\n> > b\n>\n> c",
    ),
    "in a later item of a tight list": (
        "- a\n- :::{note}\n  b\n  :::",
        "- a\n- > **Note**\n  >\n  > b",
    ),
    "text right before and after": (
        "a\n:::{note}\nb\n:::\nc",
        "a\n\n> **Note**\n>\n> b\n\nc",
    ),
    "two in a row": (
        ":::{note}\na\n:::\n:::{tip}\nb\n:::",
        "> **Note**\n>\n> a\n\n> **Tip**\n>\n> b",
    ),
    "math in a note": (
        ":::{note}\na\n\n$$\nx % why\n= y\n$$ (e)\n\n- b\n\n  $$ z $$ (f)\n:::",
        "> **Note**\n>\n> a\n>\n> $$ x = y \\tag{1} $$\n>\n> - b\n>\n"
        ">   $$ z \\tag{2} $$",
    ),
    "math in a plain quote": ("> $$\n> x\n> $$", "> $$ x $$"),
    "math in a list": (
        "- a\n\n  $$\n  x\n  $$ (e)",
        "- a\n\n  $$\n  x\n  \\tag{1}\n  $$",
    ),
    "note in math stays": ("$$\n:::{note}\n% x\n$$", "$$\n:::{note}\n% x\n$$"),
    "directive shown as code": (
        "````\n:::{note}\n```{tip}\n````",
        "````\n:::{note}\n```{tip}\n````",
    ),
    "comment in a list and a quote": (
        "- a\n  % c\n\n> b\n> % c\n> d",
        "- a\n\n> b\n>\n> d",
    ),
    "comment after a marker": ("- % c\n- a", "-\n- a"),
    "percent in text": ("20 %\nof it, 5% more", "20 %\nof it, 5% more"),
    "label in a note": (
        ":::{note}\n(y)=\n### T\n:::",
        '> **Note**\n>\n> <a id="y"></a>\n>\n> ### T',
    ),
    "two labels": ("(y)=\n(z)=\n# T", '<a id="y"></a>\n\n<a id="z"></a>\n\n# T'),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested(name):
    source, text = NESTED[name]
    if text is None:
        with pytest.raises(ValueError, match=r"line 2 of the cell .*not closed"):
            tr(source)
    else:
        assert tr(source) == text


@pytest.mark.parametrize("name", [*INLINE, *NESTED])
def test_nothing_raw_is_left_for_a_plain_reader(name):
    source, text = (INLINE | NESTED)[name]
    if text is None or "\\{" in source:
        return
    seen = visible(tr(source))
    assert not re.search(r"\{[\w:]+\}|:::|\)=\s*$|^\s*%", seen, flags=re.M), seen
    assert leftovers(tr(source)) == []


# Texts with holes (%s) for roles, and what may stand around the holes.
HOLES = ["%s", "a %s b", "*%s* c", "`x` %s", "$y_1$, %s", "**b** %s.", "[t %s](u)"]
HOLES += ["`` `%%` `` %s", "\\* %s \\$", "<i>%s</i>", "{x} %s", "a, %s", "é σ %s"]
FILLED = {
    "{eq}`e`": "(1)",
    "{glue:text}`v:.1f`": "0.5",
    "{term}`q <r>`": "q",
}
INLINE_TEXT = st.lists(st.sampled_from(HOLES), min_size=1, max_size=4).map(" ".join)


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _item(text: str) -> str:
    return "- " + "\n".join(f"  {line}".rstrip() for line in text.split("\n"))[2:]


def _number(text: str) -> str:
    return "1. " + "\n".join(f"   {line}".rstrip() for line in text.split("\n"))[3:]


PARAGRAPH = st.lists(INLINE_TEXT, min_size=1, max_size=3).map("\n".join)
HEADING = INLINE_TEXT.map(lambda text: f"## w {text}")
TABLE = st.tuples(INLINE_TEXT, INLINE_TEXT).map(
    lambda c: f"| h {c[0]} | g |\n|---|---|\n| | {c[1]} |\n| {c[1]} | {c[0]} |"
)
FENCE = st.just("```\n{eq}`e`\n% no comment\n```")
BLOCK = st.one_of(PARAGRAPH, HEADING, TABLE, FENCE)
DOCUMENT = st.recursive(
    BLOCK,
    lambda inner: st.one_of(
        inner.map(_quote),
        inner.map(_item),
        inner.map(_number),
        st.tuples(inner, inner).map("\n\n".join),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(document=DOCUMENT, data=st.data())
def test_filled_before_or_after_gives_the_same_bytes(document, data):
    count = len(re.findall(r"%s", document))
    roles = data.draw(
        st.lists(st.sampled_from([*FILLED]), min_size=count, max_size=count)
    )
    # Filled by hand, since "%" means itself in fences.
    source, expected = document, document
    for role in roles:
        source = source.replace("%s", role, 1)
        expected = expected.replace("%s", FILLED[role], 1)
    targets = Targets(
        pages=TARGETS.pages, equations=TARGETS.equations, terms={"r": PAGE}
    )
    assert translate(source, page=PAGE, targets=targets, glue={"v": 0.5}) == expected
