"""The checks of the exercises, by key; one module per exercise."""

import pkgutil
from importlib import import_module
from textwrap import fill
from typing import Any

from stacklm.notebook.checking import Check, judge

WIDTH = 75  # characters; a page shows a little more without scrolling
EXERCISES = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name[:2] == "ex")
CHECKS: dict[str, Check] = {
    check.key: check
    for name in EXERCISES
    for check in import_module(f"{__name__}.{name}").CHECKS
}


def check(key: str, answer: Any) -> None:
    """Check the answer to an exercise and print what was found.

    Args:
        key: Exercise number and part, such as ``"01a"``.
        answer: The function that the exercise asks for.

    Raises:
        KeyError: If there is no such exercise.
        Exception: Whatever the answer itself raised, after saying for which input.

    Example:
        >>> from stacklm.notebook import check
        >>> check("02a", lambda m, n: 1 / min(m, n) ** 0.5)  # doctest: +ELLIPSIS
        Exercise 02a: not yet. ...
        >>> check("02a", ...)
        Exercise 02a: not attempted yet.
    """
    if key not in CHECKS:
        raise KeyError(f"no check {key!r}; there are {', '.join(CHECKS)}")
    verdict = judge(CHECKS[key], answer)
    said = f"Exercise {key}: {verdict.text}"
    print("\n".join(fill(line, WIDTH) for line in said.splitlines()))
    if verdict.error is not None:
        raise verdict.error
