"""Walks the blocks of a text: directives, equations, labels and comments."""

import posixpath
import re
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.token import Token

from book.pipeline.translate_directives import (
    ALLOWED,
    Directive,
    read_directive,
    split_info,
)
from book.pipeline.translate_roles import Context, escape, inline_edits, lookup
from book.pipeline.translate_source import Edit, Problem, Source, myst_parser

_REFUSED = {
    "myst_block_break": ("a block break +++", "leave it to the page's cells"),
    "substitution_block": ("a {{ substitution }}", "write the text itself"),
}
# Their own numbering clashes with \tag.
_NUMBERED = re.compile(
    r"\\begin\{(align|alignat|eqnarray|equation|flalign|gather|multline)\*?\}|\\tag\b"
)


def translate_text(text: str, ctx: Context) -> str:
    """Translate Markdown that stands by itself: a cell or a directive's body.

    Raises:
        TranslationError: for a construct that is not allowed or cannot be resolved.
    """
    source = Source(text)
    return source.apply(_Walk(source, ctx).edits(myst_parser().parse(text)))


def translate_inline(text: str, ctx: Context) -> str:
    """Translate one line of running text, such as a title."""
    source = Source(text)
    inline = myst_parser().parseInline(text)[0]
    offsets = list(range(len(text) + 1))
    return source.apply(inline_edits(inline, offsets, source, ctx, in_cell=False))


class _Walk:
    """One pass over the tokens of a text that gathers the edits."""

    def __init__(self, source: Source, ctx: Context) -> None:
        self.source = source
        self.ctx = ctx
        self.depth = 0  # of block quotes
        self.cells: dict[int, list[int]] = {}
        self.closed: set[int] = set()  # lines after which a blank one is sure to stand

    def edits(self, tokens: list[Token]) -> list[Edit]:
        found: list[Edit] = []
        for at, token in enumerate(tokens):
            step = {"blockquote_open": 1, "blockquote_close": -1}
            self.depth += step.get(token.type, 0)
            try:
                if token.type == "tr_open":
                    self._note_row(tokens, at)
                elif token.type == "inline":
                    found += self._inline(token, tokens[at - 1])
                else:
                    found += self._block(token)
            except Problem as problem:
                raise self.ctx.error(problem, self.source, token.map[0]) from None
        return found

    def _note_row(self, tokens: list[Token], at: int) -> None:
        row = []
        while tokens[at].type != "tr_close":
            row += [tokens[at]] if tokens[at].type == "inline" else []
            at += 1
        self.cells |= self.source.cell_offsets(row)

    def _inline(self, token: Token, before: Token) -> list[Edit]:
        in_cell = before.type in ("th_open", "td_open")
        offsets = self.cells.get(id(token), [])
        # Only text that changes has to be found in the raw lines.
        if not in_cell and any(c.type == "myst_role" for c in token.children or []):
            offsets = self.source.offsets(token, before)
        return inline_edits(token, offsets, self.source, self.ctx, in_cell=in_cell)

    def _block(self, token: Token) -> list[Edit]:
        if token.type in _REFUSED:
            raise Problem(*_REFUSED[token.type])
        if token.type == "myst_target":
            return [self._set_apart(token, _anchor(token.content), "(")]
        if token.type == "myst_line_comment":
            return [self._without(token)]
        if token.type in ("math_block", "math_block_label"):
            return self._math(token)
        if token.type in ("fence", "colon_fence"):
            self._check_closed(token)
            if token.type == "colon_fence" or split_info(token.info):
                return [self._directive(token)]
        return []

    def _check_closed(self, token: Token) -> None:
        # Markdown lets a fence run to the end; here that is always a slip.
        last = self.source.lines[min(token.map[1], len(self.source.lines)) - 1]
        closing = last.replace(">", "").strip()
        is_mark = closing.startswith(token.markup) and len(set(closing)) == 1
        if token.map[1] - token.map[0] < 2 or not is_mark:
            raise Problem(
                f"the fence {token.markup}{token.info} is not closed",
                "close it; an outer fence is longer than the inner ones",
            )

    def _set_apart(self, token: Token, text: str, mark: str) -> Edit:
        """Replace the lines of a token by text, with blank lines around it.

        Without them a quote would swallow the line below it, and HTML would too.
        """
        first, last = token.map
        lead = self.source.lines[first].partition(mark)[0]
        rest = _continuation(lead)
        lines = text.split("\n")
        lines = [lead + lines[0], *(rest + line for line in lines[1:])]
        blank = rest.rstrip()
        if lead == rest and not self.source.is_blank(first - 1):
            lines[:0] = [] if first in self.closed else [blank]
        if not self.source.is_blank(last):
            lines.append(blank)
            self.closed.add(last)
        return Edit(*self.source.span(token), "\n".join(s.rstrip() for s in lines))

    def _without(self, token: Token) -> Edit:
        """Drop the lines of a comment, but keep the paragraphs around it apart."""
        first, last = token.map
        start, end = self.source.span(token)
        lead = self.source.lines[first].partition("%")[0]
        marker = lead != _continuation(lead)
        blank_before, blank_after = (self.source.is_blank(n) for n in (first - 1, last))
        if marker or not (blank_before or blank_after):
            return Edit(start, end, lead.rstrip())
        last += blank_before and blank_after and last < len(self.source.lines)
        if last < len(self.source.lines):
            return Edit(start, self.source.starts[last], "")
        return Edit(max(start - 1, 0), len(self.source.text), "")

    def _math(self, token: Token) -> list[Edit]:
        tag = self._tag(token) if token.type == "math_block_label" else ""
        first, last = token.map[0], token.map[1] - 1
        quoted = self.ctx.quoted or self.depth > 0
        if quoted and last > first:
            return [self._math_on_one_line(token, tag)]
        if not tag:
            return []
        raw, base = self.source.lines[last], self.source.starts[last]
        close = raw.rindex("$$")
        head = raw[:close]
        if not head.strip():
            return [Edit(base + close, base + len(raw), f"{tag}\n{head}$$")]
        if re.search(r"(?<!\\)%", head):
            raise Problem("a TeX comment before $$", "put $$ on a line of its own")
        cut = base + len(head.rstrip())
        return [Edit(cut, base + len(raw), f" {tag} $$")]

    def _math_on_one_line(self, token: Token, tag: str) -> Edit:
        # Notebook readers take math out before they read Markdown, so the ">" of
        # a quote's second line would become part of the formula.
        lead = self.source.lines[token.map[0]].partition("$$")[0]
        lines = [re.sub(r"(?<!\\)%.*", "", s) for s in token.content.split("\n")]
        words = [s.strip() for s in [*lines, tag] if s.strip()]
        return Edit(*self.source.span(token), f"{lead}$$ {' '.join(words)} $$")

    def _tag(self, token: Token) -> str:
        equation = lookup(self.ctx.targets.equations, token.info, "equation")
        if equation.page != self.ctx.page:
            raise Problem(f"{token.info} belongs to {equation.page}", "rename it")
        if _NUMBERED.search(token.content):
            raise Problem(
                "a labelled equation that numbers itself",
                r"use \begin{aligned} or \begin{gathered} and no \tag",
            )
        return rf"\tag{{{equation.number}}}"

    def _directive(self, token: Token) -> Edit:
        if not split_info(token.info):
            info = token.info.strip()
            raise Problem(f"a ::: fence without a directive ({info!r})", ALLOWED)
        line = self.ctx.first_line + token.map[0]
        quoted = self.ctx.quoted or self.depth > 0
        ctx = replace(self.ctx, first_line=line, quoted=quoted)
        text = render_directive(read_directive(token), ctx)
        return self._set_apart(token, text, token.markup)


