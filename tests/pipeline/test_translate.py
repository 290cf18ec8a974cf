"""One test per construct with the exact text that a notebook reader gets."""

import doctest
import sys

import pytest

from book.pipeline.targets import Equation, Label, Page, Targets
from book.pipeline.translate import TranslationError, caption_cell, translate
from book.pipeline.translate_citations import Citation

PAGE = "chapters/02_newton"


@pytest.fixture(scope="module")
def targets() -> Targets:
    found = Targets()
    for name, title, notebook in [
        (PAGE, "Newton–Schulz", True),
        ("chapters/03_step", "The *Muon* step $B$", True),
        ("book/notation", "Notation", False),
        ("book/glossary", "Glossary", False),
    ]:
        found.pages[name] = Page(name, title, title, notebook)
    found.labels = {
        "here": Label(PAGE, "The curve", "The curve"),
        "ch-step": Label("chapters/03_step", "The Muon step B", "The *Muon* step $B$"),
        "symbols": Label("book/notation", "A | B", "A | B"),
        "bare": Label("book/notation"),
    }
    found.equations = {
        "eq-quintic": Equation(PAGE, 2),
        "eq-scale": Equation("chapters/03_step", 1),
    }
    found.terms = {"polar factor": "book/glossary"}
    found.citations = {
        "jordan": Citation("Jordan", "2024", "https://x.org/muon/"),
        "liu": Citation("Liu et al.", "2025", "https://arxiv.org/abs/2502.16982"),
        "odd": Citation("A_b", "n.d.", "https://x.org/a(b)"),
        "unlinked": Citation("Press and Wolf", "2017", None),
    }
    return found


@pytest.fixture
def tr(targets):
    values = {"low": "0.6818", "n": 3, "x": 0.70191, "device": "'a_b *c* `d`'"}
    values |= {"at:0": 0.5, "html": "&lt; <b>"}

    def run(text: str) -> str:
        return translate(text, page=PAGE, targets=targets, glue=values)

    return run


ROLES = [
    # glue, formatted as the page formats it
    ("{glue:text}`low:.2f`", "0.68"),
    ("{glue:text}`low`", "0.6818"),
    ("{glue:text}`x:.1%`", "70.2%"),
    ("{glue:text}`n`", "3"),
    ("{glue:text}`n:d`", "3"),
    ("{glue:text}`n:.1f`", "3.0"),
    ("{glue:text}`device`", r"a\_b \*c\* \`d\`"),
    ("{glue:text}`at:0:.1f`", "0.5"),
    ("{glue:text}`html`", r"&amp;lt; \<b\>"),
    # citations
    ("{cite:t}`jordan`", "[Jordan (2024)](https://x.org/muon/)"),
    (
        "{cite:p}`jordan, liu`",
        "([Jordan, 2024](https://x.org/muon/); "
        "[Liu et al., 2025](https://arxiv.org/abs/2502.16982))",
    ),
    ("{cite:t}`unlinked`", "Press and Wolf (2017)"),
    ("{cite:t}`odd`", r"[A\_b (n.d.)](<https://x.org/a(b)>)"),
    # references
    ("{ref}`ch-step`", "[The *Muon* step $B$](03_step.ipynb)"),
    ("{ref}`Ch-Step`", "[The *Muon* step $B$](03_step.ipynb)"),
    ("{ref}`see a_b <ch-step>`", r"[see a\_b](03_step.ipynb)"),
    ("{ref}`here`", "[The curve](#here)"),
    ("{ref}`symbols`", "[A | B](../book/notation.md)"),
    ("{ref}`the list <bare>`", "[the list](../book/notation.md)"),
    ("{doc}`/chapters/03_step`", "[The *Muon* step $B$](03_step.ipynb)"),
    ("{doc}`03_step`", "[The *Muon* step $B$](03_step.ipynb)"),
    ("{doc}`../book/notation`", "[Notation](../book/notation.md)"),
    ("{doc}`symbols </book/notation>`", "[symbols](../book/notation.md)"),
    ("{eq}`eq-quintic`", "(2)"),
    ("{eq}`eq-scale`", "[(1) in The *Muon* step $B$](03_step.ipynb)"),
    ("{term}`Polar factor`", "[Polar factor](../book/glossary.md)"),
    ("{term}`factors <polar factor>`", "[factors](../book/glossary.md)"),
]


@pytest.mark.parametrize(("role", "text"), ROLES, ids=[role for role, _ in ROLES])
def test_role(tr, role, text):
    assert tr(f"Before {role}, after.") == f"Before {text}, after."


