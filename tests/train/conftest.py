"""Corpora and one straight run that others are compared with."""

import pytest
import torch

from stacklm.train import open_tokens, pretrain
from tests.train.runs import (
    CFG,
    MODEL,
    RUN,
)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data():
    return open_tokens("moby-dick")


@pytest.fixture(scope="module")
def val():
    return open_tokens("moby-dick", "val")


@pytest.fixture(scope="module")
def straight(data, val, tmp_path_factory):
    """A run from beginning to end, and its folder."""
    out = tmp_path_factory.mktemp("straight")
    run = pretrain(MODEL, CFG, data, val=val, out=out, run_cfg=RUN, device="cpu")
    return run, out
