"""Turns a Markdown cell of a page into Markdown that GitHub and Colab show well.

The page's source is MyST. Notebook readers know plain Markdown alone, so roles become
their text or a link, admonitions quotes, folded parts `<details>`, and labelled
equations carry their number. The result equals the source wherever nothing had to
change. Nothing is executed and no page is built.
"""

from collections.abc import Mapping

from book.pipeline.targets import Targets
from book.pipeline.translate_blocks import italic_caption, translate_text
from book.pipeline.translate_leftovers import leftovers
from book.pipeline.translate_roles import Context
from book.pipeline.translate_source import Problem, TranslationError

__all__ = ["Targets", "TranslationError", "caption_cell", "leftovers", "translate"]


def translate(
    markdown: str,
    *,
    page: str,
    targets: Targets,
    glue: Mapping[str, object] | None = None,
) -> str:
    """Return one Markdown cell's source without any MyST.

    Args:
        markdown: the cell as the page has it.
        page: the page's name, such as "chapters/02_newton_schulz".
        targets: what the page may refer to, from `Targets.scan`.
        glue: the values that the page's code cells glued, by name: either Python
            values or their `text/plain` record.

    Returns:
        CommonMark with tables and `$` math.

    Raises:
        TranslationError: for a construct that is not allowed, or a label, page,
            equation, term, work, picture or value that does not exist.

    Example:
        >>> text = "It moves to {glue:text}`p:.3f`."
        >>> translate(text, page="a", targets=Targets(), glue={"p": 0.70191})
        'It moves to 0.702.'
    """
    return translate_text(markdown, Context(page, targets, glue or {}))


def caption_cell(cell_metadata: Mapping) -> str | None:
    """Return the Markdown to show below a code cell's figure; None without a caption.

    A notebook reader ignores `mystnb` metadata, so the caption needs a cell of its own.
    The result is still the page's Markdown: pass it through `translate`.

    Args:
        cell_metadata: the metadata of a code cell.

    Raises:
        ValueError: if the caption is not running text.

    Example:
        >>> caption_cell({"mystnb": {"figure": {"caption": "Five steps.\\n"}}})
        '*Five steps.*'
    """
    figure = (cell_metadata.get("mystnb") or {}).get("figure") or {}
    caption = str(figure.get("caption") or "").strip()
    if not caption:
        return None
    try:
        text = italic_caption(caption)
    except Problem as problem:
        raise ValueError(f"caption {caption!r}: {problem}") from None
    name = figure.get("name")
    return f'<a id="{str(name).lower()}"></a>{text}' if name else text
