"""What the site tells programs: plain Markdown of every page, llms.txt, a site map.

And the page that a host shows where there is none, which programs count too. Absolute
addresses follow the repository's (`address.published`), so a fork's lead to the fork.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import yaml
from docutils import nodes
from sphinx.application import Sphinx

from book.site.head import describe
from book.site.markdown import markdown

NOT_FOUND = """<h1>There is no page here</h1>
<p>The address may be old or mistyped. The menu lists every page of the book,
<a href="search.html">search</a> finds words in them, and the
<a href="book/index.html">front page</a> is where the book begins.</p>"""
# An address that is relative to the page it stands on.
RELATIVE = re.compile(
    r'\b(?P<name>href|src|action|data-content_root)="(?![\w+.-]+:|[/#"])(?:\./)?'
)
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"


def write_markdown(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Write `chapters/01_x.md` beside `chapters/01_x.html`, and let the page say so."""
    if doctree is None or app.builder.format != "html":
        return
    path = Path(app.outdir, f"{pagename}.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown(context["body"]), encoding="utf-8")
    context["markdown"] = f"{pagename.rsplit('/', 1)[-1]}.md"


def contents(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (caption, pages) of each part of `_toc.yml`, in the order of reading."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    yield "Front page", [toc["root"]]
    for part in toc["parts"]:
        pages = []
        for chapter in part["chapters"]:
            sections = chapter.get("sections", [])
            pages += [entry["file"] for entry in (chapter, *sections)]
        yield part["caption"], pages


def llms_txt(app: Sphinx) -> str:
    """Return the list of all plain pages, as llmstxt.org describes it."""
    base, env = app.config.html_baseurl, app.env
    lines = [
        f"# {app.config.html_title}",
        "",
        f"> {describe(env.get_doctree(env.config.root_doc))}",
        "",
        "Each page is plain Markdown, with its code, its outputs and its mathematics.",
    ]
    for caption, pages in contents(Path(app.srcdir)):
        lines += ["", f"## {caption}", ""]
        for page in pages:
            title, about = env.titles[page].astext(), describe(env.get_doctree(page))
            lines.append(f"- [{title}]({base}{page}.md): {about}".rstrip(": "))
    return "\n".join(lines) + "\n"


def sitemap(base: str, pages: list[str]) -> bytes:
    """Return the site map of pages under an absolute address."""
    urls = ElementTree.Element("urlset", xmlns=SITEMAP)
    for page in pages:
        url = ElementTree.SubElement(urls, "url")
        ElementTree.SubElement(url, "loc").text = f"{base}{page}.html"
    return ElementTree.tostring(urls, encoding="utf-8", xml_declaration=True)


def not_found(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """Let Sphinx write 404.html with the theme's menu and search field."""
    yield "404", {"title": "There is no page here", "body": NOT_FOUND}, "page.html"


def at_any_depth(page: str, base: str) -> str:
    """Make each relative address of 404.html absolute: it is shown for any address."""
    prefix = urlsplit(base).path or "/"
    return RELATIVE.sub(rf'\g<name>="{prefix}', page)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write what covers the whole site."""
    if error or app.builder.format != "html":
        return
    out, base = Path(app.outdir), app.config.html_baseurl
    path = out / "404.html"
    page = at_any_depth(path.read_text(encoding="utf-8"), base)
    path.write_text(page, encoding="utf-8")
    (out / "llms.txt").write_text(llms_txt(app), encoding="utf-8")
    if base:
        (out / "sitemap.xml").write_bytes(sitemap(base, sorted(app.env.found_docs)))
