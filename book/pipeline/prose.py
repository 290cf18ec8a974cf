"""No measured number is typed into prose.

A number that a run produced must come from the run, through glue. What may be typed
are configuration constants, each listed with its reason in `constants.txt`, and
numbers that are part of a name (Stack-100M, fp32). Code, mathematics, links and roles
are not prose; captions, alt texts, titles, tables and HTML are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it.token import Token
from myst_nb.core.read import read_myst_markdown_notebook

from book.pipeline.translate_directives import split_info
from book.pipeline.translate_source import myst_parser

CONSTANTS = Path(__file__).with_name("constants.txt")
FRACTIONS = "¼-¾⅐-⅞"
# A name starts with a letter; groups after hyphens belong to it (Stack-100M), but not
# what reads as a quantity (to-0.68, sub-3 %). So do dimensions, widths and ordinals.
NAME = (
    rf"(?<!\w)(?![{FRACTIONS}])[^\W\d]\w*(?:[-‑]\w+(?![.,]\d|\s?[%×]|\w))*"
    r"|(?<![\w.,])\d+(?:[-‑](?:D|bit)|st|nd|rd|th)\b"
)
QUANTITY = rf"(?:[\d{FRACTIONS}][\d.,{FRACTIONS}]*|(?<!\.)\.\d+)(?:[eE][-−+]?\d+)?"
NUMBER = rf"[-−–]?{QUANTITY}(?:\s?[-−–]\s?{QUANTITY})*(?:\s?(?:%|×|[kMGT]?B\b))?"
NAME_OR_NUMBER = re.compile(rf"{NAME}|(?P<number>{NUMBER})")
HEADING_NUMBER = re.compile(
    r"^(?:\d\d(?=\s+[^\W\d])|(?:Exercise|Solution|Chapter)\s+\d+[a-z]?\b(?![.,]\d))"
)
# Directives whose content is no prose; any other is read, so that none is forgotten.
CODE = {"bibliography", "code", "code-block", "eval-rst", "math", "toctree"}
OPTION = re.compile(r"^:(?!alt:|caption:)[\w-]+:.*$", re.M)
TAG = re.compile(r"<!--.*?-->|<[^>]*>", re.S)
SPOKEN = re.compile(r"\b(?:alt|title)\s*=\s*(\"[^\"]*\"|'[^']*')")


def typed_numbers(text: str, where: str) -> list[str]:
    """Messages for every number that is typed into the prose of a page.

    Args:
        text: the whole `.md` page.
        where: its path, for the messages.
    """
    return [
        f"{where}, near line {line}: the number {number!r} is typed in "
        f"“{around(number, prose)}”; glue it from a cell, or, if it is a configuration "
        f"constant, list the phrase in book/pipeline/constants.txt"
        for line, prose in prose_of(text)
        for number in numbers_in(prose)
    ]


def numbers_in(prose: str) -> list[str]:
    """The numbers of a piece of prose that the allow-list does not cover."""
    for phrase in constants():
        whole = rf"(?<![\w.,]){re.escape(phrase)}(?![\w%]|[.,]\d|\s%)"
        prose = re.sub(whole, " ", prose)
    found = (match["number"] for match in NAME_OR_NUMBER.finditer(prose))
    return [number.rstrip(" .,") for number in found if number]


@cache
def constants() -> tuple[str, ...]:
    """Phrases that may be typed, longest first: a part must not hide the whole."""
    lines = CONSTANTS.read_text(encoding="utf-8").splitlines()
    phrases = [line.split("  #")[0].strip() for line in lines if "  #" in line]
    return tuple(sorted(phrases, key=len, reverse=True))


def prose_of(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Pieces of prose with the line where each begins."""
    tokens = myst_parser(front_matter=True).parse(text)
    for index, token in enumerate(tokens):
        line = first_line + (token.map[0] if token.map else 0)
        if token.type == "inline":
            prose = text_outside_links(token.children or [])
            if tokens[index - 1].type == "heading_open":
                prose = HEADING_NUMBER.sub("", prose)
            yield line, prose
        elif token.type == "html_block":
            yield line, text_of_html(token.content)
        elif token.type in ("fence", "colon_fence"):
            yield from directive_prose(token, line)


def directive_prose(token: Token, line: int) -> Iterator[tuple[int, str]]:
    """The prose of a directive: title, alt, caption and body; code yields nothing."""
    name, title = split_info(token.info) or ("", "")
    if name == "code-cell":
        for words in spoken(token):
            yield from prose_of(words, line)
    elif name and name not in CODE:
        if name not in ("figure", "image"):
            yield from prose_of(title, line)
        yield from prose_of(OPTION.sub("", token.content), line + 1)


def spoken(token: Token) -> list[str]:
    """Alt text and caption in a code cell's metadata, read as MyST-NB reads them."""
    fence = f"```{token.info}\n{token.content}```"
    shown = read_myst_markdown_notebook(fence).cells[0].metadata.get("mystnb") or {}
    texts = [(shown.get("image") or {}).get("alt")]
    texts += [(shown.get("figure") or {}).get("caption")]
    return [str(text) for text in texts if text]


def text_outside_links(children: list[Token]) -> str:
    """The text of inline tokens, without links, code, mathematics and roles."""
    depth, parts = 0, []
    for child in children:
        depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
        if depth or child.type.endswith(("_open", "_close")):
            continue
        if child.type in ("text", "image"):
            parts.append(child.content)
        elif child.type == "html_inline":
            parts.append(text_of_html(child.content))
        else:
            parts.append(" ")
    return "".join(parts)


def text_of_html(html: str) -> str:
    """What HTML shows or says: its text, `alt` and `title`."""
    return " ".join([TAG.sub(" ", html), *SPOKEN.findall(html)])


def around(number: str, prose: str) -> str:
    """The words around a number, for a message."""
    start = max(prose.find(number) - 30, 0)
    return " ".join(prose[start : start + 60].split())
