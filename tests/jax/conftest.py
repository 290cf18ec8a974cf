"""Without the extra these tests are skipped, with one sentence; under CI they fail."""

import importlib.util
import os

import pytest

PACKAGES = ("jax", "optax", "orbax")
SENTENCE = 'the extra is not installed: pip install "stacklm[jax]"'


class Absent(pytest.Module):
    """A file whose imports would fail."""

    def collect(self):
        if os.environ.get("CI"):
            raise RuntimeError(f"{SENTENCE}; CI must not skip these tests")
        pytest.skip(SENTENCE, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Collect a file as it is, unless a package of the extra is missing."""
    if all(map(importlib.util.find_spec, PACKAGES)):
        return None
    return Absent.from_parent(parent, path=module_path)
