"""The roles a page may use, each as plain Markdown."""

import difflib
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from markdown_it.token import Token
from myst_nb.core.variables import format_plain_text

from book.pipeline.targets import Targets, normalize
from book.pipeline.translate_source import Edit, Problem, Source, TranslationError


@dataclass(frozen=True)
class Context:
    """What a translation needs to know: the page, what it may name, and where it is."""

    page: str
    targets: Targets
    glue: Mapping[str, object] = field(default_factory=dict)
    first_line: int = 1  # line of the cell at which this text starts
    quoted: bool = False  # inside a quote, where display math must stay on one line

    def error(self, problem: Problem, source: Source, line: int) -> TranslationError:
        """Return the error for a problem in line `line` (from 0) of the text."""
        text = source.lines[line].strip() if line < len(source.lines) else ""
        place = f"{self.page}, line {self.first_line + line} of the cell ({text!r})"
        return TranslationError(f"{place}: {problem}")


def escape(text: str) -> str:
    """Return text that Markdown shows as it is.

    Example:
        >>> escape("a_b costs $5")
        'a\\\\_b costs \\\\$5'
    """
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"([\\`*_\[\]<>$~])", r"\\\1", text)


def link(text: str, href: str | None) -> str:
    """Return a Markdown link, or the text alone if there is nothing to link to."""
    if not href:
        return text
    return (
        f"[{text}](<{href}>)" if re.search(r"[\s()<>]", href) else f"[{text}]({href})"
    )


def lookup(table: Mapping[str, object], name: str, what: str) -> object:
    """Return `table[name]`; if there is none, say what comes close.

    Raises:
        Problem: if the table has no such name.
    """
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, list(table), n=3)
    raise Problem(
        f"there is no {what} {name!r}",
        f"did you mean {', '.join(near)}?" if near else f"define the {what} first",
    )


def _split(content: str) -> tuple[str | None, str]:
    """Split `text <target>`; the text is None when only a target is given."""
    match = re.match(r"(.+?)\s*<([^<]*)>$", content, flags=re.S)
    return (match[1], match[2].strip()) if match else (None, content.strip())


def _glue(content: str, ctx: Context) -> str:
    if "::" in content:
        raise Problem("a glued value of another page", "glue it on this page")
    name, colon, spec = content.rpartition(":")
    name, spec = (name, spec) if colon else (content, "s")
    value = lookup(ctx.glue, name, "glued value")
    # The page formats the text of the value (its repr), as the notebook holds it.
    text = value if isinstance(value, str) else repr(value)
    try:
        return escape(format_plain_text(text, spec))
    except (ValueError, TypeError) as error:
        raise Problem(
            f"cannot format {text!r} as {spec!r}: {error}", "mend it"
        ) from None


def _cited(content: str, ctx: Context, form: str) -> Iterable[str]:
    for key in content.split(","):
        work = lookup(ctx.targets.citations, key.strip(), "work in references.bib")
        yield link(form.format(a=escape(work.author), y=escape(work.year)), work.url)


def _cite_t(content: str, ctx: Context) -> str:
    return ", ".join(_cited(content, ctx, "{a} ({y})"))


def _cite_p(content: str, ctx: Context) -> str:
    return f"({'; '.join(_cited(content, ctx, '{a}, {y}'))})"


def _ref(content: str, ctx: Context) -> str:
    text, name = _split(content)
    label = lookup(ctx.targets.labels, normalize(name), "label")
    shown = escape(text) if text else label.markdown
    if shown is None:
        raise Problem(
            f"the label {name!r} has no title that a link can show",
            f"write {{ref}}`text <{name}>`",
        )
    if label.page == ctx.page:
        return link(shown, f"#{normalize(name)}")
    return link(shown, ctx.targets.href(ctx.page, label.page))


def _doc(content: str, ctx: Context) -> str:
    text, name = _split(content)
    folder = "" if name.startswith("/") else posixpath.dirname(ctx.page)
    path = posixpath.normpath(posixpath.join(folder, name.lstrip("/")))
    page = lookup(ctx.targets.pages, path, "page in _toc.yml")
    shown = escape(text) if text else page.markdown
    if shown is None:
        raise Problem(f"{path} has no title", f"write {{doc}}`text <{name}>`")
    return link(shown, ctx.targets.href(ctx.page, path))


