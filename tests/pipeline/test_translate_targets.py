"""What `Targets.scan` finds, compared with what a real Sphinx build makes of it."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from book.pipeline.targets import Equation, Label, Targets
from book.pipeline.translate import translate

HEADER = "---\nkernelspec:\n  name: python3\n---\n"
FILES = {
    "_toc.yml": """\
format: jb-book
root: book/index
parts:
- chapters:
  - file: chapters/01_a
  - file: chapters/02_b.md
    sections:
    - file: book/glossary
""",
    "book/index.md": "# Front *page*\n\n```{bibliography}\n```\n",
    "book/glossary.md": """\
# Glossary

```{glossary}
:sorted:

polar factor
nearest matrix
  The *orthogonal* part.

  A second paragraph.

Rank : kind
  A number.
```
""",
    "chapters/01_a.md": HEADER
    + """\
(ch-a)=

# Why `p` of $x^2$ is\u2009*not* 1

$$ u $$

$$ a $$ (eq-a)

::::{note}
:name: a-note

(In Note)=
## Inside

$$
b
$$ (eq-b)
::::

```python
$$ no $$ (eq-no)
(no)=
```

(bare)=
% A comment, too, keeps a label from its heading.

## Apart

- $$ c $$ (eq-c)

Setext
title
---
""",
    "chapters/02_b.md": HEADER
    + """\
(ch-b)=
# Second

$$ d $$ (eq-d)

{cite:t}`one` ; {cite:t}`two` ; {cite:t}`three` ; {cite:t}`tied` ; {cite:t}`group` ;
{cite:t}`edited` ; {cite:t}`undated` ; {cite:t}`others`

{cite:p}`one` ; {cite:p}`three`

{eq}`eq-a` ; {eq}`eq-b` ; {eq}`eq-c` ; {eq}`eq-d`

{ref}`ch-a` ; {ref}`ch-b` ; {ref}`in note` ; {ref}`t <bare>`

{doc}`/chapters/01_a` ; {doc}`/book/index` ; {doc}`x <01_a>`

{term}`Polar factor` ; {term}`rank` ; {term}`m <nearest matrix>`
""",
    "book/references.bib": r"""
