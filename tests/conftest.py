"""What every test may use: the repository's root."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parents[1]
