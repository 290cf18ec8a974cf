"""What is out of step between a page and its notebook is found, with its remedy."""

import json
import shutil

import pytest

from book.pipeline import sync
from book.pipeline.cache import fill
from book.pipeline.make import make
from book.pipeline.pages import Page
from book.pipeline.targets import Targets

BODY = """
(label-one)=
# 01 A title

The value is {glue:text}`half:.2f`, of {glue:text}`many` in all.

```{code-cell}
from stacklm.notebook import glue
glue("half", 1 / 2)
glue("many", "3,150")
print("half is", 1 / 2)
```

```{code-cell}
assert 1 + 1 == 2
```
"""


@pytest.fixture(scope="module")
def executed(make_shared_page):
    """A page with its notebook made; a run takes seconds, so tests share it."""
    page = make_shared_page(BODY)
    (page.root / "_toc.yml").write_text(
        "format: jb-book\nroot: chapters/01_x\n", encoding="utf-8"
    )
    assert make(page, Targets.scan(page.root)) == "executed"
    return page


@pytest.fixture
def made(executed, tmp_path):
    """A copy of the page and its notebook, and the targets they were made with."""
    root = tmp_path / "book"
    shutil.copytree(executed.root, root)
    page = Page(root / executed.source.relative_to(executed.root), root)
    return page, Targets.scan(root)


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_page_in_step_has_no_problem_and_making_it_again_changes_no_byte(made):
    page, targets = made
    before = page.notebook.read_bytes()
    assert sync.problems(page, targets) == []
    assert make(page, targets) == "unchanged"
    assert make(page, targets, force=True) == "executed, unchanged"
    assert page.notebook.read_bytes() == before
    assert b"The value is 0.50, of 3,150 in all." in before, "glue is filled in"
    assert b"label-one)=" not in before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"half", 1 / 2',
            '"half", 1 / 3',
            r"01_x\.md: its code changed .* `make noteb",
        ),
        ("assert 1 +", "assert 2 - 1 +", r"01_x\.md: its code changed"),
        ("The value", "A value", r"01_x\.md: its text changed; run `make notebooks`"),
        ("The value is", "The value 0.5 is", r"number '0\.5' is typed"),
    ],
)
def test_an_edited_page(made, old, new, message):
    page, targets = made
    edit(page.source, old, new)
    found = "\n".join(sync.problems(page, targets))
    assert len(sync.re.findall(message, found)) == 1, found


@pytest.mark.parametrize(
    ("old", "new"),
    [("half is 0.5", "half is 0.6"), ("The value", "A value"), ('"cell-001"', '"x"')],
)
def test_a_notebook_edited_by_hand(made, old, new):
    page, targets = made
    edit(page.notebook, old, new)
    (message,) = sync.problems(page, targets)
    assert "edited by hand" in message
    assert "run `make notebooks`" in message
    assert make(page, targets) == "executed", "its outputs are not trusted again"
    assert sync.problems(page, targets) == []


def test_a_notebook_that_is_missing_or_broken(made):
    page, targets = made
    page.notebook.write_text("{", encoding="utf-8")
    assert "not valid JSON" in sync.problems(page, targets)[0]
    page.notebook.unlink()
    assert "does not exist" in sync.problems(page, targets)[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda nb: nb["cells"][1]["outputs"].pop(),
        lambda nb: nb["cells"][1].update(execution_count=None),
        lambda nb: nb["cells"].reverse(),
        lambda nb: nb["cells"][2]["metadata"].update(tags=["nbval-ignore-output"]),
        lambda nb: nb["metadata"].update(widgets={}),
        lambda nb: nb["metadata"].update(extra=1),
        lambda nb: nb["metadata"].pop("stacklm"),
        lambda nb: nb.update(nbformat_minor=4),
        lambda nb: nb.update(extra=1),
    ],
)
def test_any_other_edit_of_a_notebook_is_found_too(made, change):
    page, targets = made
    nb = json.loads(page.notebook.read_text(encoding="utf-8"))
    change(nb)
    page.notebook.write_text(json.dumps(nb), encoding="utf-8")
    found = sync.problems(page, targets)
    assert len(found) == 1
    assert "run `make notebooks`" in found[0]


