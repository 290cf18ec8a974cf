"""Checks that the configuration classes share; standard library only.

Every message names the field, the rule, the value that broke it and a remedy.
"""

from dataclasses import fields


def check_kinds(config) -> None:
    """Compare every field with its annotation: int, float, bool or a pair of floats.

    An int passes for a float. A bool never passes for a number, although Python counts
    it as an int: ``n_layers=True`` is a slip, not one layer.

    Raises:
        TypeError: naming the first field whose value is of the wrong kind.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type in (int, float, bool):
            fits = is_kind(value, field.type)
            wanted = f"of type {field.type.__name__}"
        else:
            pair = isinstance(value, tuple) and len(value) == 2
            fits = pair and all(is_kind(part, float) for part in value)
            wanted = "a tuple of two floats"
        if not fits:
            raise TypeError(
                f"{field.name} must be {wanted}, got {value!r} "
                f"({type(value).__name__}); convert it first"
            )


def is_kind(value, kind: type) -> bool:
    """Say whether `value` is a `kind`; a bool is no number, and an int is a float."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, (int, float) if kind is float else kind)


def check_at_least(config, low: int, names, remedy: str = "raise it") -> None:
    """Require low <= value < inf for every field in `names`; NaN fails, too.

    Raises:
        ValueError: naming the first field out of range.
    """
    for name in names:
        value = getattr(config, name)
        if not low <= value < float("inf"):
            raise ValueError(
                f"{name} must be finite and at least {low}, got {value}; {remedy}"
            )


def check_positive(config, names) -> None:
    """Require 0 < value < inf for every field in `names`; NaN fails, too.

    Raises:
        ValueError: naming the first field out of range.
    """
    for name in names:
        value = getattr(config, name)
        if not 0 < value < float("inf"):
            raise ValueError(
                f"{name} must be finite and above 0, got {value}; "
                f"the default is {type(config).__dataclass_fields__[name].default}"
            )
