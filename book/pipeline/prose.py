"""No measured number is typed into prose.

A number that a run produced must come from the run, through glue. What may be typed
are configuration constants, each listed with its reason in `constants.txt`, and
numbers that are part of a name (Stack-100M, fp32). Code, mathematics, links and roles
are not prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin

CONSTANTS = Path(__file__).with_name("constants.txt")
ROLE = re.compile(r"\{[a-z:-]+\}`[^`]*`")
# A digit that begins a number, not one inside a name such as fp32, Stack-100M or 2-D.
NUMBER = re.compile(r"(?<![\w.\-–_])(?!\d-D\b)[-−]?\d[\d,.]*(?:\s?(?:%|×|[kMGT]?B\b))?")
HEADING_NUMBER = re.compile(r"^(?:(?:Exercise|Solution|Chapter)\s+)?\d+[a-z]?\b")
PROSE_DIRECTIVES = {"note", "tip", "warning", "important", "admonition"}
PROSE_DIRECTIVES |= {"dropdown", "glossary", "figure"}


def typed_numbers(text: str, where: str) -> list[str]:
    """Messages for every number that is typed into the prose of a page.

    Args:
        text: the whole `.md` page.
        where: its path, for the messages.
    """
    return [
        f"{where}, near line {line}: the number {number!r} is typed in "
        f"“{shortened(prose)}”; glue it from a cell, or, if it is a configuration "
        f"constant, list the phrase in book/pipeline/constants.txt"
        for line, prose in prose_of(text)
        for number in numbers_in(prose)
    ]


def numbers_in(prose: str) -> list[str]:
    """The numbers of a piece of prose that the allow-list does not cover."""
    for phrase in constants():
        prose = re.sub(rf"(?<![\w.]){re.escape(phrase)}(?![\w%])", "", prose)
    return [match[0].strip(" .,") for match in NUMBER.finditer(prose)]


@cache
def constants() -> tuple[str, ...]:
    """Phrases that may be typed, longest first: a part must not hide the whole."""
    lines = CONSTANTS.read_text(encoding="utf-8").splitlines()
    phrases = [line.split("  #")[0].strip() for line in lines if "  #" in line]
    return tuple(sorted(phrases, key=len, reverse=True))


def prose_of(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Pieces of prose with the line where each begins."""
    md = MarkdownIt("commonmark").enable("table")
    md.use(front_matter_plugin).use(myst_block_plugin).use(colon_fence_plugin)
    md.use(dollarmath_plugin, allow_labels=True)
    tokens = md.parse(text)
    for index, token in enumerate(tokens):
        line = first_line + (token.map[0] if token.map else 0)
        if token.type == "inline":
            prose = text_outside_links(token.children or [])
            if tokens[index - 1].type == "heading_open":
                prose = HEADING_NUMBER.sub("", prose)
            yield line, prose
        elif token.type in ("fence", "colon_fence"):
            yield from directive_prose(token, line)


def directive_prose(token: Token, line: int) -> Iterator[tuple[int, str]]:
    """The prose of a directive: its title and its body; code yields nothing."""
    match = re.match(r"\{(\w[\w-]*)\}(.*)", token.info.strip())
    if match and match[1] in PROSE_DIRECTIVES:
        yield from prose_of(match[2].strip(), line)
        yield from prose_of(token.content, line + 1)
    elif match and match[1] == "code-cell":
        for caption in re.findall(r"^\s+(?:caption|alt): (.*)$", token.content, re.M):
            yield from prose_of(caption, line)


def text_outside_links(children: list[Token]) -> str:
    """The text of inline tokens, without links, code, mathematics and roles."""
    depth, parts = 0, []
    for child in children:
        depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
        if depth:
            continue
        if child.type == "text":
            parts.append(child.content)
        elif child.type == "code_inline":
            # A role is `{name}` directly before a code span.
            parts.append("`")
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
    return ROLE.sub("", "".join(parts))


def shortened(prose: str) -> str:
    """At most sixty characters of a sentence, for a message."""
    return prose if len(prose) <= 60 else prose[:57] + "…"
