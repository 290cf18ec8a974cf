"""Checkpoints: one file that holds everything a run needs to go on bit for bit.

    write aside -> flush to disk -> rename -> flush the folder

A reader therefore sees the whole file or none of it, at whatever moment the writer
was killed. The file is in the safetensors format: tensors and text, no code, so that
loading runs none. It carries a SHA-256 of its own content.

Names inside: ``model/<parameter>``, ``muon/<parameter>/momentum_buffer``,
``adamw/<parameter>/{step,exp_avg,exp_avg_sq}``, ``rng/cpu``, ``rng/cuda``. Optimizer
states are named after their parameters, never numbered, so that they mean the same in
another process. Units: a step is an optimizer step; ``step-00000050`` has done 50
steps, 0 to 49, and goes on with step 50.
Source: https://github.com/huggingface/safetensors. Taught in chapter 11.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

FORMAT = 1
"""Raised when the names inside change their meaning."""
SUFFIX = ".safetensors"


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


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    muon: Optimizer | None,
    adamw: Optimizer,
    *,
    state: dict,
    keep_last: int = 3,
) -> Path:
    """Write a checkpoint atomically; then delete all but the newest ones.

    Args:
        folder: Where checkpoints of this run lie; made if missing.
        step: Steps done.
        model: Its parameters and buffers are saved.
        muon: Muon, or None.
        adamw: AdamW.
        state: Anything else, as JSON values.
        keep_last: How many checkpoints stay (count).

    Returns:
        The path of the new file.

    Raises:
        OSError: The file could not be written, on a full disk for instance. No
            part of it is left, and the older checkpoints are as they were.
    """
    folder = Path(folder)
    path = folder / f"step-{step:08d}{SUFFIX}"
    tensors = _gather(model, muon, adamw)
    own = {"format": FORMAT, "step": step, "optimizers": _kinds(muon, adamw)}
    text = json.dumps({**state, **own}, sort_keys=True)
    payload = save(tensors, {"state": text, "sha256": _digest(tensors, text)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for torn in folder.glob(f".step-*{SUFFIX}.tmp"):
            torn.unlink()  # of a process that was killed while writing
        write_atomically(path, payload)
    except OSError as error:
        raise _not_written(path, len(payload), error) from error
    for old in checkpoints(folder)[:-keep_last]:
        old.unlink()
    return path


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; none if there is no folder."""
    return sorted(Path(folder).glob(f"step-*{SUFFIX}"))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file and compare it with its checksum.

    Args:
        path: A file that ``save_checkpoint`` wrote.

    Returns:
        Its content, on the CPU.

    Raises:
        CheckpointError: The file is damaged, no checkpoint, or of a newer format.
        FileNotFoundError: There is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, framework="pt") as file:
            meta = file.metadata() or {}
            # Copies: the file's pages may be gone before the tensors are used.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        text, noted = meta["state"], meta["sha256"]
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint ({error}); use an older one"
        ) from error
    if _digest(tensors, text) != noted:
        raise CheckpointError(
            f"{path} differs from its own checksum: it was damaged after it was "
            f"written; use an older one"
        )
    state = json.loads(text)
    if state["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {state['format']}, this version reads up to {FORMAT}; "
            f"update stacklm"
        )
    return Checkpoint(path, state["step"], state, tensors)


def restore(
    checkpoint: Checkpoint,
    model: nn.Module,
    muon: Optimizer | None,
    adamw: Optimizer,
) -> None:
    """Put weights, optimizer states and random generators back.

    Args:
        checkpoint: From ``read_checkpoint``.
        model: Of the same configuration.
        muon: Built on ``model`` with named parameters, as by ``build_optimizers``;
            None if the checkpoint has none.
        adamw: Likewise.

    Raises:
        CheckpointError: The checkpoint belongs to another model or optimizer.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    saved, own = checkpoint.state["optimizers"], _kinds(muon, adamw)
    if saved != own:
        raise CheckpointError(
            f"{checkpoint.path} was written with the optimizers {saved}, this run has "
            f"{own}; build the same ones"
        )
    try:
        states = [
            (optimizer, _numbered(optimizer, parts.pop(part, {}), part))
            for part, optimizer in (("muon", muon), ("adamw", adamw))
        ]
        _check_weights(parts["model"], model)
        model.load_state_dict(parts["model"])
        for optimizer, state in states:
            if optimizer is not None:
                groups = optimizer.state_dict()["param_groups"]
                optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{checkpoint.path} does not fit: {error}; build model and optimizers as "
            f"the run did that wrote it"
        ) from error
    torch.set_rng_state(parts["rng"]["cpu"])
    device = next(model.parameters()).device
    if device.type == "cuda" and "cuda" in parts["rng"]:
        torch.cuda.set_rng_state(parts["rng"]["cuda"], device)


def write_atomically(path: Path, payload: bytes) -> None:
    """Write a file so that at any moment it is there as a whole or not at all.

    Raises:
        OSError: It could not be written; `path` is as it was before.
    """
    aside = path.with_name(f".{path.name}.tmp")
    try:
        with open(aside, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())  # before the rename, or it may overtake the data
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name is on disk, too
    finally:
        os.close(folder)


def _gather(model, muon, adamw) -> dict[str, Tensor]:
    """All tensors of a run by name; contiguous, as the format wants them."""
    tensors = {f"model/{name}": t for name, t in model.state_dict().items()}
    for part, optimizer in (("muon", muon), ("adamw", adamw)):
        for name, p in _named(optimizer):
            for entry, value in optimizer.state.get(p, {}).items():
                tensors[f"{part}/{name}/{entry}"] = value
    tensors["rng/cpu"] = torch.get_rng_state()
    device = next(model.parameters()).device
    if device.type == "cuda":
        tensors["rng/cuda"] = torch.cuda.get_rng_state(device)
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _kinds(*optimizers: Optimizer | None) -> list[str]:
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


def _check_weights(saved: dict[str, Tensor], model: nn.Module) -> None:
    """Compare names and shapes first: torch's loading stops half way."""
    own = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in saved.items()}
    for name in sorted(own.keys() | found.keys()):
        if own.get(name) != found.get(name):
            raise ValueError(
                f"{name} has shape {found.get(name)} there, {own.get(name)} here"
            )


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of all tensors, and the text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _not_written(path: Path, size: int, error: OSError) -> OSError:
    kept = [old.name for old in checkpoints(path.parent) if old != path]
    rest = f"{kept[-1]} is intact" if kept else "there is no older one"
    return OSError(
        error.errno,
        f"could not write {path} ({size:,} bytes): {error.strerror or error}; {rest}. "
        f"Make room, then give the same command again to go on",
    )
