"""The MyST parser of the pages, and where in the raw text the things it finds lie.

markdown-it gives each block its lines but an inline token no position. Two pieces
fill that gap. The role rule notes the span of each role inside its paragraph,
heading or table cell. `Source` finds, character for character, where that content
lies in the raw text, past quote marks, list indents and escaped pipes. All edits
are cuts in the raw text, so what is not edited stays as it was, byte for byte.
"""

import re
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.myst_role import myst_role_plugin
from mdit_py_plugins.myst_role.index import myst_role
from mdit_py_plugins.substitution import substitution_plugin


class TranslationError(ValueError):
    """A construct that cannot be turned into plain Markdown.

    The message names the page, the line of the cell with its text, what is wrong
    and what to write instead.
    """


class Problem(Exception):  # noqa: N818 - never leaves the translator
    """What is wrong and the remedy; whoever knows the place makes the error."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


@dataclass(frozen=True)
class Edit:
    """Replace the raw text from `start` up to `end` (offsets) by `text`."""

    start: int
    end: int
    text: str


def _role_with_span(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not myst_role(state, silent):
        return False
    if not silent:
        state.tokens[-1].meta["span"] = (start, state.pos)
    return True


def myst_parser(*, front_matter: bool = False) -> MarkdownIt:
    """Return the parser that reads Markdown as the pages do, with role spans.

    Args:
        front_matter: read a leading `---` block as a page header. A cell has none,
            there `---` is a rule across the page.
    """
    md = MarkdownIt("commonmark").enable("table")
    if front_matter:
        md.use(front_matter_plugin)
    md.use(myst_block_plugin).use(myst_role_plugin).use(footnote_plugin)
    md.disable(["footnote_inline", "footnote_tail"])
    md.use(dollarmath_plugin, double_inline=True)
    md.use(colon_fence_plugin).use(substitution_plugin)
    md.inline.ruler.at("myst_role", _role_with_span)
    return md


class Source:
    """The raw text of a cell (or of a directive's body) with its line offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def is_blank(self, number: int) -> bool:
        """Say whether line `number` (from 0) is empty but for quote marks."""
        inside = 0 <= number < len(self.lines)
        return not inside or not self.lines[number].replace(">", "").strip()

    def span(self, token: Token) -> tuple[int, int]:
        """Return the offsets of the token's lines, without the last line's end."""
        first, last = token.map
        last = min(last, len(self.lines))
        return self.starts[first], self.starts[last] - 1

    def apply(self, edits: list[Edit]) -> str:
        """Return the text with the edits made; they must not overlap."""
        text, limit = self.text, len(self.text) + 1
        for edit in sorted(edits, key=lambda e: e.start, reverse=True):
            if edit.end > limit:
                raise AssertionError(f"edits overlap at {edit}")
            text, limit = text[: edit.start] + edit.text + text[edit.end :], edit.start
        return text

    def offsets(self, inline: Token, before: Token) -> list[int]:
        """Return the raw offset of each character of an inline token's content.

        Args:
            inline: the content of a paragraph or heading (not of a table cell).
            before: the token that opens it.

        Raises:
            Problem: if the content is not found in the raw lines.
        """
        if before.type == "heading_open" and set(before.markup) == {"#"}:
            return self._after_hashes(inline)
        found: list[int] = []
        for number, piece in enumerate(inline.content.split("\n"), inline.map[0]):
            raw = self.lines[number].rstrip() if number < len(self.lines) else ""
            body = piece.strip()
            if not raw.endswith(body):
                raise _lost(piece)
            lead = len(piece) - len(piece.lstrip())
            base = self.starts[number] + len(raw) - len(body) - lead
            found.extend(range(base, base + len(piece) + 1))
        return found

    def _after_hashes(self, inline: Token) -> list[int]:
        raw = self.lines[inline.map[0]]
        at = raw.find(inline.content)
        if at < 0:
            raise _lost(inline.content)
        base = self.starts[inline.map[0]] + at
        return list(range(base, base + len(inline.content) + 1))

    def cell_offsets(self, row: list[Token]) -> dict[int, list[int]]:
        """Return, by `id` of the token, the offsets of the cells of one table row."""
        found: dict[int, list[int]] = {}
        column = 0
        for cell in (token for token in row if token.content):
            raw = self.lines[cell.map[0]]
            match = _cell_pattern(cell.content).search(raw, column)
            if match is None:
                raise _lost(cell.content)
            base = self.starts[cell.map[0]]
            found[id(cell)] = [base + at for at in _unescaped(raw, match.span(1))]
            column = match.end(1)
        return found


def _lost(text: str) -> Problem:
    return Problem(f"cannot find {text!r} in the lines of the cell", "write it simpler")


def _cell_pattern(content: str) -> re.Pattern[str]:
    # A cell stands between a pipe (or the line's start, past quote and list marks)
    # and the next pipe; its own pipes are escaped.
    body = re.escape(content).replace(r"\|", r"\\\|")
    return re.compile(rf"(?:^|(?<=[|\s]))({body})\s*(?=\||$)")


def _unescaped(raw: str, span: tuple[int, int]) -> list[int]:
    start, end = span
    kept = [at for at in range(start, end) if raw[at : at + 2] != r"\|"]
    return [*kept, end]
