"""Finds MyST that plain Markdown does not know, by a second method.

The translator reads tokens; this reads characters. What one of them gets wrong, the
other one sees.
"""

import re

# In this order: what is escaped, code and math are passed over as they come, and
# only what remains can be a role. The tick that follows a role is the role's own.
# No character fits two alternatives of a repetition: a formula with many backslashes
# would be tried in two to the power of their number ways.
_SKIPPED = re.compile(
    r"""
      (?P<escaped>\\.)
    | (?P<html><!--.*?-->)
    | (?P<role>\{[A-Za-z][\w:+-]*\}`+[^`]*`+)
    | (?P<label>\$\$(?:\\.|(?!\$\$)[^\\])*\$\$[ ]*\([^)\n$]+\)[ ]*$)
    | (?P<display>\$\$(?:\\.|(?!\$\$)[^\\])*\$\$)
    | (?P<inline>\$(?:\\.|[^$\\])+\$)
    | (?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)
    """,
    re.X | re.S | re.M,
)
_LEAD = r"^[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)*"
_LINES = {
    "directive": re.compile(_LEAD + r"((?::{3,}|(?:`{3,}|~{3,})[ \t]*\{).*)$", re.M),
    "target": re.compile(_LEAD + r"(\([^()\n]+\)=)[ \t]*$", re.M),
    "comment": re.compile(_LEAD + r"(%.*)$", re.M),
    "block break": re.compile(_LEAD + r"(\+\+\+.*)$", re.M),
    "attributes": re.compile(_LEAD + r"(\{[.#][^}\n]*\})[ \t]*$", re.M),
    "substitution": re.compile(r"(\{\{[^}\n]*\}\})"),
}
_FENCE = re.compile(r"^[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)*(`{3,}|~{3,})([^`\n]*)$")


def leftovers(markdown: str) -> list[str]:
    """Return what raw MyST a Markdown cell of a notebook still holds.

    Roles, directives, labels, equation labels, comments, block breaks, attributes and
    substitutions are found; code and math are passed over.

    Args:
        markdown: the source of one Markdown cell.

    Returns:
        One line of text per find, such as "role: {ref}`x`"; none if all is plain.

    Example:
        >>> leftovers("see {ref}`x`, not ``{ref}`y` ``")
        ['role: {ref}`x`']
    """
    found: list[str] = []

    def skip(match: re.Match[str]) -> str:
        if match["role"]:
            found.append(f"role: {match['role']}")
        if match["label"]:
            found.append(
                f"equation label: {match['label'].rpartition('$$')[2].strip()}"
            )
        return re.sub(r"[^\n]", "x", match[0])

    rest = _SKIPPED.sub(skip, _without_code(markdown))
    for kind, pattern in _LINES.items():
        found += [f"{kind}: {match[1].strip()}" for match in pattern.finditer(rest)]
    return found


def _without_code(markdown: str) -> str:
    """Blank the lines of code fences, but not those of directives."""
    kept: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        match = _FENCE.match(line)
        if fence:
            closes = match and match[1].startswith(fence) and not match[2].strip()
            fence = "" if closes else fence
            kept.append("")
        elif match and not match[2].strip().startswith("{"):
            fence = match[1]
            kept.append("")
        else:
            # The fence of a directive stays, but without the ticks' own meaning.
            kept.append(re.sub(r"`{3,}(?=[ \t]*\{)", ":::", line))
    return "\n".join(kept)
