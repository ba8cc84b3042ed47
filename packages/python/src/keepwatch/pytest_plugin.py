"""Fixtures of pytest, which finds them when the package is installed."""

from collections.abc import Iterator, Sequence

import pytest

from ._server import Server


@pytest.fixture(scope="session")
def keepwatch_flags() -> Sequence[str]:
    """The flags of keepwatch serve. Override it in conftest.py, for example to return ["--simulate"]."""
    return ()


@pytest.fixture(scope="session")
def keepwatch_server(keepwatch_flags: Sequence[str]) -> Iterator[Server]:
    """A Kubernetes API server that the tests of a session share."""
    with Server(*keepwatch_flags) as server:
        yield server
