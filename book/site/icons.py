"""The theme's icons, less the two thousand that no page shows.

The theme brings all of Font Awesome: 300 kB of fonts and a third of its style sheet.
`book/vendor/refresh.py` cuts the fonts down to `ICONS`, and after the build the style
sheet is cut down to the same names. A test compares both with the built pages.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# Font file -> {name of a class, without "fa-": code point}. The theme's templates
# choose the names; after adding one, run `make vendor`.
ICONS = {
    "fa-solid-900": {
        "angle-down": 0xF107,
        "angle-left": 0xF104,
        "angle-right": 0xF105,
        "arrow-up": 0xF062,
        "bars": 0xF0C9,
        "chevron-down": 0xF078,
        "circle-half-stroke": 0xF042,
        "code": 0xF121,
        "download": 0xF019,
        "expand": 0xF065,
        "file": 0xF15B,
        "file-pdf": 0xF1C1,
        "lightbulb": 0xF0EB,
        "list": 0xF03A,
        "magnifying-glass": 0xF002,
        "moon": 0xF186,
        "pencil-alt": 0xF303,
        "rocket": 0xF135,
        "sun": 0xF185,
        "xmark": 0xF00D,
    },
    "fa-brands-400": {"github": 0xF09B},
}
NAMES = {name for names in ICONS.values() for name in names}
SHEET = Path("_static/styles/pydata-sphinx-theme.css")
# Written by the theme, loaded by no page: see templates/static/webpack-macros.html.
UNUSED = ("_static/vendor", "_static/scripts/fontawesome.js")

ICON_RULE = re.compile(r'(?P<names>(?:\.fa-[\w-]+::?before,?)+)\{content:"[^"]*"\}')
FACE = re.compile(
    r"@font-face\{[^}]*url\([^)]*/(?P<font>fa-[\w-]+)\.woff2\)[^}]*\}", re.ASCII
)


def used_only(sheet: str) -> str:
    """Return a style sheet without the icons and fonts that are not in `ICONS`.

    Args:
        sheet: The theme's style sheet, minified.

    Raises:
        ExtensionError: If it has no rule for a name in `ICONS`, or no such font.
    """
    seen: set[str] = set()

    def icon(rule: re.Match[str]) -> str:
        found = NAMES & set(re.findall(r"\.fa-([\w-]+):", rule["names"]))
        seen.update(found)
        return rule[0] if found else ""

    def face(rule: re.Match[str]) -> str:
        if rule["font"] not in ICONS:
            return ""
        seen.add(rule["font"])
        source = f'src:url(../icons/{rule["font"]}.woff) format("woff")'
        return re.sub(r"src:[^}]*", source, rule[0])

    sheet = FACE.sub(face, ICON_RULE.sub(icon, sheet))
    if missing := sorted((NAMES | set(ICONS)) - seen):
        raise ExtensionError(
            f"the theme's style sheet has no rule for {', '.join(missing)}; "
            "correct ICONS in book/site/icons.py"
        )
    return sheet


def shrink(app: Sphinx, error: Exception | None) -> None:
    """Cut down the style sheet that was written, and remove what it no longer names."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    sheet = (out / SHEET).read_text(encoding="utf-8")
    (out / SHEET).write_text(used_only(sheet), encoding="utf-8")
    for name in UNUSED:
        shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
    for source_map in out.glob("_static/*/*.map"):
        source_map.unlink()
