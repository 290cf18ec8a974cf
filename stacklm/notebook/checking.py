"""How an exercise is checked: by a second method, and by trying known mistakes.

A :class:`Check` holds inputs, a second way to the right answer, and a list of
:class:`Mistake`. A mistake is a small function that makes it; when an answer is wrong,
each mistake is run on the same inputs, and if one agrees with the answer everywhere,
the reader gets its message. Otherwise the first input that differs is shown.
"""

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people give, and what to tell them.

    Args:
        name: Short name, for tests.
        answer: A function that makes the mistake, called like the right answer.
        message: What is wrong and where to look, in one or two sentences.
    """

    name: str
    answer: Callable
    message: str


@dataclass(frozen=True)
class Check:
    """One part of an exercise.

    Args:
        key: Exercise number and part: ``"01a"``.
        task: The function asked for, as called: ``"ideal_rms(m, n)"``.
        cases: Returns the argument tuples to try, newly made at each call.
        expected: Computes the right answer by another method than the solution's.
        verified: What a right answer has been compared with, as a sentence.
        mistakes: Known wrong answers.
        rtol: Largest difference allowed, as a fraction of the largest expected
            magnitude.
        beyond: Looks at an answer whose values are right; returns what is still wrong
            with it, or None.
    """

    key: str
    task: str
    cases: Callable[[], Sequence[tuple]]
    expected: Callable
    verified: str
    mistakes: tuple[Mistake, ...]
    rtol: float = 1e-6
    beyond: Callable[[Callable], str | None] | None = None


@dataclass(frozen=True)
class Verdict:
    """What :func:`judge` found.

    Args:
        status: ``"not attempted"``, ``"correct"``, ``"wrong"`` or ``"error"``.
        text: What the reader is told.
        mistake: Name of the known mistake that agreed, if one did.
        error: The exception that the answer raised, if it did.
    """

    status: str
    text: str
    mistake: str | None = None
    error: Exception | None = None


def judge(check: Check, answer: Any) -> Verdict:
    """Compare an answer with a check; nothing is printed and nothing raised.

    Args:
        check: The check.
        answer: The reader's function; ``None``, ``...``, and a function that raises
            NotImplementedError or returns ``...`` count as not attempted.

    Returns:
        The verdict.
    """
    if answer is None or answer is ...:
        return Verdict("not attempted", "not attempted yet.")
    if not callable(answer):
        return Verdict(
            "wrong",
            f"hand in the function {check.task} itself, not {words(answer)}: its name "
            "without parentheses.",
        )
    got = []
    for args, untouched in zip(check.cases(), check.cases(), strict=True):
        try:
            got.append(answer(*args))
        except NotImplementedError:
            return Verdict("not attempted", "not attempted yet.")
        except Exception as error:
            kind = type(error).__name__
            text = f"your function raised {kind} for {given(args)}: {error}"
            return Verdict("error", text, error=error)
        if got[-1] is ...:
            return Verdict("not attempted", "not attempted yet.")
        if got[-1] is None:
            return Verdict("wrong", "your function returned None: is a return missing?")
        if difference(args, untouched, rtol=0.0) is not None:
            return Verdict("wrong", f"your function changed its input {given(args)}.")
    return _compared(check, answer, got)


def _compared(check: Check, answer: Callable, got: list) -> Verdict:
    """Judge the results ``got`` of an answer that ran through."""
    want = [check.expected(*args) for args in check.cases()]
    differences = [
        difference(*pair, check.rtol) for pair in zip(got, want, strict=True)
    ]
    if not any(differences):
        remark = check.beyond(answer) if check.beyond else None
        if remark is not None:
            return Verdict("wrong", remark)
        return Verdict("correct", f"correct. {check.verified}")
    for mistake in check.mistakes:
        theirs = [mistake.answer(*args) for args in check.cases()]
        pairs = zip(got, theirs, strict=True)
        if all(difference(*pair, check.rtol) is None for pair in pairs):
            return Verdict("wrong", f"not yet. {mistake.message}", mistake.name)
    at = next(index for index, text in enumerate(differences) if text)
    args = check.cases()[at]
    return Verdict("wrong", f"not yet. For {given(args)}: {differences[at]}.")


def difference(got: Any, want: Any, rtol: float) -> str | None:
    """Say how ``got`` differs from ``want``, or return None if it does not.

    Args:
        got: The answer: a number, a tensor, a text, or a list, tuple or dict of them.
        want: What is expected, of the same kinds.
        rtol: Largest difference, as a fraction of the largest magnitude in ``want``.

    Returns:
        A phrase such as ``"got 3, expected 4"``, or None.
    """
    plain = f"got {words(got)}, expected {words(want)}"
    if isinstance(want, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(want):
            return plain
        pairs = [(f"[{key}] ", got[key], want[key]) for key in want]
    elif isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return plain
        pairs = [
            (f"[{at}] ", *pair) for at, pair in enumerate(zip(got, want, strict=True))
        ]
    elif isinstance(want, str):
        return None if isinstance(got, str) and got == want else plain
    elif isinstance(want, torch.Tensor) and want.ndim:
        return _tensor_difference(got, want, rtol)
    else:
        number = _number(got)
        gap = rtol * abs(float(want))
        close = number is not None and abs(number - float(want)) <= gap
        return None if close else plain
    texts = ((name, difference(*pair, rtol)) for name, *pair in pairs)
    return next((name + text for name, text in texts if text), None)


def _number(value: Any) -> float | None:
    """Return ``value`` as a float if it is one number: built-in, numpy or torch."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if real else None


def _tensor_difference(got: Any, want: torch.Tensor, rtol: float) -> str | None:
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        return f"got {words(got)}, expected {words(want)}"
    if not want.numel():
        return None  # no values, so none that differ; max() would raise
    gap = (got.detach().double() - want.detach().double()).abs().max().item()
    allowed = rtol * want.detach().double().abs().max().item()
    if gap <= allowed:  # written so that NaN is a difference
        return None
    return f"values differ by up to {gap:.2g}, {allowed:.2g} is allowed"


def given(args: tuple) -> str:
    """Say in a few words what a function was called with."""
    return words(args[0] if len(args) == 1 else args)


def words(value: Any) -> str:
    """Return ``value`` in a few words, the same on every machine.

    Args:
        value: An argument or a result; tensors are described by shape if they are long.

    Returns:
        A short text.
    """
    if isinstance(value, torch.Tensor):
        if value.ndim > 0 and value.numel() > 12:
            return f"a {str(value.dtype)[6:]} tensor of shape {tuple(value.shape)}"
        return words(value.tolist())
    if isinstance(value, Mapping):
        inside = ", ".join(f"{words(k)}: {words(v)}" for k, v in value.items())
        return "{" + inside + "}"
    if isinstance(value, list | tuple):
        if len(value) > 1 and all(isinstance(item, torch.Tensor) for item in value):
            shapes = words([tuple(item.shape) for item in value])
            return f"{len(value)} tensors of shapes {shapes}"
        most = 4 if value and isinstance(value[0], list | tuple) else 8
        inside = ", ".join(words(item) for item in value[:most])
        more = f", … ({len(value)} in all)" * (len(value) > most)
        return ("[{}]" if isinstance(value, list) else "({})").format(inside + more)
    number = _number(value)
    if number is None:
        return repr(value) if isinstance(value, str) else type(value).__name__
    return f"{int(number)}" if isinstance(value, numbers.Integral) else f"{number:.6g}"
