"""How long each notebook ran: a table, and what the front page says of it.

    ```{run-times}
    ```
    ```{learning-paths}
    use Muon: `chapters/01_why_muon`, `chapters/03_muon_step`
    ```
    {run-time}`chapters/01_why_muon`  {read-time}`chapters/01_why_muon`

The times come from ``book/measured/*-notebooks.json``, which ``python -m
tests.audit.colab --record`` writes.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

MEASURED = "book/measured"
# Prose with formulas and code beside it, in words a minute; the front page says so.
PACE = 100
FENCED = re.compile(r"^(`{3,}|:{3,}).*?^\1`*:*\s*$", re.M | re.S)
HEADER = re.compile(r"\A---.*?^---\s*$", re.M | re.S)
WORD = re.compile(r"[^\W\d_]{2,}")
MISSING = "not recorded yet"
# Of the recorded versions, those that a reader may want to know.
NAMED = ("python", "torch", "numpy", "matplotlib", "ipython", "ipywidgets")


def recorded(root: str | Path) -> list[dict]:
    """Every recording of notebooks, each with hardware, versions and times."""
    paths = sorted(Path(root, MEASURED).glob("*-notebooks.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def seconds(found: list[dict], page: str) -> float | None:
    """How long a notebook's cells took, set-up not counted; None if nobody knows."""
    rows = [each["notebooks"][page] for each in found if page in each["notebooks"]]
    return rows[0]["cell_seconds"] if rows else None


def in_words(duration: float) -> str:
    r"""A time in seconds as a reader wants to know it, rounded up.

    Example:
        >>> in_words(3), in_words(41), in_words(200)
        ('5\xa0s', '45\xa0s', '4\xa0min')
    """
    if duration <= 60:
        return f"{max(5, 5 * math.ceil(duration / 5))}\N{NO-BREAK SPACE}s"
    return minutes(duration / 60)


def minutes(many: float) -> str:
    """Whole minutes, rounded up, that no line break parts from their unit."""
    return f"{math.ceil(many)}\N{NO-BREAK SPACE}min"


def words(source: str) -> int:
    """How many words of prose a page has: no code, no directives, no header."""
    return len(WORD.findall(FENCED.sub("", HEADER.sub("", source))))


def run_time(env: BuildEnvironment, pages: list[str]) -> str:
    """How long the cells of all these pages run together, in words."""
    found = recorded(env.srcdir)
    times = [seconds(found, name) for name in existing(env, pages)]
    return MISSING if None in times else in_words(sum(times))


def read_time(env: BuildEnvironment, pages: list[str]) -> str:
    """How long all these pages take to read, in words."""
    total = 0
    for name in existing(env, pages):
        path = Path(env.srcdir, f"{name}.md")
        env.note_dependency(str(path))
        total += words(path.read_text(encoding="utf-8"))
    return minutes(total / PACE)


def existing(env: BuildEnvironment, pages: list[str]) -> list[str]:
    """The pages, if each is one.

    Raises:
        ExtensionError: if one of them does not exist.
    """
    for name in pages:
        if name not in env.found_docs:
            raise ExtensionError(f"{name!r} is no page; name one of _toc.yml")
    return pages


class Time(SphinxRole):
    """The time of one page, as `run_time` or `read_time` says it."""

    def __init__(self, say: Callable[[BuildEnvironment, list[str]], str]) -> None:
        super().__init__()
        self.say = say

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [nodes.Text(self.say(self.env, [self.text]))], []


