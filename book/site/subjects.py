"""`{subject-index}`: every term with the pages that use it, and every name of the API.

Sphinx's own index says where a term is defined. A reader of a book wants to know where
it is used, and that is known: each use in the text is a {term} role.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

API = "book/api"
# An exercise's solution uses the same terms as the exercise, and the glossary's own
# links say nothing of where a term is used.
LEFT_OUT = ("solutions/", "book/glossary")
LABEL = re.compile(r"^(\d\d|Exercise \d+)\b")


class subjects(nodes.General, nodes.Element):  # noqa: N801 - docutils' way
    """Stands where the index will be, once every page is read."""


class SubjectIndex(SphinxDirective):
    """Puts the index where it stands."""

    def run(self) -> list[nodes.Node]:
        return [subjects()]


def note_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Remember where the page that was just read uses which term first."""
    uses: dict[str, str] = {}
    for node in doctree.findall(addnodes.pending_xref):
        if node.get("reftype") == "term":
            uses.setdefault(node["reftarget"].lower(), section_of(node))
    store(app.env)[app.env.docname] = uses


def section_of(node: nodes.Node) -> str:
    """The id of the section that a node is in; empty for a page's top."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.section):
            top = isinstance(node.parent, nodes.document)
            return "" if top else node["ids"][0]
    return ""


def store(env: BuildEnvironment) -> dict[str, dict[str, str]]:
    """{page: {term in small letters: id of the section that uses it first}}."""
    if not hasattr(env, "book_subjects"):
        env.book_subjects = {}
    return env.book_subjects


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """A page is read anew."""
    store(env).pop(docname, None)


def merge(app: Sphinx, env: BuildEnvironment, docnames, other) -> None:
    """Take over what another process read."""
    store(env).update({name: store(other).get(name, {}) for name in docnames})


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the index in its place."""
    for place in list(doctree.findall(subjects)):
        entries = sorted(
            [*terms(app, docname), *names(app, docname)],
            key=lambda entry: entry[0].casefold(),
        )
        found: list[nodes.Node] = []
        for letter, group in groupby(entries, key=lambda entry: entry[0][0].upper()):
            items = [nodes.list_item("", line) for _, line in group]
            found.append(nodes.rubric("", letter))
            found.append(nodes.bullet_list("", *items, classes=["subject-index"]))
        place.replace_self(found)


def terms(app: Sphinx, here: str):
    """Yield each term with a line: the term, linked to its definition, and its uses."""
    used = defaultdict(list)
    for page in in_order(app.env):
        for term, section in store(app.env).get(page, {}).items():
            used[term].append((page, section))
    objects = app.env.get_domain("std").get_objects()
    for name, _, kind, page, anchor, _ in objects:
        if kind != "term":
            continue
        line = nodes.paragraph("", "", link(app, here, page, anchor, name))
        for index, (place, section) in enumerate(used[name.lower()]):
            line += nodes.Text(", " if index else ": ")
            line += link(app, here, place, section, label(app.env, place))
        yield name, line


def names(app: Sphinx, here: str):
    """Yield each function and class of the API page, linked to it."""
    for name, _, kind, page, anchor, _ in app.env.get_domain("py").get_objects():
        if page == API and kind in ("function", "class", "exception", "data"):
            package, _, short = name.rpartition(".")
            line = nodes.paragraph()
            line += link(app, here, page, anchor, nodes.literal("", short))
            line += nodes.Text(f" {package}")
            yield short, line


def in_order(env: BuildEnvironment) -> list[str]:
    """The pages as the contents list them, without those left out."""
    listed = env.toctree_includes
    todo, found = [env.config.root_doc], []
    while todo:
        page = todo.pop(0)
        found.append(page)
        todo = [*listed.get(page, []), *todo]
    return [page for page in found if not page.startswith(LEFT_OUT)]


def label(env: BuildEnvironment, page: str) -> str:
    """A short name for a page: its number, else its title.

    A chapter "02 Orthogonalizing …" is called "02".
    """
    title = env.titles[page].astext()
    short = LABEL.match(title)
    return short.group() if short else title


def link(app: Sphinx, here: str, page: str, anchor: str, what) -> nodes.reference:
    """A link from one page to a place on another."""
    inner = nodes.Text(what) if isinstance(what, str) else what
    return make_refnode(app.builder, here, page, anchor, inner)


def setup(app: Sphinx) -> None:
    """Register the directive; called by the extension's own setup."""
    app.add_node(subjects)
    app.add_directive("subject-index", SubjectIndex)
    app.connect("doctree-read", note_terms)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", fill)
