"""What a page may refer to: pages, labels, equations, terms and works.

`Targets.scan` reads the sources alone (Markdown, `_toc.yml`, the bibliography). It
needs no Sphinx build and numbers equations as Sphinx does: from 1 on each page, over
the labelled ones.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from markdown_it.token import Token

from book.pipeline.pages import PageError
from book.pipeline.translate_citations import Citation, read_bibliography
from book.pipeline.translate_directives import DIRECTIVES, read_directive, split_info
from book.pipeline.translate_source import Problem, myst_parser


@dataclass(frozen=True)
class Page:
    """A page of the book; `title` is plain text, `markdown` as it was written."""

    name: str
    title: str | None
    markdown: str | None
    is_notebook: bool

    @property
    def file(self) -> str:
        """The committed file a reader of the notebooks opens."""
        return self.name + (".ipynb" if self.is_notebook else ".md")


@dataclass(frozen=True)
class Label:
    """A place that {ref} may name; without a title a reference must bring its text."""

    page: str
    title: str | None = None
    markdown: str | None = None


@dataclass(frozen=True)
class Equation:
    """A labelled equation and its number on its page."""

    page: str
    number: int


@dataclass
class Targets:
    """Everything that a reference may name, by name.

    Example:
        >>> targets = Targets(equations={"eq-a": Equation("chapters/02_x", 1)})
        >>> targets.equations["eq-a"].number
        1
    """

    root: Path | None = None
    pages: dict[str, Page] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    equations: dict[str, Equation] = field(default_factory=dict)
    terms: dict[str, str] = field(default_factory=dict)  # lower-case term -> page
    citations: dict[str, Citation] = field(default_factory=dict)

    @classmethod
    def scan(cls, root: Path | str) -> "Targets":
        """Read all pages of `_toc.yml` under `root`.

        Args:
            root: the folder that holds `_toc.yml`.

        Returns:
            The targets of all pages; no bibliography and no glossary are fine.

        Raises:
            PageError: if `_toc.yml` or one of its pages is missing, or if a label,
                an equation or a term is defined twice.
        """
        root = Path(root)
        targets = cls(root=root)
        for name in contents(root):
            path = root / f"{name}.md"
            if not path.is_file():
                raise PageError(f"_toc.yml lists {name}, but there is no {name}.md")
            _PageScan(targets, name).read(path.read_text(encoding="utf-8"))
        targets.citations = read_bibliography(root / "book" / "references.bib")
        return targets

    def href(self, from_page: str, to_page: str) -> str:
        """Return the relative link from one page's notebook to another page's file."""
        here = posixpath.dirname(from_page) or "."
        return posixpath.relpath(self.pages[to_page].file, here)


def normalize(label: str) -> str:
    """Return a label as Sphinx compares it: lower case, single spaces."""
    return " ".join(label.lower().split())


def contents(root: Path) -> list[str]:
    """The names of the pages that `_toc.yml` lists.

    Raises:
        PageError: if there is no `_toc.yml`.
    """
    path = root / "_toc.yml"
    if not path.is_file():
        raise PageError(f"no _toc.yml in {root}; it lists the pages to read")
    names = _files(yaml.safe_load(path.read_text(encoding="utf-8")))
    return [name.removesuffix(".md") for name in names]


def _files(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _files(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("root", "file"):
                yield value
            else:
                yield from _files(value)


class _PageScan:
    """Collects what one page defines into the targets."""

    def __init__(self, targets: Targets, name: str) -> None:
        self.targets = targets
        self.name = name
        self.title: tuple[str, str] | None = None
        self.equations = 0

    def read(self, text: str) -> None:
        tokens = myst_parser(front_matter=True).parse(text)
        header = (
            tokens[0].content if tokens and tokens[0].type == "front_matter" else ""
        )
        is_notebook = bool(
            {"kernelspec", "jupytext"} & set(yaml.safe_load(header) or {})
        )
        self._walk(tokens)
        plain, markdown = self.title or (None, None)
        self.targets.pages[self.name] = Page(self.name, plain, markdown, is_notebook)

    def _walk(self, tokens: list[Token]) -> None:
        waiting: list[str] = []
        for at, token in enumerate(tokens):
            if token.type == "myst_target":
                waiting.append(token.content)
                continue
            title = None
            if token.type == "heading_open":
                title = heading_text(tokens[at + 1])
                self.title = self.title or title
            for label in waiting:
                self._label(label, title)
            waiting = []
            if token.type == "math_block_label":
                self._equation(token.info)
            elif token.type in ("fence", "colon_fence"):
                self._directive(token)
        for label in waiting:
            self._label(label, None)

    def _add(self, kind: str, name: str, value: object) -> None:
        table = getattr(self.targets, kind)
        if name in table:
            other = getattr(table[name], "page", table[name])
            raise PageError(
                f"{self.name} defines {name!r} a second time ({kind}); "
                f"{other} has it already: rename one"
            )
        table[name] = value

    def _label(self, label: str, title: tuple[str, str] | None) -> None:
        self._add("labels", normalize(label), Label(self.name, *(title or ())))

    def _equation(self, label: str) -> None:
        self.equations += 1
        self._add("equations", label, Equation(self.name, self.equations))

    def _directive(self, token: Token) -> None:
        name, _ = split_info(token.info) or (None, None)
        if name == "code-cell":
            figure = _cell_figure(token.content)
            if figure.get("name"):
                self._label(
                    str(figure["name"]), _caption(str(figure.get("caption", "")))
                )
        elif name == "glossary":
            for term in _glossary_terms(token.content):
                self._add("terms", term.lower(), self.name)
        elif name in DIRECTIVES:
            self._known_directive(token)

    def _known_directive(self, token: Token) -> None:
        try:
            directive = read_directive(token)
        except Problem as problem:
            raise PageError(
                f"{self.name}, line {token.map[0] + 1}: {problem}"
            ) from None
        body = "\n".join(directive.body)
        if "name" in directive.options:
            title = _caption(body) if directive.name == "figure" else None
            self._label(directive.options["name"], title)
        self._walk(myst_parser().parse(body))


def heading_text(inline: Token) -> tuple[str, str] | None:
    """Return a heading (or caption) as plain text and as Markdown for a link's text.

    None if it holds what a link's text cannot repeat: a role, a link or an image.
    """
    kinds = {child.type for child in inline.children or []}
    if kinds & {"myst_role", "link_open", "image", "footnote_ref", "html_inline"}:
        return None
    breaks = {"softbreak", "hardbreak"}
    texts = [" " if c.type in breaks else c.content for c in inline.children or []]
    return "".join(texts), " ".join(inline.content.split())


def _caption(markdown: str) -> tuple[str, str] | None:
    tokens = myst_parser().parse(markdown)
    is_text = len(tokens) > 1 and tokens[0].type == "paragraph_open"
    return heading_text(tokens[1]) if is_text else None


def _cell_figure(content: str) -> dict:
    header = re.match(r"---\n(.*?)^---", content, flags=re.S | re.M)
    metadata = yaml.safe_load(header[1]) if header else None
    return ((metadata or {}).get("mystnb") or {}).get("figure") or {}


def _glossary_terms(content: str) -> Iterator[str]:
    md = myst_parser()
    for line in content.split("\n"):
        # Terms start at the margin; definitions are indented, options start with ":".
        if line.strip() and not line[0].isspace() and not line.startswith((":", "..")):
            words = md.parseInline(line.split(" : ")[0].strip())[0]
            yield "".join(child.content for child in words.children or [])