def test_files_that_no_page_accounts_for(made):
    page, _ = made
    assert sync.left_over(page.root) == []
    for name in ("chapters/01.md", "chapters/00_old.ipynb", "exercises/09_x.md"):
        (page.root / name).parent.mkdir(exist_ok=True)
        (page.root / name).write_text("x", encoding="utf-8")
    found = "\n".join(sync.left_over(page.root))
    assert "chapters/01.md is not in _toc.yml" in found
    assert "chapters/00_old.ipynb has no page" in found
    assert "exercises/09_x.md has no solution" in found


def test_a_page_that_cannot_be_read_is_one_message(make_page):
    for body, message in [
        ("```{code-cell}\n---\na: [\n---\n```\n", "mend that cell's options"),
        ("```{raw-cell}\nx\n```\n", "has a {raw-cell}"),
    ]:
        (found,) = sync.problems(make_page(body), Targets())
        assert message in found


def test_a_cell_that_never_ran_or_shows_an_error_is_found(made):
    page, _ = made
    nb = sync.read_notebook(page)
    nb.cells[1].execution_count = None
    assert "never executed" in sync.unexecuted(page, nb)[0]
    nb.cells[1].metadata["tags"] = ["nbval-skip"]
    assert "both tags" in sync.unexecuted(page, nb)[0]
    nb.cells[2].outputs = [sync.nbformat.v4.new_output("error", evalue="x")]
    assert "shows an error" in sync.unexecuted(page, nb)[-1]


def test_a_chapter_that_compares_too_little_is_found(make_page):
    silent = "```{code-cell}\nx = 1\n```\n"
    loud = "```{code-cell}\nprint(1)\n```\n"
    for body, enough in [(loud * 4 + silent, True), (loud * 3 + silent, False)]:
        page = make_page("# 01 T\n\n" + body)
        (page.root / "_toc.yml").write_text("root: chapters/01_x\n", encoding="utf-8")
        targets = Targets.scan(page.root)
        make(page, targets)
        found = sync.problems(page, targets)
        assert (found == []) is enough, found
        assert enough or "3 of 4 code cells" in found[0]


def test_a_cell_too_long_or_too_wide_is_found(made):
    page, targets = made
    edit(page.source, "assert 1 + 1 == 2", "\n".join(["x = 1"] * 21))
    assert any("21 lines, at most" in p for p in sync.problems(page, targets))
    edit(page.source, "x = 1", "x = " + "1" * 80)
    assert any("84 columns" in p for p in sync.problems(page, targets))


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("assert x", True),
        ("torch.testing.assert_close(a, b)", True),
        ("assert_close(a, b)", True),
        ("x = 'assert'", False),
        ("%pip install x", False),
    ],
)
def test_what_counts_as_an_assert(source, counts):
    assert sync.asserts(source) is counts


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        ({"text/plain": "3"}, True),
        ({"text/plain": "[figure]", "image/png": "…"}, False),
        ({"text/plain": "VBox(children=())", sync.WIDGET_VIEW: {}}, False),
        ({"text/plain": "steps 1: from 0.1", sync.WIDGET_VIEW: {}}, True),
    ],
)
def test_what_counts_as_text(data, counts):
    output = sync.nbformat.v4.new_output("display_data", data=data)
    assert sync.prints_text(output) is counts


def test_the_build_reads_committed_outputs_and_runs_edited_pages(made):
    page, _ = made
    assert fill(page.root) == []
    edit(page.notebook, "half is 0.5", "half is 0.6")
    assert fill(page.root) == [page], "an output that no run gave is not shown"
    edit(page.notebook, "half is 0.6", "half is 0.5")
    edit(page.source, "1 + 1", "0 + 2")
    assert fill(page.root) == [page]


def test_outputs_survive_a_change_of_text(made):
    page, targets = made
    edit(page.source, "The value", "A value")
    assert make(page, targets) == "translated"
    outputs = json.loads(page.notebook.read_text(encoding="utf-8"))["cells"][1][
        "outputs"
    ]
    assert any("half is 0.5" in "".join(o.get("text", "")) for o in outputs)