class LearningPaths(SphinxDirective):
    """A table of ways through the book: what for, a colon, the pages in backticks."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        rows = []
        for line in self.content:
            wish, _, listed = line.partition(": ")
            wished = nodes.paragraph(
                "", "", *self.state.inline_text(wish, self.lineno)[0]
            )
            pages = [name.strip(" `") for name in listed.split(",")]
            links, before = nodes.paragraph(), ""
            for page in existing(self.env, pages):
                links += nodes.Text(", " if before else "")
                links += link_to(page, short_name(page, before))
                before = page
            times = read_time(self.env, pages), run_time(self.env, pages)
            rows.append((wished, links, *times))
        return [table(("you want to", "pages", "read", "run"), rows, (5, 4, 1, 1))]


def short_name(page: str, before: str) -> str:
    """What a page is called in a row of a table, after another page.

    Example:
        >>> short_name("chapters/02_newton_schulz", "chapters/01_why_muon")
        '02'
        >>> short_name("chapters/15_gallery_ranks", "chapters/15_gallery")
        'ranks'
    """
    if before and page.startswith(f"{before}_"):
        return page.removeprefix(f"{before}_")
    folder, _, name = page.partition("/")
    number, _, rest = name.partition("_")
    if not rest:
        return name
    if folder == "exercises":
        return f"exercise\N{NO-BREAK SPACE}{int(number)}"
    return number


class RunTimes(SphinxDirective):
    """A table of every recording: notebook, seconds of the set-up and of the rest."""

    def run(self) -> list[nodes.Node]:
        found = recorded(self.env.srcdir)
        if not found:
            raise self.error(f"nothing is recorded in {MEASURED}/*-notebooks.json")
        for path in Path(self.env.srcdir, MEASURED).glob("*-notebooks.json"):
            self.env.note_dependency(str(path))
        return [node for each in found for node in (about(each), times_of(each))]


def about(found: dict) -> nodes.paragraph:
    """What a recording was made with, in a sentence or two."""
    hardware, versions = found["hardware"], found["versions"]
    memory = hardware["memory_bytes"] / 2**30
    named = ", ".join(f"{name} {versions[name]}" for name in NAMED)
    text = (
        f"Recorded on {hardware['processor']}, {hardware['cores']} cores, "
        f"{memory:.0f} GiB of memory, without a GPU, with {named}."
    )
    busy = statistics.median(row["load"] for row in found["notebooks"].values())
    if busy > hardware["cores"]:
        text += (
            f" The machine was shared: about {busy:.0f} processes wanted its "
            f"{hardware['cores']} cores at a time. On an idle one a notebook is faster."
        )
    return nodes.paragraph("", text)


def times_of(found: dict) -> nodes.table:
    """The table of one recording: one row a notebook, and their sum."""
    keys = ("set_up_seconds", "cell_seconds")
    rows = [
        (
            nodes.paragraph("", "", link_to(name)),
            *(f"{row[key]:.1f}\N{NO-BREAK SPACE}s" for key in keys),
        )
        for name, row in found["notebooks"].items()
    ]
    all_rows = found["notebooks"].values()
    sums = (in_words(sum(row[key] for row in all_rows)) for key in keys)
    rows.append(("all of them", *sums))
    return table(("notebook", "set-up", "all other cells"), rows, (3, 1, 1))


def table(head: tuple, rows: list[tuple], widths: tuple[int, ...]) -> nodes.table:
    """A table; an entry is text, or a paragraph with links in it."""
    group = nodes.tgroup("", cols=len(head))
    group += [nodes.colspec(colwidth=width) for width in widths]
    for part, lines in ((nodes.thead(), [head]), (nodes.tbody(), rows)):
        for line in lines:
            row = nodes.row()
            for entry in line:
                inner = nodes.paragraph("", entry) if isinstance(entry, str) else entry
                row += nodes.entry("", inner)
            part += row
        group += part
    return nodes.table("", group)


def link_to(page: str, text: str | None = None) -> addnodes.pending_xref:
    """A link to a page, under its own title if no text is given."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", text or page),
        refdomain="std",
        reftype="doc",
        reftarget=f"/{page}",
        refexplicit=text is not None,
        refwarn=True,
    )


def setup(app: Sphinx) -> None:
    """Register directives and roles; called by the extension's own setup."""
    app.add_directive("run-times", RunTimes)
    app.add_directive("learning-paths", LearningPaths)
    app.add_role("run-time", Time(run_time))
    app.add_role("read-time", Time(read_time))
