"""What ``--config`` and ``--set`` mean: a name for a start, then field by field.

Units stand below every field of the three configurations. Taught in chapter 11.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from stacklm.config import LADDER, StackConfig, TrainConfig, toy_config
from stacklm.train.options import RunConfig

_RUNG = TrainConfig(
    muon_peak_lr=8e-3,
    adamw_peak_lr=1.2e-3,
    warmup_steps=250,
    total_steps=1_000,
    micro_batch_size=8,
    grad_accum_steps=4,
)
_TOY = TrainConfig(
    muon_peak_lr=0.01,
    warmup_steps=20,
    total_steps=300,
    decay_frac=0.2,
    micro_batch_size=16,
    seq_len=128,
    grad_accum_steps=1,
)


@dataclass(frozen=True)
class Preset:
    """All the fields of a run."""

    model: StackConfig
    """What is trained."""
    train: TrainConfig
    """How."""
    run: RunConfig
    """How it is watched and saved."""


PRESETS: dict[str, Preset] = {
    "toy": Preset(toy_config(), _TOY, RunConfig(validate_every=50, save_every=100)),
    **{name.lower(): Preset(cfg, _RUNG, RunConfig()) for name, cfg in LADDER.items()},
    "stack100m": Preset(StackConfig(), TrainConfig(), RunConfig()),
}
"""By the names that ``--config`` takes."""


def override(preset: Preset, settings: list[str]) -> Preset:
    """Set fields of a preset.

    Args:
        preset: What stays where nothing is set.
        settings: "field=value" each; two numbers are written "0.9,0.95".

    Returns:
        The new preset.

    Raises:
        ValueError: A setting without "=", an unknown field (the message names the
            nearest one), a field given twice, or a value that is not of its kind.

    Example:
        >>> override(PRESETS["toy"], ["muon_peak_lr=0.02"]).train.muon_peak_lr
        0.02
    """
    kinds = {f.name: f.type for part in _parts(preset) for f in fields(part)}
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"a setting is written field=value, got {setting!r}")
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.0)
            raise ValueError(
                f"there is no field {name}; the nearest is {near[0]} (--fields lists "
                f"all of them)"
            )
        if name in values:
            raise ValueError(f"{name} is set twice; set it once")
        values[name] = _value(name, text, kinds[name])
    changed = (
        replace(
            part, **{f.name: values[f.name] for f in fields(part) if f.name in values}
        )
        for part in _parts(preset)
    )
    return Preset(*changed)


def describe(preset: Preset) -> str:
    """List every field with its value and what it means."""
    lines = []
    for part in _parts(preset):
        docs = _field_docs(type(part))
        lines.append(f"\n{type(part).__name__}")
        for field in fields(part):
            value = getattr(part, field.name)
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            lines.append(f"  {f'{field.name}={shown}':<28} {docs[field.name]}")
    return "\n".join(lines).strip()


def _parts(preset: Preset) -> tuple:
    return preset.model, preset.train, preset.run


def _value(name: str, text: str, kind):
    """The value of a setting, of the field's own kind."""
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind in (int, float):
            return kind(text)
        return tuple(float(part) for part in text.split(","))
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ValueError(
            f"{name} takes {wanted.get(kind, 'two numbers, as in 0.9,0.95')}, "
            f"got {text!r}"
        ) from None


def _field_docs(kind: type) -> dict[str, str]:
    """The sentence below every field, which Python itself does not keep."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    }
