"""What to say when another rank is gone.

The ranks that are left notice when they next exchange something: at once if its process
ended, after the timeout of the process group if it is silent. Under nccl, a process
that waits on its GPU ends itself after the timeout, in nccl's own words. Taught in
chapter 13.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager

import torch.distributed as dist

from stacklm.train.world import World

MARKS = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
)
"""What gloo's errors say; nccl's are of a class of their own."""


class LostRankError(RuntimeError):
    """Another rank ended or did not answer; the run stands at its last checkpoint."""


@contextmanager
def company(world: World, out: str | os.PathLike | None):
    """Say what it means, and what to do, if another rank is lost.

    Raises:
        LostRankError: In place of the error that a collective raised.
    """
    try:
        yield
    except RuntimeError as error:
        if world.size == 1 or not is_loss_of_a_rank(error):
            raise
        again = "start the run again" if out is None else "give the same command again"
        raise LostRankError(
            f"a step needs all {world.size} ranks, and one of them ended or was silent "
            f"for too long ({_reason(error)}); see what it said, then {again}, to go "
            f"on from the last checkpoint"
        ) from error


def _reason(error: Exception) -> str:
    """What the backend says, without its place in a C++ file and its advice."""
    line = str(error.__cause__ or error).strip().splitlines()[0]
    return re.sub(r"\[[^]]*\.\w+:\d+\] ", "", line).partition(". ")[0]


def is_loss_of_a_rank(error: BaseException) -> bool:
    """Whether an error of a collective means that a rank ended or is silent."""
    plain = type(error) is RuntimeError  # what gloo and autograd raise
    return isinstance(error, dist.DistError) or (
        plain and any(mark in str(error) for mark in MARKS)
    )
