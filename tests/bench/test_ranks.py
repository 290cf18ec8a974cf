"""A pool of ranks answers, reports what a rank raised, and ends when one dies."""

import doctest
import time

import pytest
import torch
import torch.distributed as dist

import stacklm.bench.ranks
from stacklm.bench import RankError, Ranks


def total():
    """The sum of all ranks' numbers, and this rank's threads."""
    mine = torch.tensor(dist.get_rank() + 1.0)
    dist.all_reduce(mine)
    return mine.item(), torch.get_num_threads()


def one_fails():
    if dist.get_rank() == 1:
        raise ValueError("rank 1 had enough")


def one_sleeps():
    if dist.get_rank() == 1:
        time.sleep(60)


def test_ranks_answer_fail_and_die(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # a rank has one thread all the same
    with Ranks(2, timeout=20.0) as ranks:
        assert ranks.run(total) == [(3.0, 1), (3.0, 1)]
        with pytest.raises(RankError, match=r"rank 1: (.|\n)*rank 1 had enough"):
            ranks.run(one_fails)
        assert ranks.run(total) == [(3.0, 1), (3.0, 1)]  # still there
        ranks.kill(0)
        ranks._processes[0].join()
        with pytest.raises(RankError, match="rank 0 died or did not answer"):
            ranks.run(one_sleeps)
        assert not any(process.is_alive() for process in ranks._processes)
    with pytest.raises(ValueError, match="at least one rank, got 0"):
        Ranks(0)


def test_docstring_examples_run():
    assert doctest.testmod(stacklm.bench.ranks) == (0, 1)
