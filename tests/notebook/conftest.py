"""Fixtures of the notebook tests: catch what would be displayed."""

import pytest
import torch

from stacklm.notebook import display as display_module
from stacklm.notebook import explorer as explorer_module
from stacklm.notebook.figures import style


@pytest.fixture(autouse=True)
def one_thread():
    """Matrices are small here: threads would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def shown(monkeypatch):
    """Record display calls as (data, metadata) instead of printing them."""
    calls = []

    def record(data, *, raw, metadata=None):
        assert raw, "bundles are displayed raw"
        calls.append((data, metadata or {}))

    monkeypatch.setattr(display_module, "display", record)
    monkeypatch.setattr(style, "display", record)
    monkeypatch.setattr(explorer_module, "display", record)
    return calls
