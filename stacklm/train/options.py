"""How a run is watched and saved; nothing here changes a weight.

Units stand below every field. The shape of the model and the run itself are
``StackConfig`` and ``TrainConfig`` in ``stacklm.config``. Taught in chapter 11.
"""

from dataclasses import dataclass

from stacklm._checks import check_at_least, check_kinds


@dataclass(frozen=True)
class RunConfig:
    """When to validate, save and give up.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of range.

    Example:
        >>> RunConfig(validate_every=10).keep_last
        3
    """

    validate_every: int = 100
    """Steps from validation to validation; 0 turns it off (optimizer steps)."""
    validate_batches: int = 8
    """Size of the fixed validation set (micro-batches)."""
    save_every: int = 500
    """Steps from checkpoint to checkpoint; 0 saves the end only (optimizer steps)."""
    keep_last: int = 3
    """Checkpoints that stay on disk (count)."""
    max_skips: int = 10
    """Skipped steps in a row that end the run (optimizer steps)."""

    def __post_init__(self):
        """Reject wrong kinds first, then single values."""
        check_kinds(self)
        off = "0 turns it off"
        check_at_least(self, 0, ["validate_every", "save_every"], remedy=off)
        check_at_least(self, 1, ["validate_batches", "keep_last", "max_skips"])
