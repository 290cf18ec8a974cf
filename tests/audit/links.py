"""Every link of the built pages: those inside the book, and a list of the others.

    python -m tests.audit.links            check inside, list outside; no network
    python -m tests.audit.links --online   ask each outside address as well

A link inside is sound if the file is there, and in it the anchor. Outside addresses are
asked by Sphinx's own linkcheck, which knows redirects, limits of rate and retries; it
reads the sources, so the theme's buttons, which tests/browser follows to files of the
repository, are listed and not asked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.served import prefix

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
ASKED = ROOT / "_build" / "linkcheck" / "output.json"
LEADS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}
# Shown for any address, so its own links begin at the book's place on its host.
ANYWHERE = "404.html"
INLINE = ("data", "blob", "javascript", "mailto")


@dataclass
class Links(HTMLParser):
    """What a page links to, and what in it can be linked to."""

    targets: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        target = values.get(LEADS.get(tag, ""))
        if target is not None:
            self.targets.append(target)


@cache
def read(path: Path) -> Links:
    """Return the links and anchors of one page."""
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def pages(html: Path = HTML) -> list[Path]:
    """The pages of a built book; the theme's templates among its files are none."""
    found = sorted(html.rglob("*.html"))
    return [p for p in found if not p.relative_to(html).parts[0].startswith("_")]


def outside(target: str) -> bool:
    """Whether a link leads to another host."""
    return bool(urlsplit(target).netloc)


def faults(path: Path, html: Path = HTML) -> Iterator[str]:
    """Yield what is wrong with the links of one page that stay inside the book.

    Args:
        path: The page.
        html: The folder of the book that it belongs to.
    """
    for target in dict.fromkeys(read(path).targets):
        parts = urlsplit(target)
        if outside(target) or parts.scheme in INLINE:
            continue
        name, folder, to = path.relative_to(html), path.parent, unquote(parts.path)
        if str(name) == ANYWHERE and to.startswith(prefix()):
            folder, to = html, to.removeprefix(prefix())
        if parts.scheme or to.startswith("/"):
            yield f"{name}: {target} works on one machine only; make it relative"
            continue
        found = (folder / to).resolve() if to else path
        if not found.is_file() or html.resolve() not in found.resolve().parents:
            yield f"{name}: {target} leads to no file of the book; mend the link"
            continue
        anchors = read(found).anchors if found.suffix == ".html" else ()
        if parts.fragment and unquote(parts.fragment) not in anchors:
            yield f"{name}: {target} leads to no anchor of that page; mend it"


def elsewhere(html: Path = HTML) -> dict[str, list[str]]:
    """Every address outside, with the pages that link to it."""
    found: dict[str, list[str]] = {}
    for path in pages(html):
        for target in dict.fromkeys(filter(outside, read(path).targets)):
            found.setdefault(target, []).append(path.relative_to(html).as_posix())
    return dict(sorted(found.items()))


def ask() -> int:
    """Ask every address that the sources name; return how many are broken."""
    ASKED.unlink(missing_ok=True)
    book = [sys.executable, "-m", "jupyter_book", "build", "--all", "--quiet"]
    subprocess.run([*book, "--builder", "linkcheck", str(ROOT)], check=False, cwd=ROOT)
    if not ASKED.exists():
        print("the pages could not be read; see above")
        return 1
    rows = [json.loads(line) for line in ASKED.read_text("utf-8").splitlines()]
    broken = [row for row in rows if row["status"] in ("broken", "timeout")]
    for row in broken:
        print(f"{row['filename']}:{row['lineno']}: {row['uri']}: {row['info']}")
    print(f"{len(rows)} addresses asked, {len(broken)} broken")
    return len(broken)


def main(arguments: list[str] | None = None) -> int:
    """Check and list; return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.audit.links")
    parser.add_argument("--online", action="store_true", help="ask outside addresses")
    opts = parser.parse_args(arguments)
    if not pages():
        parser.error(f"{HTML} is not built; run `make book` first")
    wrong = [fault for path in pages() for fault in faults(path)]
    listed = elsewhere()
    for url, where in listed.items():
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        print(f"{url}  ({where[0]}{more})")
    for fault in wrong:
        print(fault)
    inside = sum(len(set(read(path).targets)) for path in pages())
    print(
        f"{len(pages())} pages, {inside} links, {len(listed)} addresses outside, "
        f"{len(wrong)} links broken"
    )
    broken = ask() if opts.online else 0
    return 1 if wrong or broken else 0


if __name__ == "__main__":
    sys.exit(main())
