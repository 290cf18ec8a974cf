"""One process per folder: two runs in one would tear each other's files.

The lock is the operating system's, taken through filelock, so it ends with its process
however that ends, ``kill -9`` included. Who holds it stands in a file beside it, which
is for messages only. Taught in chapter 11.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK, OWNER = ".lock", ".owner"
"""Files in a folder that is in use; the first stays, since removing it would race."""


class BusyError(RuntimeError):
    """A folder that another process is writing to."""


@contextmanager
def only_one(folder: Path | None) -> Iterator[None]:
    """Keep every other process out of a folder; as a context manager.

    Args:
        folder: Made if missing; None locks nothing.

    Raises:
        BusyError: Another process is in there; the message names it.
        OSError: The folder could not be made.
    """
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(folder / LOCK, timeout=0), folder / OWNER
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(
            f"{folder} is in use by {_who(owner)}; two runs in one folder would tear "
            f"each other's files: wait for it, stop it, or name another folder"
        ) from None
    try:
        me = {"process": os.getpid(), "host": socket.gethostname()}
        with suppress(OSError):  # the lock holds without it, on a full disk too
            owner.write_text(json.dumps(me), encoding="utf-8")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _who(owner: Path) -> str:
    try:
        noted = json.loads(owner.read_text(encoding="utf-8"))
        return f"process {noted['process']} on {noted['host']}"
    except (OSError, ValueError, KeyError):
        return "another process"  # it has the lock, and has not signed yet