BLOCKS = {
    "one-line equation": (
        "$$ p(\\sigma) = a\\,\\sigma . $$ (eq-quintic)",
        "$$ p(\\sigma) = a\\,\\sigma . \\tag{2} $$",
    ),
    "many-line equation": (
        "$$\n\\begin{aligned}\na &= b \\\\\nc &= d\n\\end{aligned}\n$$ (eq-quintic)\nx",
        "$$\n\\begin{aligned}\na &= b \\\\\nc &= d\n\\end{aligned}\n\\tag{2}\n$$\nx",
    ),
    "equation closed on its last line": (
        "$$ a\n= b $$ (eq-quintic)",
        "$$ a\n= b \\tag{2} $$",
    ),
    "label": ("(here)=\n# The curve", '<a id="here"></a>\n\n# The curve'),
    "label after text": (
        "text\n(here)=\n\n# The curve",
        'text\n\n<a id="here"></a>\n\n# The curve',
    ),
    "note": (
        ":::{note}\nOne.\n\n- a\n- b\n:::",
        "> **Note**\n>\n> One.\n>\n> - a\n> - b",
    ),
    "note on one line": ("```{tip} Short.\n```", "> **Tip**\n>\n> Short."),
    "warning with class": (
        "```{warning}\n:class: sidebar\n\nHot.\n```",
        "> **Warning**\n>\n> Hot.",
    ),
    "important": (":::{important}\nx\n:::", "> **Important**\n>\n> x"),
    "admonition": (
        ":::{admonition} Why `p`, why {eq}`eq-quintic`?\nx {eq}`eq-quintic`\n:::",
        "> **Why `p`, why (2)?**\n>\n> x (2)",
    ),
    "folded admonition": (
        ":::{admonition} Hint\n:class: dropdown\nx\n:::",
        "<details>\n<summary>Hint</summary>\n\nx\n\n</details>",
    ),
    "dropdown": (
        ":::{dropdown} Answer to `f(x)` & more\n:open:\nYes, {glue:text}`n`.\n:::",
        "<details open>\n<summary>Answer to <code>f(x)</code> &amp; more</summary>\n\n"
        "Yes, 3.\n\n</details>",
    ),
    "dropdown with a role in its title": (
        ":::{dropdown} On {eq}`eq-quintic`\nx\n:::",
        "<details>\n<summary>On (2)</summary>\n\nx\n\n</details>",
    ),
    "dropdown without a title": (
        ":::{dropdown}\nx\n:::",
        "<details>\n<summary>Dropdown</summary>\n\nx\n\n</details>",
    ),
    "figure": (
        "```{figure} /book/a.png\n:alt: A [curve]\n:name: fig-a\n:width: 80%\n\n"
        "The *curve* of\n{eq}`eq-quintic`.\n\nA legend.\n```",
        '<a id="fig-a"></a>\n\n![A \\[curve\\]](../book/a.png)\n\n'
        "*The *curve* of\n(2).*\n\nA legend.",
    ),
    "image": ("```{image} ./b.png\n:alt: A dot\n```", "![A dot](b.png)"),
    "comment": ("a\n\n% gone\n% too\n\nb", "a\n\nb"),
    "comment first": ("% gone\na", "a"),
    "comment last": ("a\n% gone", "a"),
    "comment alone": ("% gone", ""),
    "comment between paragraphs": ("a\n% gone\nb", "a\n\nb"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block(tr, name):
    source, text = BLOCKS[name]
    assert tr(source) == text


def test_text_that_needs_no_change_is_byte_identical(tr):
    text = (
        "# T `{ref}`\n\n* odd   spacing  \n\tand tabs\n\n| a | b |\n|---|---|\n"
        "| `x \\| y` | $a_1$ |\n\n$$\nx\n$$\n\n```python\n{ref}`x`\n```\n\n"
        "    {ref}`code`\n\nA[^1] \\{ref}, <b>html</b> &amp; [x](https://a.b).\n\n"
        "[^1]: Note.\n\n***\n\n> q\nlazy\n\n  \n"
    )
    assert tr(text) == text


def test_glue_takes_python_values_and_records_alike(targets):
    def run(value, spec):
        text = f"{{glue:text}}`v{spec}`"
        return translate(text, page=PAGE, targets=targets, glue={"v": value})

    assert run(1234567.0, ":,.0f") == run("1234567.0", ":,.0f") == "1,234,567"
    assert run("'fp32'", "") == run("fp32", "") == "fp32"
    assert run("nan", ":.2f") == "nan"


def test_examples_in_the_docstrings():
    # By name, since pytest's own doctest run would import the whole package.
    for module in sys.modules.copy().values():
        name = getattr(module, "__name__", "")
        if name.startswith(("book.pipeline.translate", "book.pipeline.targets")):
            assert doctest.testmod(module).failed == 0, name


def test_a_picture_must_exist_where_the_root_is_known(tmp_path):
    (tmp_path / "a.png").touch()
    targets = Targets(root=tmp_path)
    text = "```{image} ../a.png\n:alt: A dot\n```"
    assert translate(text, page=PAGE, targets=targets) == "![A dot](../a.png)"
    with pytest.raises(TranslationError, match=r"no picture \.\./b\.png"):
        translate(text.replace("a.png", "b.png"), page=PAGE, targets=targets)


def test_caption_cell():
    assert caption_cell({}) is None
    assert caption_cell({"mystnb": {"image": {"alt": "x"}}}) is None
    figure = {"caption": "Five steps\nof $p$.\n", "name": "Fig-P"}
    text = '<a id="fig-p"></a>*Five steps\nof $p$.*'
    assert caption_cell({"mystnb": {"figure": figure}}) == text
    with pytest.raises(ValueError, match="no paragraph"):
        caption_cell({"mystnb": {"figure": {"caption": "# A heading"}}})


ERRORS = [
    ("{foo}`x`", "role {foo} is not allowed; allowed are {glue:text}, {cite:t}"),
    ("{glue:text}`no`", "no glued value 'no'"),
    ("{glue:text}`lov`", "no glued value 'lov'; did you mean low"),
    ("{glue:text}`device:.2f`", "cannot format"),
    ("{glue:text}`other::x`", "glue it on this page"),
    ("{cite:p}`jordan,nobody`", "no work in references.bib 'nobody'"),
    ("{ref}`ch-stepp`", "no label 'ch-stepp'; did you mean ch-step"),
    ("{ref}`bare`", "no title that a link can show; write {ref}`text <bare>`"),
    ("{doc}`/chapters/04`", "no page in _toc.yml 'chapters/04'"),
    ("{eq}`eq-no`", "no equation 'eq-no'"),
    ("{term}`rank`", "no term in the glossary 'rank'"),
    ("[a {ref}`here`](https://x.org)", "{ref} inside a link"),
    ("![{eq}`eq-quintic`](a.png)", "alt text"),
    ("![x](/a.png)", "use {image} or {figure}"),
    ("[x](03_step.md)", "use {doc}"),
    ("[x](#here)", "use {ref}"),
    ("[x](project:#here)", "use {ref}, {doc} or a full address"),
    ("{{ name }}", "write the text itself"),
    ("x {{ name }}", "write the text itself"),
    ("+++", "block break"),
    ("text\n$$ x $$", "leave blank lines around it"),
    ("$$ x $$ (eq-new)", "no equation 'eq-new'"),
    ("$$ x $$ (eq-scale)", "belongs to chapters/03_step"),
    ("$$\\begin{align}x\\end{align}$$ (eq-quintic)", "aligned"),
    ("$$ x \\tag{5} $$ (eq-quintic)", "aligned"),
    ("$$\nx % why $$ (eq-quintic)", "line of its own"),
    ("(a b)=\n# T", "letters, digits"),
    (":::{margin}\nx\n:::", "directive {margin} is not allowed; allowed are {note}"),
    ("```{code-cell}\nx\n```", "directive {code-cell} is not allowed"),
    (":::python\nx\n:::", "::: fence without a directive"),
    (":::{note}\nx", "not closed"),
    ("```python\nx ```", "not closed"),
    (":::{note}\nx\n:::{tip}\nx\n:::\n:::", "not closed"),
    ("::::{note}\n:::{tip}\nx\n:::\n::::", "leave a blank line before a body"),
    (":::{note}\n:::", "no content"),
    (":::{note}\n\n\n\n:::", "no content"),
    (":::{admonition}\nx\n:::", "give the title"),
    (":::{note}\n:color: red\nx\n:::", "Unknown option"),
    (":::{admonition} A *b*\nx\n:::", "emphasis in a title"),
    (":::{admonition} {ref}`ch-step`\nx\n:::", "emphasis in a title"),
    (":::{dropdown} $x$\nx\n:::", "math in a folded title"),
    ("```{image} a.png\n```", "needs :alt:"),
    ("```{figure} https://x.org/a.png\n:alt: x\n```", "name a file of the repository"),
    ("```{figure} a.png\n:alt: x\n\n- list\n```", "no paragraph"),
    ("{glue:text}`n`. Then", "start with a word"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[text for text, _ in ERRORS])
def test_error_says_where_what_and_the_remedy(tr, text, message):
    with pytest.raises(TranslationError) as caught:
        tr(f"First.\n\n{text}")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{PAGE}, line ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb {foo}`x`", 2),
        ("a `x\ny` {foo}`x`", 2),
        ("> q\n>\n> - a\n>   {foo}`x`", 4),
        ("::::{note}\n:class: x\n\na\n:::{tip}\nb\n\n{foo}`x`\n:::\n::::", 8),
        (":::{dropdown} T\n---\nopen:\n---\na\n{foo}`x`\n:::", 6),
        (":::{admonition} T {foo}`x`\na\n:::", 1),
    ],
)
def test_error_names_the_line(tr, text, line):
    with pytest.raises(TranslationError, match=rf", line {line} of the cell .*foo"):
        tr(text)
