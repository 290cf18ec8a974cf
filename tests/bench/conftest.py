import pytest

from stacklm.bench import Ranks


@pytest.fixture(scope="session")
def four():
    """Four ranks, started once."""
    with Ranks(4, timeout=60.0) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def one():
    """One rank, which works alone."""
    with Ranks(1, timeout=60.0) as ranks:
        yield ranks
