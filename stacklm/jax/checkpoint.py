"""Checkpoints of a run in JAX, by orbax.

A checkpoint holds a tree of arrays and knows nothing of meshes. Who restores it says
where each array is to live, so a run may go on under the other implementation, on
another mesh, or on one device. Taught in chapter 14.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from stacklm.jax.routing import named_leaves


def save_checkpoint(folder: str | os.PathLike, tree) -> None:
    """Write a tree of arrays, and wait until it is on disk.

    Args:
        folder: A new folder.
        tree: Such as {"params": ..., "state": ..., "step": ...}.

    Raises:
        FileExistsError: The folder is there already; nothing is overwritten.
    """
    path = Path(folder).absolute()
    if path.exists():
        raise FileExistsError(
            f"a checkpoint needs a new folder, and {path} exists; name it by its step"
        )
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)


def restore_checkpoint(folder: str | os.PathLike, like):
    """Read a tree of arrays, each to where its counterpart in ``like`` lives.

    Args:
        folder: What ``save_checkpoint`` wrote.
        like: A tree of the same structure: arrays or ``jax.ShapeDtypeStruct``, whose
            shardings say where the arrays go. Its values are not looked at.

    Returns:
        The tree, bit for bit what was saved.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: The tree has another structure, shape or dtype than was saved.
    """
    path = Path(folder).absolute()
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint at {path}; look at its parent")
    wanted = jax.tree.map(_place, like)
    with ocp.StandardCheckpointer() as checkpointer:
        saved = checkpointer.metadata(path).item_metadata.tree
        _compare(saved, wanted, path)
        return checkpointer.restore(path, wanted)


def _compare(saved, wanted, path: Path) -> None:
    """Refuse another structure, shape or dtype; orbax would cast a dtype silently."""
    there, asked = (
        {name: (tuple(leaf.shape), str(leaf.dtype)) for name, leaf in named.items()}
        for named in (named_leaves(saved), named_leaves(wanted))
    )
    names = [*there, *(name for name in asked if name not in there)]
    odd = [name for name in names if there.get(name) != asked.get(name)]
    if odd:
        rows = [
            f"  {name}: saved {there.get(name, 'nothing')}, "
            f"wanted {asked.get(name, 'nothing')}"
            for name in odd[:8]
        ]
        raise ValueError(
            f"the checkpoint at {path} is of another tree, {len(odd)} leaf(s) differ; "
            "restore with the model and optimizer that it was saved from:\n"
            + "\n".join(rows)
        )


def _place(leaf) -> jax.ShapeDtypeStruct:
    """Shape, dtype and sharding of an array."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
