"""What can be set of Muon in JAX, and what is refused.

Units: learning rates are per step; weight decay is per step and multiplied by the
learning rate. Taught in chapter 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stacklm._checks import check_at_least, is_kind
from stacklm.optim import COEFFICIENTS
from stacklm.optim.muon import RMS_OF_ADAMW
from stacklm.optim.plan import MAX_STACK_BYTES

IMPLS = ("optax", "stacked")
NS_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class MuonConfig:
    """Muon for matrices and AdamW for the rest, in one of two implementations.

    Both compute the same and keep the same state, so a checkpoint of one goes on
    under the other.

    Raises:
        TypeError: A value is of the wrong kind.
        ValueError: A value is out of range, or not for this ``impl``.

    Example:
        >>> MuonConfig(ns_dtype="bfloat16").impl
        'stacked'
    """

    impl: str = "stacked"
    """"optax" is ``optax.contrib.muon`` itself, which orthogonalizes leaf by leaf;
    "stacked" puts leaves of one shape into one stack and shards the stack."""
    learning_rate: float | Callable = 0.02
    """Of Muon: a number or an optax schedule (per step)."""
    adam_learning_rate: float | Callable = 3e-3
    """Of AdamW: a number or an optax schedule (per step)."""
    momentum: float = 0.95
    """Muon's mu in M <- mu * M + (1 - mu) * g (fraction kept per step)."""
    nesterov: bool = True
    """Look ahead. As in optax, this also makes NAdam of Adam (yes or no)."""
    weight_decay: float = 0.1
    """Decoupled decay of Muon's matrices, times learning rate (per step)."""
    adam_weight_decay: float = 0.0
    """The same for every leaf of AdamW, gains too, for optax has no mask there."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's first and second moment decay (fractions kept per step)."""
    eps: float = 1e-8
    """Added to the norm before the iteration, and to AdamW's divisor, as in optax."""
    consistent_rms: float | None = RMS_OF_ADAMW
    """c: steps are scaled by c * sqrt(max(m, n)). None: by sqrt(max(1, n / m))."""
    ns_steps: int = 5
    """Newton–Schulz steps (count)."""
    ns_dtype: str = "float32"
    """Of the iteration, "float32" or "bfloat16"; the second is for "stacked" only.
    Weights and momentum are float32 either way."""
    coefficients: tuple = COEFFICIENTS
    """(a, b, c) of the quintic, or such a triple for every step. In optax, one triple
    gives an unrolled iteration and a triple per step gives a loop."""
    max_stack_bytes: int = MAX_STACK_BYTES
    """Most bytes of a stack on one device; larger groups are cut (bytes)."""

    def __post_init__(self):
        """Reject wrong kinds first, then single values, then combinations."""
        _check_kinds(self)
        check_at_least(self, 0, ["weight_decay", "adam_weight_decay"])
        check_at_least(self, 1, ["ns_steps", "max_stack_bytes"])
        check_at_least(self, 0, ["eps"])
        _check_ranges(self)
        if self.impl == "optax" and self.ns_dtype != "float32":
            raise ValueError(
                f'ns_dtype={self.ns_dtype!r} needs impl="stacked", got impl="optax"; '
                "optax iterates in the dtype of the gradient"
            )

    @property
    def coefficient_rows(self) -> tuple[tuple[float, float, float], ...]:
        """One triple per step, however they were given."""
        one = isinstance(self.coefficients[0], int | float)
        return (self.coefficients,) * self.ns_steps if one else self.coefficients


def _check_kinds(config: MuonConfig) -> None:
    """Compare values with their kinds; rates may be schedules."""
    kinds = {
        float: ("momentum", "weight_decay", "adam_weight_decay", "eps"),
        int: ("ns_steps", "max_stack_bytes"),
        bool: ("nesterov",),
    }
    for kind, names in kinds.items():
        for name in names:
            if not is_kind(getattr(config, name), kind):
                raise TypeError(
                    f"{name} must be of type {kind.__name__}, got "
                    f"{getattr(config, name)!r}; convert it first"
                )
    for name in ("learning_rate", "adam_learning_rate"):
        rate = getattr(config, name)
        if not callable(rate) and not is_kind(rate, float):
            raise TypeError(
                f"{name} must be a number or a schedule, got {rate!r}; a schedule is "
                "a function from the step to a number"
            )
    rms = config.consistent_rms
    if rms is not None and not is_kind(rms, float):
        raise TypeError(f"consistent_rms must be a number or None, got {rms!r}")


def _check_ranges(config: MuonConfig) -> None:
    for name, allowed in (("impl", IMPLS), ("ns_dtype", NS_DTYPES)):
        if getattr(config, name) not in allowed:
            raise ValueError(
                f'{name} must be "{allowed[0]}" or "{allowed[1]}", got '
                f"{getattr(config, name)!r}"
            )
    for name in ("learning_rate", "adam_learning_rate", "consistent_rms"):
        value = getattr(config, name)
        if is_kind(value, float) and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {value}")
    pair = isinstance(config.betas, tuple) and len(config.betas) == 2
    if not pair:
        raise TypeError(f"betas must be a tuple of two floats, got {config.betas!r}")
    for name, decays in (("momentum", (config.momentum,)), ("betas", config.betas)):
        if not all(is_kind(d, float) and 0 <= d < 1 for d in decays):
            raise ValueError(
                f"{name} must lie in [0, 1), got {getattr(config, name)}; 1 would "
                "never forget"
            )
    _check_coefficients(config)


def _check_coefficients(config: MuonConfig) -> None:
    """One triple of finite numbers, or exactly as many as there are steps."""

    def triple(values) -> bool:
        return (
            isinstance(values, tuple)
            and len(values) == 3
            and all(is_kind(v, float) and math.isfinite(v) for v in values)
        )

    given = config.coefficients
    many = isinstance(given, tuple) and len(given) > 0 and all(map(triple, given))
    if not triple(given) and not many:
        raise ValueError(
            "coefficients must be (a, b, c), or a tuple of such triples, one per step, "
            f"got {given!r}"
        )
    if many and len(given) != config.ns_steps:
        raise ValueError(
            f"coefficients must be one triple or one per step, got {len(given)} for "
            f"ns_steps={config.ns_steps}; make the two agree"
        )
