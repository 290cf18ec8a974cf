"""Checkpoints: one file that holds everything a run needs to go on bit for bit.

    write aside -> flush to disk -> rename -> flush the folder

A reader therefore sees the whole file or none of it, at whatever moment the writer
was killed. The file is in the safetensors format: tensors and text, no code, so that
loading runs none. It carries a SHA-256 of its own content.

The names inside are in ``states.py``. Units: a step is an optimizer step;
``step-00000050`` has done 50 steps, 0 to 49, and goes on with step 50.

Over several ranks it is the same file: every tensor is gathered in turn, rank 0 writes,
and reads, and sends each rank its part. It can go on with any number of ranks.
Source: https://github.com/huggingface/safetensors. Taught in chapters 11 and 13.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from stacklm.train.states import Checkpoint, CheckpointError, gather, kinds
from stacklm.train.world import World

FORMAT = 1
"""Raised when the names inside change their meaning."""
SUFFIX = ".safetensors"


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    muon: Optimizer | None,
    adamw: Optimizer,
    *,
    state: dict,
    keep_last: int = 3,
    world: World | None = None,
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
        world: The ranks that hold parts of it, all of which must call this; None means
            one process.

    Returns:
        The path of the new file.

    Raises:
        OSError: The file could not be written, on a full disk for instance. No
            part of it is left, and the older checkpoints are as they were. Every
            rank raises it.
        ValueError: The model is cut over several ranks, and `world` is None.
    """
    folder, world = Path(folder), world or World()
    world.parameters(model)
    path = folder / f"step-{step:08d}{SUFFIX}"
    tensors = gather(model, muon, adamw, keep=world.rank == 0)
    own = {"format": FORMAT, "step": step, "optimizers": kinds(muon, adamw)}
    text = json.dumps({**state, **own}, sort_keys=True)
    world.first(lambda: _write(path, tensors, text, keep_last))
    return path


def _write(path: Path, tensors: dict[str, Tensor], text: str, keep_last: int) -> None:
    folder = path.parent
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
