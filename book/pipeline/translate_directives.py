"""Reads a directive (a fence whose info starts with `{name}`) as the pages read it."""

import re
from dataclasses import dataclass, field

from docutils.parsers.rst.directives.admonitions import (
    Admonition,
    Important,
    Note,
    Tip,
    Warning,
)
from docutils.parsers.rst.directives.images import Figure, Image
from docutils.parsers.rst.states import MarkupError
from markdown_it.token import Token
from myst_parser.parsers.directives import parse_directive_text
from sphinx_design.dropdown import DropdownDirective

from book.pipeline.translate_source import Problem

DIRECTIVES = {
    "note": Note,
    "tip": Tip,
    "warning": Warning,
    "important": Important,
    "admonition": Admonition,
    "dropdown": DropdownDirective,
    "figure": Figure,
    "image": Image,
}
ALLOWED = "allowed are " + ", ".join(f"{{{name}}}" for name in DIRECTIVES)


@dataclass(frozen=True)
class Directive:
    """A directive's parts; `offset` is how many lines its body lies below its fence."""

    name: str
    title: str
    options: dict = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    offset: int = 1


def split_info(info: str) -> tuple[str, str] | None:
    """Return name and argument of a directive's fence; None for a plain code fence.

    Example:
        >>> split_info("{admonition} In short")
        ('admonition', 'In short')
        >>> split_info("python")
    """
    match = re.match(r"\{([^}]*)\}\s*(.*)", info.strip())
    return (match[1], match[2].strip()) if match else None


def read_directive(token: Token) -> Directive:
    """Parse a directive's argument, options and body with MyST's own parser.

    Args:
        token: a fence or colon fence whose info starts with `{name}`.

    Raises:
        Problem: if the directive is not allowed, or its arguments or options are wrong.
    """
    name, argument = split_info(token.info) or ("", "")
    if name not in DIRECTIVES:
        raise Problem(f"the directive {{{name}}} is not allowed", ALLOWED)
    try:
        parsed = parse_directive_text(DIRECTIVES[name], argument, token.content)
    except MarkupError as error:
        raise Problem(f"{{{name}}}: {error}", "give the title or the file") from None
    if parsed.warnings:
        remedy = "mend it, or leave a blank line before a body that starts with ':'"
        raise Problem(f"{{{name}}}: {parsed.warnings[0].msg}", remedy)
    body = list(parsed.body)
    while body and not body[-1].strip():
        body.pop()
    title = " ".join(parsed.arguments)
    return Directive(name, title, parsed.options, body, parsed.body_offset + 1)
