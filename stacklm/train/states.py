"""The tensors of a run by name: taken out of model and optimizers, and put back.

Names: ``model/<parameter>``, ``muon/<parameter>/momentum_buffer``,
``adamw/<parameter>/{step,exp_avg,exp_avg_sq}``, ``rng/cpu``, ``rng/cuda``. Optimizer
states are named after their parameters, never numbered, so that they mean the same in
another process. Tensors are whole, however many ranks hold parts of them, so that any
number of ranks can take them up. Taught in chapters 11 and 13.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stacklm.optim.layout import is_dtensor
from stacklm.train.world import World, settled_parameters


class CheckpointError(RuntimeError):
    """A checkpoint that is damaged, or belongs to another model."""


@dataclass(frozen=True)
class Checkpoint:
    """The verified content of a file."""

    path: Path
    """Where it was read."""
    step: int
    """Steps done, which is also the index of the next one."""
    state: dict
    """What the run noted beside its tensors; JSON values only."""
    tensors: dict[str, Tensor]
    """Everything else by name, on the CPU."""

    def outline(self) -> Checkpoint:
        """The same with shapes and dtypes in place of tensors."""
        shapes = {name: t.to("meta") for name, t in self.tensors.items()}
        return replace(self, tensors=shapes)


def restore(
    checkpoint: Checkpoint,
    model: nn.Module,
    muon: Optimizer | None,
    adamw: Optimizer,
    *,
    world: World | None = None,
) -> None:
    """Put weights, optimizer states and random generators back.

    Args:
        checkpoint: From ``read_checkpoint``; on ranks other than 0, its ``outline`` is
            enough.
        model: Of the same configuration.
        muon: Built on ``model`` with named parameters, as by ``build_optimizers``;
            None if the checkpoint has none.
        adamw: Likewise.
        world: The ranks that hold parts of the model, all of which must call this;
            None means one process.

    Raises:
        CheckpointError: The checkpoint belongs to another model or optimizer.
        ValueError: The model is cut over several ranks, and `world` is None.
    """
    world = world or World()
    world.parameters(model)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    saved, own = checkpoint.state["optimizers"], kinds(muon, adamw)
    if saved != own:
        raise CheckpointError(
            f"{checkpoint.path} was written with the optimizers {saved}, this run has "
            f"{own}; build the same ones"
        )
    weights = model.state_dict()
    with _fitting(checkpoint):  # before anything changes
        states = [
            (optimizer, _numbered(optimizer, parts.pop(part, {}), part))
            for part, optimizer in (("muon", muon), ("adamw", adamw))
        ]
        _check_weights(parts["model"], weights)
    laid = {n: world.spread(t, weights[n]) for n, t in parts["model"].items()}
    for optimizer, state in states:
        _lay(optimizer, state, world)
    with _fitting(checkpoint):
        model.load_state_dict(laid)
        for optimizer, state in states:
            if optimizer is not None:
                groups = optimizer.state_dict()["param_groups"]
                optimizer.load_state_dict({"state": state, "param_groups": groups})
    rng = {n: world.spread(t, like=t) for n, t in parts["rng"].items()}
    torch.set_rng_state(rng["cpu"])
    device = next(model.parameters()).device
    if device.type == "cuda" and "cuda" in rng:
        torch.cuda.set_rng_state(rng["cuda"], device)


@contextmanager
def _fitting(checkpoint: Checkpoint):
    """Say of an error that the checkpoint is of something else."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{checkpoint.path} does not fit: {error}; build model and optimizers as "
            f"the run did that wrote it"
        ) from error


def gather(model, muon, adamw, *, keep: bool) -> dict[str, Tensor]:
    """All tensors of a run by name; contiguous, as the format wants them.

    Tensors in parts are made whole one at a time, on all ranks, and kept where asked.
    """
    settled_parameters(model)
    tensors = {f"model/{name}": t for name, t in model.state_dict().items()}
    for part, optimizer in (("muon", muon), ("adamw", adamw)):
        for name, p in _named(optimizer):
            for entry, value in optimizer.state.get(p, {}).items():
                tensors[f"{part}/{name}/{entry}"] = value
    tensors["rng/cpu"] = torch.get_rng_state()
    device = next(model.parameters()).device
    if device.type == "cuda":
        tensors["rng/cuda"] = torch.cuda.get_rng_state(device)
    whole = {}
    for name, t in tensors.items():
        t = t.detach().full_tensor() if is_dtensor(t) else t.detach()
        if keep:
            whole[name] = t.cpu().contiguous()
    return whole


def kinds(*optimizers: Optimizer | None) -> list[str]:
    """Class names of the optimizers that a run has."""
    return [type(each).__name__ for each in optimizers if each is not None]


def _named(optimizer: Optimizer | None) -> list[tuple[str, Tensor]]:
    """(name, parameter) in the order in which the optimizer numbers them."""
    groups = [] if optimizer is None else optimizer.param_groups
    for group in groups:
        if "param_names" not in group:
            raise CheckpointError(
                f"{type(optimizer).__name__} does not know its parameters' names; "
                f"build it from model.named_parameters() or with build_optimizers"
            )
    return [
        pair
        for group in groups
        for pair in zip(group["param_names"], group["params"], strict=True)
    ]


def _numbered(optimizer, saved: dict[str, Tensor], part: str) -> dict[int, dict]:
    """The saved states of an optimizer by number, as ``load_state_dict`` wants them."""
    entries: dict[str, dict[str, Tensor]] = {}
    for key, tensor in saved.items():
        name, _, entry = key.rpartition("/")
        entries.setdefault(name, {})[entry] = tensor
    states = {}
    for number, (name, p) in enumerate(_named(optimizer)):
        if name in entries:
            states[number] = entries.pop(name)
            for entry, value in states[number].items():
                if value.ndim and value.shape != p.shape:
                    raise ValueError(f"{part}'s {entry} of {name} has another shape")
    if entries:
        raise ValueError(f"it has a state of {part} for {next(iter(entries))}")
    return states


def _lay(optimizer: Optimizer | None, states: dict[int, dict], world: World) -> None:
    """Lay the states of an optimizer out as its parameters are, in place."""
    params = [p for _, p in _named(optimizer)]
    for number, entries in states.items():
        for entry, value in entries.items():
            like = params[number] if value.ndim else value  # a step count is a number
            entries[entry] = world.spread(value, like)


def _check_weights(saved: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    """Compare names and shapes first: torch's loading stops half way."""
    own = {name: tuple(t.shape) for name, t in own.items()}
    found = {name: tuple(t.shape) for name, t in saved.items()}
    for name in sorted(own.keys() | found.keys()):
        if own.get(name) != found.get(name):
            raise ValueError(
                f"{name} has shape {found.get(name)} there, {own.get(name)} here"
            )