def _eq(content: str, ctx: Context) -> str:
    equation = lookup(ctx.targets.equations, content.strip(), "equation")
    if equation.page == ctx.page:
        return f"({equation.number})"
    page = ctx.targets.pages[equation.page]
    where = page.markdown or escape(page.name)
    href = ctx.targets.href(ctx.page, equation.page)
    return link(f"({equation.number}) in {where}", href)


def _term(content: str, ctx: Context) -> str:
    text, name = _split(content)
    page = lookup(ctx.targets.terms, name.lower(), "term in the glossary")
    href = None if page == ctx.page else ctx.targets.href(ctx.page, page)
    return link(escape(text or name), href)


ROLES: dict[str, Callable[[str, Context], str]] = {
    "glue:text": _glue,
    "cite:t": _cite_t,
    "cite:p": _cite_p,
    "ref": _ref,
    "doc": _doc,
    "eq": _eq,
    "term": _term,
}


def _role(child: Token, ctx: Context, *, in_link: bool, in_cell: bool) -> str:
    name = child.meta["name"]
    if name not in ROLES:
        allowed = ", ".join(f"{{{role}}}" for role in ROLES)
        raise Problem(f"the role {{{name}}} is not allowed", f"allowed are {allowed}")
    text = ROLES[name](child.content, ctx)
    if in_link and name != "glue:text" and "](" in text:
        raise Problem(f"{{{name}}} inside a link", "a link cannot hold another link")
    return re.sub(r"(?<!\\)\|", r"\\|", text) if in_cell else text


_OTHER = {
    "math_inline_double": ("$$ inside a paragraph", "leave blank lines around it"),
    "substitution_inline": ("a {{ substitution }}", "write the text itself"),
}


def _check(child: Token) -> None:
    """Refuse what is no role but would not survive in a notebook either."""
    if child.type in _OTHER:
        raise Problem(*_OTHER[child.type])
    if child.type == "image":
        if any(inner.type == "myst_role" for inner in child.children or []):
            raise Problem("a role in an image's alt text", "write the text itself")
        if child.attrGet("src").startswith("/"):
            raise Problem("an image path that starts with /", "use {image} or {figure}")
    if child.type == "link_open":
        href = str(child.attrGet("href"))
        if href.startswith("#"):
            raise Problem(f"a link to {href}", "use {ref}`label`")
        if re.match(r"(project|path|inv|myst):", href):
            raise Problem(f"a link to {href}", "use {ref}, {doc} or a full address")
        if "://" not in href and href.split("#")[0].endswith((".md", ".ipynb")):
            raise Problem(f"a link to the file {href}", "use {doc}`/folder/page`")


def inline_edits(
    inline: Token, offsets: list[int], source: Source, ctx: Context, *, in_cell: bool
) -> list[Edit]:
    """Return the edits that turn the roles of one inline token into Markdown.

    Args:
        inline: the token of a paragraph's, heading's or cell's content.
        offsets: the raw offset of each character of that content.
        source: the text that holds it.
        ctx: the page and its targets.
        in_cell: whether it is a table cell, where a pipe must be escaped.

    Raises:
        TranslationError: for a construct that is not allowed or cannot be resolved.
    """
    edits: list[Edit] = []
    depth, line = 0, inline.map[0]
    for child in inline.children or []:
        depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
        line += child.type in ("softbreak", "hardbreak")
        try:
            _check(child)
            if child.type == "myst_role":
                first, last = child.meta["span"]
                line = inline.map[0] + inline.content.count("\n", 0, first)
                text = _role(child, ctx, in_link=depth > 0, in_cell=in_cell)
                _check_line_start(text, inline.content, first, last)
                start, end = offsets[first], offsets[last - 1] + 1
                edits.append(_guarded(source.text, start, end, text))
        except Problem as problem:
            raise ctx.error(problem, source, line) from None
    return edits


def _check_line_start(text: str, content: str, first: int, last: int) -> None:
    at_start = not content[:first].rpartition("\n")[2].strip()
    if at_start and re.match(r"(\d+[.)]|[-+#])(\s|$)", text + content[last:]):
        raise Problem(f"the line would start a list with {text!r}", "start with a word")


def _guarded(raw: str, start: int, end: int, text: str) -> Edit:
    """Keep "!" and a link after it from becoming an image."""
    before = raw[:start]
    if text.startswith("[") and re.search(r"(?<!\\)(\\\\)*!$", before):
        return Edit(start - 1, end, rf"\!{text}")
    return Edit(start, end, text)
