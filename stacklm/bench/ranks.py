"""Several processes that train together, started from a notebook or a test.

    with Ranks(4) as ranks:
        results = ranks.run(function, *arguments)      # one result per rank

Each rank is a process of its own with one thread and a place in a gloo process group,
so collectives are real, only their links are this machine's memory. For training, use
torchrun. Taught in chapter 13.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import pickle
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

PRELOAD = ["torch.distributed.tensor", "torch.distributed.fsdp", "stacklm.optim"]
"""What every rank needs, loaded before it is forked."""
POLL = 0.05
"""Seconds between looks at a rank that has not answered."""


class RankError(RuntimeError):
    """A rank raised, died or did not answer."""


class Ranks:
    """A pool of ranks.

    Args:
        count: How many processes.
        timeout: How long a collective may wait for a rank, and ``run`` for an answer
            beyond that (seconds).

    Example:
        >>> with Ranks(2) as ranks:
        ...     ranks.run(max, 1, 2)
        [2, 2]
    """

    def __init__(self, count: int, timeout: float = 60.0):
        if count < 1:
            raise ValueError(f"Ranks takes at least one rank, got {count}")
        self.count, self.timeout = count, timeout
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        store = str(Path(self._folder.name, "store"))
        context = mp.get_context("forkserver")  # torch is loaded once, then forked
        context.set_forkserver_preload(PRELOAD)
        pairs = [context.Pipe() for _ in range(count)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(
                target=_serve, args=(theirs, rank, count, store, timeout), daemon=True
            )
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pairs:
            theirs.close()  # so that a dead rank is an end of file here

    def run(self, function, *args, **kwargs) -> list:
        """Call a function on every rank.

        Args:
            function: Importable by name; each rank calls it with the same arguments.
            args: Anything that pickles.
            kwargs: Likewise.

        Returns:
            What each rank returned, in their order.

        Raises:
            RankError: A rank raised; the message is its traceback. After a rank that
                died or did not answer, the pool is closed.
        """
        call = pickle.dumps((function, args, kwargs))
        for rank, pipe in enumerate(self._pipes):
            try:
                pipe.send_bytes(call)
            except ConnectionError:
                self._lost(rank)
        deadline = time.monotonic() + self.timeout + 60
        answers = [self._answer(rank, deadline) for rank in range(self.count)]
        errors = [(rank, text) for rank, (ok, text) in enumerate(answers) if not ok]
        if errors:
            raise RankError("\n".join(f"rank {rank}: {text}" for rank, text in errors))
        return [result for _, result in answers]

    def _answer(self, rank: int, deadline: float):
        pipe = self._pipes[rank]
        try:
            while not pipe.poll(POLL):
                if time.monotonic() > deadline:
                    raise EOFError
            return pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            self._lost(rank)

    def _lost(self, rank: int) -> NoReturn:
        self.close()
        raise RankError(
            f"rank {rank} died or did not answer within {self.timeout:.0f} s"
        ) from None

    def kill(self, rank: int) -> None:
        """Kill a rank, as a machine that fails would."""
        self._processes[rank].kill()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _serve(pipe, rank: int, count: int, store: str, timeout: float) -> None:
    """Join the group, then answer calls until the parent is gone."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=timeout),
    )
    while True:
        try:
            function, args, kwargs = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = (True, function(*args, **kwargs))
        except BaseException:
            answer = (False, traceback.format_exc())
        pipe.send_bytes(pickle.dumps(answer))
