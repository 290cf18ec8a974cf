"""A solution page with the part to fill in left out.

The solution is the master copy. In its code, the lines from `### BEGIN SOLUTION` to
`### END SOLUTION` (the markers of nbgrader and otter) become `raise
NotImplementedError`; in its Markdown, the lines from `% BEGIN SOLUTION` to `% END
SOLUTION` go. A code cell tagged `solution-only` goes as a whole. The sentence that
leads to the other page of the two leads back.
"""

from __future__ import annotations

import re
from pathlib import Path

from book.pipeline.pages import ROOT, PageError

CODE = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[^\n]*\n(?:.*?\n)??"
    r"(?P=indent)### END SOLUTION[^\n]*$",
    re.M | re.S,
)
PROSE = re.compile(
    r"^% BEGIN SOLUTION[^\n]*\n.*?^% END SOLUTION[^\n]*\n\n?", re.M | re.S
)
CELL = re.compile(r"^```\{code-cell\}.*?^```\n\n?", re.M | re.S)
MARKER = re.compile(r"(###|%) (BEGIN|END) SOLUTION")
EQUATION = re.compile(r"\$\$ \(([\w-]+)\)")
TWIN = re.compile(
    r"This page has the answers\. \{doc\}`The exercise </exercises/(\w+)>` "
    r"leaves them out\."
)
BACK = r"The answers are on {doc}`a page of their own </solutions/\1>`."
NOTE = "% Generated from {source}: edit that page and run `make notebooks`.\n\n"


def to_exercise(text: str, source: str) -> str:
    """The exercise page of a solution page.

    Args:
        text: the solution's `.md`.
        source: its path, for the note at the top and for errors.

    Raises:
        PageError: if a marker has no partner, the page has nothing to leave out, or its
            title is not `# Solution N …`.
    """
    if not CODE.search(text):
        raise PageError(
            f"{source}: no ### BEGIN SOLUTION … ### END SOLUTION in its code"
        )
    text = CODE.sub(r"\g<indent>raise NotImplementedError", text)
    text = PROSE.sub("", text)
    text = TWIN.sub(BACK, text)
    text = CELL.sub(lambda m: "" if "solution-only" in m[0] else m[0], text)
    if left := MARKER.search(text):
        raise PageError(f"{source}: {left[0]!r} has no partner at the same indentation")
    text = relabelled(text)
    text, titles = re.subn(r"^# Solution\b", "# Exercise", text, count=1, flags=re.M)
    if not titles:
        raise PageError(f"{source}: the title must read `# Solution N …`")
    title_at = re.search(r"^(\([\w-]+\)=\n)?# Exercise", text, re.M).start()
    return text[:title_at] + NOTE.format(source=source) + text[title_at:]


def relabelled(text: str) -> str:
    """Labels of the exercise's own, as a label may stand on one page only."""
    text = re.sub(r"^\(solution-", "(exercise-", text, flags=re.M)
    for label in EQUATION.findall(text):
        for form in (f"$$ ({label})", f"{{eq}}`{label}`"):
            text = text.replace(form, form.replace(label, f"{label}-exercise"))
    return text


def exercise_files(root: Path = ROOT) -> dict[Path, str]:
    """Every generated exercise page and the text that it must have."""
    return {
        root / "exercises" / path.name: to_exercise(
            path.read_text(encoding="utf-8"), f"solutions/{path.name}"
        )
        for path in sorted((root / "solutions").glob("*.md"))
    }
