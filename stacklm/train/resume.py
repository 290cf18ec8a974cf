"""Where a run begins: fresh, from its newest whole checkpoint, or as a branch.

Legend: a step is an optimizer step; a checkpoint of step n has done n of them. Taught
in chapter 11.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stacklm.config import StackConfig, TrainConfig
from stacklm.optim import wsd_multiplier
from stacklm.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    checkpoints,
    read_checkpoint,
)
from stacklm.train.tokenizer import check_signatures
from stacklm.train.world import World

FREE_IN_BRANCH = ("total_steps", "decay_frac")
"""Fields that a branch does not use: it begins and ends its decay elsewhere."""


@dataclass(frozen=True)
class Branch:
    """A decay that leaves the stable phase of another run.

    The trunk goes on as it was; the branch has a folder of its own. It may train on
    other data, such as a cleaner mix for the decay.

    Example:
        >>> Branch("runs/trunk/step-00000200.safetensors", decay_steps=50).decay_steps
        50
    """

    checkpoint: str | os.PathLike
    """A checkpoint of the trunk, warmup done and decay not begun."""
    decay_steps: int
    """Length of this decay, from the checkpoint's step on (optimizer steps)."""

    def __post_init__(self):
        """Reject a decay without steps."""
        if not isinstance(self.decay_steps, int) or self.decay_steps < 1:
            raise ValueError(
                f"a branch decays over at least 1 step, got {self.decay_steps!r}; to "
                f"go on without decay, resume the trunk"
            )


@dataclass(frozen=True)
class Plan:
    """What is trained, from which step to which, and with which rates."""

    identity: dict
    """What a checkpoint must agree with: model, train, data and branch."""
    start: Checkpoint | None
    """What to restore first; None for a fresh run."""
    total_steps: int
    """Where the run ends (optimizer steps)."""
    schedule: dict
    """Arguments of ``wsd_multiplier``."""

    def multiplier(self, step: int) -> float:
        """Of both peaks, at a step."""
        return wsd_multiplier(**self.schedule)(step)


def make_plan(
    model_cfg: StackConfig,
    train_cfg: TrainConfig,
    data,
    *,
    out: Path | None,
    resume: bool,
    branch: Branch | None,
) -> Plan:
    """Decide where the run begins and ends.

    Raises:
        CheckpointError: No checkpoint in `out` can be read.
        FileExistsError: `out` has checkpoints, and `resume` is False.
        ValueError: A configuration differs from the checkpoint's, or the branch does
            not leave from the stable phase.
    """
    identity = {
        "model": asdict(model_cfg),
        "train": asdict(train_cfg),
        "data": {
            "tokens": len(data),
            "vocab_size": data.vocab_size,
            "tokenizer": getattr(data, "tokenizer", None),
            "mix": getattr(data, "mix", None),  # None: a corpus of its own
        },
        "branch": None,
    }
    total, decay = train_cfg.total_steps, train_cfg.decay_steps
    start = None
    if branch is not None:
        start = read_checkpoint(branch.checkpoint)
        _check_branch(start, identity, train_cfg)
        total, decay = start.step + branch.decay_steps, branch.decay_steps
        identity["branch"] = {"first_step": start.step, "decay_steps": decay}
    identity = json.loads(json.dumps(identity))  # tuples become lists, as on disk
    if out is not None and checkpoints(out):
        if not resume:
            raise FileExistsError(
                f"{out} holds checkpoints, and resume is False; name a new folder, or "
                f"delete this one"
            )
        start = newest_whole(out)
        check_same(start, identity)
    schedule = {
        "warmup_steps": train_cfg.warmup_steps,
        "total_steps": total,
        "decay_steps": decay,
    }
    return Plan(identity, start, total, schedule)


def shared_plan(world: World, *args, **kwargs) -> Plan:
    """Make the plan on rank 0; the others get it without the checkpoint's tensors.

    Args:
        world: The ranks.
        args, kwargs: As for ``make_plan``, which raises on every rank.
    """
    if world.size == 1:
        return make_plan(*args, **kwargs)
    own = []

    def outline() -> Plan:
        plan = make_plan(*args, **kwargs)
        own.append(plan)
        return replace(plan, start=plan.start and plan.start.outline())

    told = world.first(outline)
    return own[0] if own else told


def newest_whole(folder: Path) -> Checkpoint:
    """Read the newest checkpoint that is not damaged; warn of those that are.

    A damaged file is renamed to end in ``.damaged``, so that it neither counts as one
    of the kept ones nor is tried again.

    Raises:
        CheckpointError: All are damaged.
    """
    for path in reversed(checkpoints(folder)):
        try:
            return read_checkpoint(path)
        except CheckpointError as error:
            aside = path.with_name(f"{path.name}.damaged")
            os.replace(path, aside)
            warnings.warn(
                f"{error} Trying the one before; this one is now {aside.name}.",
                stacklevel=2,
            )
    raise CheckpointError(
        f"all checkpoints in {folder} are damaged; begin again in a new folder"
    )


def check_same(checkpoint: Checkpoint, identity: dict, free=()) -> None:
    """Compare the configurations of a checkpoint with those of this run.

    Raises:
        ValueError: naming the first field that differs.
    """
    for part, now in identity.items():
        then = checkpoint.state[part]
        if not (isinstance(now, dict) and isinstance(then, dict)):
            now, then = {part: now}, {part: then}
        for name, value in now.items():
            unknown = name == "tokenizer" and None in (value, then.get(name))
            if name not in free and not unknown and then.get(name) != value:
                raise ValueError(
                    f"{part}: {name} is {value!r}, but {checkpoint.path} was written "
                    f"with {then.get(name)!r}; use that value, or a new folder"
                )


def _check_branch(trunk: Checkpoint, identity: dict, cfg: TrainConfig) -> None:
    """A branch leaves the trunk's stable phase and keeps its model and rates."""
    own = json.loads(json.dumps({part: identity[part] for part in ("model", "train")}))
    check_same(trunk, own, free=FREE_IN_BRANCH)
    sources = {"trunk": trunk.state["data"], "branch": identity["data"]}
    check_signatures(**{n: data.get("tokenizer") for n, data in sources.items()})
    then = TrainConfig(**{**asdict(cfg), **_free_fields(trunk)})
    first, last = then.warmup_steps, then.first_decay_step
    if trunk.state["branch"] is not None or not first <= trunk.step <= last:
        raise ValueError(
            f"a branch leaves from the stable phase, steps {first} to {last} of the "
            f"trunk, got {trunk.path}; take a checkpoint of the trunk between the two"
        )


def _free_fields(trunk: Checkpoint) -> dict:
    return {name: trunk.state["train"][name] for name in FREE_IN_BRANCH}
