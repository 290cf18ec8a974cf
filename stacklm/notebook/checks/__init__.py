"""The checks of the exercises, by key; one module per exercise."""

from typing import Any

from stacklm.notebook.checking import Check, judge
from stacklm.notebook.checks import ex01, ex02, ex06

CHECKS: dict[str, Check] = {
    check.key: check for module in (ex01, ex02, ex06) for check in module.CHECKS
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
    print(f"Exercise {key}: {verdict.text}")
    if verdict.error is not None:
        raise verdict.error
