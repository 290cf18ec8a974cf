"""A page as plain Markdown: what a program reads, from the text that a reader sees.

Made from the built page, not from its source: there values stand in the sentences,
citations are links, and the glossary, the API and the bibliography are written out.
"""

from __future__ import annotations

import re

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

# What a reader of plain text has no use for: scripts and links to a place on the page.
LEFT_OUT = "script, style, a.headerlink, .sd-summary-state-marker"
LANGUAGES = {"ipython3": "python", "default": "python"}
PAGE = re.compile(r"^(?!\w+:)(?P<path>[^#]+)\.html(?P<anchor>#.*)?$")


class Converter(MarkdownConverter):
    """markdownify, with equations as TeX, and links that lead to other plain pages."""

    def convert_span(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"${tex(el)}$" if "math" in el.get("class", []) else text

    def convert_div(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        if "math" not in el.get("class", []):
            return super().convert_div(el, text, parent_tags)
        number = el.select_one(".eqno")
        tag = f" \\tag{{{number.extract().get_text()[1:-1]}}}" if number else ""
        return f"\n\n$$\n{tex(el)}{tag}\n$$\n\n"

    def convert_dt(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        if "sig" in el.get("class", []):  # of the API: its markup would break words
            text = f"`{' '.join(el.get_text().split())}`"
        return super().convert_dt(el, text, parent_tags)

    def convert_summary(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"\n\n**{text.strip()}**\n\n"

    def convert_a(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        del el["title"]
        if page := PAGE.match(el.get("href", "")):
            el["href"] = f"{page['path']}.md{page['anchor'] or ''}"
        return super().convert_a(el, text, parent_tags)


def tex(math: Tag) -> str:
    r"""Return the TeX of an equation without the \( \) or \[ \] around it."""
    return math.get_text().strip()[2:-2].strip()


def language(pre: Tag) -> str:
    """Return the language of a block of code; outputs have none."""
    block = pre.find_parent(class_=re.compile("^highlight-"))
    if block is None or pre.find_parent(class_="cell_output"):
        return ""
    name = block["class"][0].removeprefix("highlight-")
    return LANGUAGES.get(name, name)


def markdown(body: str) -> str:
    """Turn the article of a built page into Markdown.

    Args:
        body: HTML, as the page's template gets it.

    Returns:
        CommonMark with tables, fenced code and `$` mathematics, ending in one newline.

    Example:
        >>> markdown('<h1>Step<a class="headerlink">#</a></h1><p>Two <b>words</b>')
        '# Step\\n\\nTwo **words**\\n'
    """
    soup = BeautifulSoup(body, "html.parser")
    for element in soup.select(LEFT_OUT):
        element.decompose()
    converter = Converter(
        heading_style="ATX", bullets="-", code_language_callback=language, wrap=False
    )
    text = converter.convert_soup(soup)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
