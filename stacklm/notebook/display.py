"""What a chapter shows besides figures: source code, and numbers for the prose.

Both functions write display data by hand, in a form that Jupyter, Colab and the pages
of the book understand, so that nothing but IPython is needed where the notebook runs.
"""

import ast
import inspect
import math
import numbers
import textwrap
from typing import Any

from IPython.display import display

PACKAGE = "stacklm"
GLUE_PREFIX = "application/papermill.record/"


def show(*things: Any) -> None:
    """Display the source of functions or classes of this package.

    What is shown is the code that runs, read from the installed file, so a chapter and
    the package cannot drift apart. Docstrings are left out, because the API page has
    them; the first line names the file.

    Args:
        things: Functions, methods or classes defined in ``stacklm``.

    Raises:
        TypeError: If one of them has no Python source (a built-in, a number, an
            instance).
        ValueError: If one of them is not defined in ``stacklm``, or nothing is given.

    Example:
        >>> from stacklm.notebook import show
        >>> from stacklm.config import flops_per_token
        >>> show(flops_per_token)  # doctest: +SKIP
    """
    if not things:
        raise ValueError("show() needs at least one function or class, got none")
    text = "\n\n\n".join(source(thing) for thing in things)
    bundle = {"text/plain": text, "text/markdown": f"```python\n{text}\n```"}
    display(bundle, raw=True)


def source(thing: Any) -> str:
    """Return the dedented source of ``thing`` without docstrings, its file named first.

    Args:
        thing: A function, method or class defined in ``stacklm``.

    Returns:
        The source, without a newline at the end.

    Raises:
        TypeError: If ``thing`` is not a function, method or class written in Python.
        ValueError: If ``thing`` is not defined in ``stacklm``.
    """
    thing = inspect.unwrap(thing)
    if not (inspect.isroutine(thing) or inspect.isclass(thing)):
        raise TypeError(
            f"show() takes functions and classes, got {thing!r} of type "
            f"{type(thing).__name__}; print values instead"
        )
    module = getattr(thing, "__module__", None) or ""
    if module.split(".")[0] != PACKAGE:
        raise ValueError(
            f"show() displays code of {PACKAGE}, got {thing!r} of module {module!r}; "
            "code written in the notebook is already on the page"
        )
    code = without_docstrings(textwrap.dedent(inspect.getsource(thing)))
    file = inspect.getsourcefile(thing) or ""
    return f"# {file[file.rindex(PACKAGE + '/') :]}\n{code.rstrip()}"


def without_docstrings(code: str) -> str:
    """Return ``code`` with the docstring of every function and class in it removed.

    Lines are cut, not regenerated from the syntax tree, so comments and layout stay.

    Args:
        code: Python source whose first statement starts in column 0.

    Returns:
        The same source; a body that was only a docstring becomes ``...``.
    """
    lines = code.splitlines()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, kinds)]
    for node in sorted(nodes, key=lambda node: -node.lineno):  # last first: lines move
        if ast.get_docstring(node, clean=False) is None:
            continue
        doc, only = node.body[0], len(node.body) == 1
        end = doc.end_lineno
        while not only and end < len(lines) and not lines[end].strip():
            end += 1  # the blank line that parted the docstring from the code
        rest = [" " * doc.col_offset + "..."] if only else []
        lines[doc.lineno - 1 : end] = rest
    return "\n".join(lines)


def glue(name: str, value: Any, digits: int = 6) -> None:
    """Record a number or a short text under ``name``, for use in the prose of the page.

    The page then writes ``{glue:text}`name``` or ``{glue:text}`name:.3f```. Nothing is
    visible below the cell. Floats are rounded to ``digits`` significant digits, so that
    the record is the same on every processor and nbval can compare it exactly.

    Args:
        name: A Python identifier, used once per page.
        value: A string, an integer, a float, or a numpy or torch scalar of those kinds.
        digits: Significant digits kept of a float, 1 to 15. Integers stay exact.

    Raises:
        TypeError: If ``value`` is of another kind (a list, a matrix, a bool, a
            complex).
        ValueError: If ``name`` is not an identifier, ``digits`` is out of range, or
            ``value`` is NaN or infinite.

    Example:
        >>> from stacklm.notebook import glue
        >>> glue("p_of_one", 0.70099999)  # doctest: +SKIP
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(
            f"glue name must be a Python identifier such as p_of_one, got {name!r}"
        )
    if not 1 <= digits <= 15:
        raise ValueError(f"glue keeps 1 to 15 significant digits, got digits={digits}")
    text = repr(_plain(name, value, digits))
    display(
        {GLUE_PREFIX + "text/plain": text},
        raw=True,
        metadata={"scrapbook": {"name": name, "mime_prefix": GLUE_PREFIX}},
    )


def _plain(name: str, value: Any, digits: int) -> str | int | float:
    """Return ``value`` as a built-in str, int or rounded float."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy or torch scalar
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"glue takes one number or a string, got {name}={value!r} of type "
            f"{type(value).__name__}; reduce it to a number first"
        )
    if isinstance(value, numbers.Integral):
        return int(value)
    if not math.isfinite(value):
        raise ValueError(f"glue takes finite numbers, got {name}={value!r}")
    return float(f"{value:.{digits - 1}e}") + 0.0  # + 0.0 turns -0.0 into 0.0
