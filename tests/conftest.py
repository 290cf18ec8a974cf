"""What every test may use: the repository's root, and what another process imports."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def python_path(root: Path) -> str:
    """PYTHONPATH for another process: the package as it is here, then the root.

    `make mutants` puts a faulty copy of the package before the root; a process that
    took the root alone would test the sound one.
    """
    import stacklm  # not above: the tests of the book do without the package

    return os.pathsep.join([str(Path(stacklm.__file__).parents[1]), str(root)])