def _continuation(lead: str) -> str:
    """Return the prefix of the lines below `lead`: quote marks stay, list marks go."""
    return re.sub(r"[^>\s]", " ", lead)


def _anchor(label: str) -> str:
    if not re.fullmatch(r"[\w.:-]+", label):
        raise Problem(f"the label {label!r}", "use letters, digits, - and _ alone")
    return f'<a id="{label.lower()}"></a>'


def render_directive(directive: Directive, ctx: Context) -> str:
    """Return a directive as Markdown.

    Args:
        directive: what was read.
        ctx: its page; `first_line` is the line of its fence.

    Raises:
        Problem: if the directive lacks something.
        TranslationError: for what its title or body holds.
    """
    if directive.name in ("figure", "image"):
        text = _picture(directive, ctx)
    else:
        text = _box(directive, ctx)
    name = directive.options.get("name")
    return f"{_anchor(name)}\n\n{text}" if name else text


def _body(directive: Directive, ctx: Context) -> str:
    inner = replace(ctx, first_line=ctx.first_line + directive.offset)
    return translate_text("\n".join(directive.body), inner).strip("\n")


def _box(directive: Directive, ctx: Context) -> str:
    if not directive.body:
        raise Problem(f"{{{directive.name}}} has no content", "write some or drop it")
    title = directive.title or directive.name.capitalize()
    folded = "dropdown" in [directive.name, *directive.options.get("class", [])]
    if folded:
        summary = _summary(translate_inline(title, ctx))
        opening = "<details open>" if "open" in directive.options else "<details>"
        body = _body(directive, ctx)
        return f"{opening}\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
    title = translate_inline(title, ctx)
    if "*" in title or "__" in title:
        raise Problem("emphasis in a title", "a title is bold as a whole")
    text = f"**{title}**\n\n{_body(directive, replace(ctx, quoted=True))}"
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _summary(title: str) -> str:
    # Markdown is not read inside <summary>, so the title becomes HTML here.
    children = myst_parser().parseInline(title)[0].children or []
    if any(child.type == "math_inline" for child in children):
        raise Problem("math in a folded title", "say it in words; it is not typeset")
    return MarkdownIt("commonmark").renderInline(title)


def _picture(directive: Directive, ctx: Context) -> str:
    alt = directive.options.get("alt")
    if not alt or "target" in directive.options:
        raise Problem(f"{{{directive.name}}} needs :alt: and no :target:", "mend it")
    image = f"![{escape(alt)}]({_picture_path(directive.title, ctx)})"
    if not directive.body:
        return image
    caption, _, legend = italic_caption(_body(directive, ctx)).partition("\n\n")
    return "\n\n".join(part for part in (image, caption, legend) if part)


def _picture_path(path: str, ctx: Context) -> str:
    folder = posixpath.dirname(ctx.page)
    full = posixpath.normpath(
        path[1:] if path.startswith("/") else posixpath.join(folder, path)
    )
    root = ctx.targets.root
    if re.search(r"[\s()]|://", path) or (root and not (root / full).is_file()):
        raise Problem(f"there is no picture {path}", "name a file of the repository")
    return posixpath.relpath(full, folder or ".")


def italic_caption(markdown: str) -> str:
    """Return Markdown with its first paragraph, the caption, in italics.

    Raises:
        Problem: if it does not start with a paragraph.
    """
    tokens = myst_parser().parse(markdown)
    if not tokens or tokens[0].type != "paragraph_open":
        raise Problem("a caption that is no paragraph", "start with running text")
    lines = markdown.split("\n")
    end = tokens[0].map[1]
    caption = "\n".join(lines[:end]).strip()
    return "\n".join([f"*{caption}*", *lines[end:]])
