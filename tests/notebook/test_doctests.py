"""The examples in the docstrings run; one look at the device line."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import stacklm.notebook

MODULES = [
    info.name
    for info in pkgutil.walk_packages(stacklm.notebook.__path__, "stacklm.notebook.")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_were_found():
    assert "stacklm.notebook.explorer" in MODULES
    assert "stacklm.notebook.checks.ex01" in MODULES


def test_pick_device_says_what_it_picked(capsys):
    device = stacklm.notebook.pick_device()
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    out = capsys.readouterr().out
    assert out.startswith(f"{device}: ")
    assert out.count("\n") == 1
    assert torch.__version__ in out
