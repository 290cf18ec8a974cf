"""The examples in the docstrings of the loop's modules run."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["loop", "options", "presets", "resume", "world"])
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"stacklm.train.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