@misc{one, author = {Jordan, Keller}, title = {T}, year = 2024, url = {https://x.org}}
@misc{two, author = {Press, Ofir and Wolf, Lior}, title = {T}, year = {2017},
  doi = {10.1/2}}
@misc{three, author = {Erd{\H{o}}s, P. and B, C. and D, E.}, title = {T}, year = 1959,
  eprint = {1711.05101}}
@misc{tied, author = {van der Berg, J. and M{\"u}ller, K.}, title = {T}, year = 2000}
@misc{group, author = {{Kimi Team}}, title = {T}, year = 2025}
@misc{edited, editor = {Ed, A.}, title = {T}, year = 2001}
@misc{undated, author = {Un, D.}, title = {T}}
@misc{others, author = {Liu, J. and Su, J. and others}, title = {T}, year = 2025}
""",
    "conf.py": """\
extensions = ["sphinx_external_toc", "myst_parser", "sphinxcontrib.bibtex"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_dmath_double_inline = True
bibtex_bibfiles = ["book/references.bib"]
bibtex_reference_style = "author_year"
""",
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("book")
    write(root, FILES)
    return root


@pytest.fixture(scope="module")
def paragraphs(book) -> list[str]:
    """The text of the paragraphs of page 02 as Sphinx resolves them."""
    command = [sys.executable, "-m", "sphinx", "-qW", "-b", "xml", ".", "_xml"]
    run = subprocess.run(command, cwd=book, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    tree = ET.parse(book / "_xml/chapters/02_b.xml")
    texts = ["".join(node.itertext()) for node in tree.iter("paragraph")]
    return [" ".join(text.split()) for text in texts]


def plain(markdown: str) -> str:
    """Markdown without links, math dollars, code ticks and emphasis."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"[$`*]", "", text).split())


def test_pages_say_what_the_notebook_says(book, paragraphs):
    targets = Targets.scan(book)
    source = FILES["chapters/02_b.md"].removeprefix(HEADER).split("\n\n", 2)[2]
    text = translate(source, page="chapters/02_b", targets=targets)
    ours = [plain(paragraph) for paragraph in text.split("\n\n")]
    # Sphinx sets years in square brackets, and only the number of an equation.
    textual, parenthetical, equations, *rest = ours
    textual = textual.replace("(", "[").replace(")", "]")
    parenthetical = parenthetical.replace("(", "[").replace(")", "]")
    equations = re.sub(r" in [^;]*(?= ;)", "", equations)
    assert [textual, parenthetical, equations, *rest] == paragraphs
    assert "van der Berg and Müller [2000] ; Kimi Team [2025]" in paragraphs[0]
    assert "(1) ; (2) ; (3) ; (1)" in paragraphs[2]


def test_scan(book):
    targets = Targets.scan(book)
    assert {page.file for page in targets.pages.values()} == {
        "book/index.md",
        "book/glossary.md",
        "chapters/01_a.ipynb",
        "chapters/02_b.ipynb",
    }
    assert targets.labels["in note"] == Label("chapters/01_a", "Inside", "Inside")
    assert targets.labels["bare"] == Label("chapters/01_a")
    assert targets.labels["a-note"] == Label("chapters/01_a")
    assert set(targets.labels) == {"ch-a", "ch-b", "in note", "bare", "a-note"}
    assert targets.equations["eq-c"] == Equation("chapters/01_a", 3)
    assert set(targets.equations) == {"eq-a", "eq-b", "eq-c", "eq-d"}
    assert set(targets.terms) == {"polar factor", "nearest matrix", "rank"}
    urls = {key: work.url for key, work in targets.citations.items()}
    assert urls["one"] == "https://x.org"
    assert urls["two"] == "https://doi.org/10.1/2"
    assert urls["three"] == "https://arxiv.org/abs/1711.05101"
    assert urls["tied"] is None


def test_figures_of_cells_can_be_named(tmp_path):
    cell = (
        "```{code-cell} python3\n---\ntags: [a]\nmystnb:\n  figure:\n    name: fig-a\n"
        "    caption: |\n      Five $s$.\n---\nprint(1)\n(no)=\n```\n"
    )
    picture = "```{figure} a.png\n:name: fig-b\n:alt: x\n\nA dot.\n```\n"
    write(tmp_path, {"_toc.yml": "root: a\n", "a.md": f"# A\n\n{cell}\n{picture}"})
    targets = Targets.scan(tmp_path)
    assert targets.labels == {
        "fig-a": Label("a", "Five s.", "Five $s$."),
        "fig-b": Label("a", "A dot.", "A dot."),
    }
    assert targets.citations == {}
    assert not targets.pages["a"].is_notebook


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a)=\n# T\n\n(A)=\n## U", "'a' a second time (labels); a has it already"),
        ("$$ x $$ (e)\n\n$$ y $$ (e)", "'e' a second time (equations)"),
        ("```{glossary}\nx\n  a\nX\n  b\n```", "'x' a second time (terms)"),
        (":::{note}\n:nam: x\n\ny\n:::", "a, line 1: {note}: Unknown option"),
    ],
)
def test_scan_errors(tmp_path, text, message):
    write(tmp_path, {"_toc.yml": "root: a\n", "a.md": text})
    with pytest.raises(ValueError, match=re.escape(message)):
        Targets.scan(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no _toc\.yml"):
        Targets.scan(tmp_path)
    write(tmp_path, {"_toc.yml": "root: a\nchapters:\n- file: b/c\n", "a.md": "# A"})
    with pytest.raises(ValueError, match=r"lists b/c, but there is no b/c\.md"):
        Targets.scan(tmp_path)


def test_a_heading_with_a_role_needs_a_text_at_the_reference(tmp_path):
    text = "(a)=\n# See {eq}`e`\n\n$$ x $$ (e)"
    write(tmp_path, {"_toc.yml": "root: a\n", "a.md": text})
    targets = Targets.scan(tmp_path)
    assert targets.labels["a"].title is None
    assert translate("{ref}`t <a>`", page="a", targets=targets) == "[t](#a)"
    with pytest.raises(ValueError, match="no title that a link can show"):
        translate("{ref}`a`", page="a", targets=targets)
