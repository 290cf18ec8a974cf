"""`{exports}`: document what a package exports, in the order of its `__all__`.

The page cannot fall behind the package: a name added to `__all__` appears, one that is
gone disappears. sphinx-autoapi reads the source text, so torch need not be installed.
"""

from __future__ import annotations

import itertools
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

KINDS = ("class", "exception", "function", "data")


class Exports(SphinxDirective):
    """`{exports} stacklm.config` documents every name in `stacklm.config.__all__`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = self.arguments[0]
        objects = self.env.autoapi_all_objects
        if package not in objects or not objects[package].all:
            raise self.error(f"{package} has no __all__ to document; check its name")
        # Short names in docstrings are meant within the package that exports them.
        lines = StringList([f".. py:currentmodule:: {package}", ""], package)
        texts = {n: self.describe(f"{package}.{n}") for n in objects[package].all}
        links = [
            f":py:obj:`{name} <{package}.{name}>`"
            for name, text in texts.items()
            if text
        ]
        for line in (", ".join(links), "", *itertools.chain(*texts.values())):
            lines.append(line, package)
        node = nodes.container()
        self.state.nested_parse(lines, self.content_offset, node)
        return node.children

    def describe(self, name: str) -> list[str]:
        """Return the reStructuredText that documents one name."""
        item = self.env.autoapi_all_objects.get(name)
        if item is None:
            raise self.error(f"{name} is in __all__ but not in the source")
        if item.type not in KINDS:  # a module, such as stacklm.notebook.figures
            return []
        members = ["   :members:"] if item.type in ("class", "exception") else []
        return [f".. autoapi{item.type}:: {name}", *members, ""]


def keep_first_line(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from reading "Base: why" as a type and a text.

    What stands below a field and below "Returns:" is prose, colons included; types are
    annotations. An empty comment takes the place of the line that napoleon would split,
    and an empty type that of what is returned.
    """
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]
    for number, line in enumerate(lines[:-1]):
        if line.strip() in ("Returns:", "Yields:"):
            text = lines[number + 1].lstrip()
            lines[number + 1] = lines[number + 1].replace(text, f": {text}")


def skip_undocumented(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out members that say nothing of themselves, such as a module's weights."""
    return True if not getattr(obj, "docstring", "x").strip() else None


def setup(app: Sphinx) -> None:
    """Register the directive; called by the extension's own setup."""
    # Before napoleon's own handler, which has the default priority of 500.
    app.connect("autodoc-process-docstring", keep_first_line, priority=400)
    app.connect("autodoc-skip-member", skip_undocumented)
    app.add_directive("exports", Exports)
