"""Fixtures of command tests: caches, and environments of processes."""

from pathlib import Path

import pytest

from tests.command_process import command_environment
from tests.networks import tiny_parameters


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for the module only, so that the user's is not touched."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def environment(cache: Path) -> dict[str, str]:
    """Return an environment with the module's cache and small parameters."""
    return command_environment(cache, FOLDCLI_PARAMS=tiny_parameters())


@pytest.fixture
def fresh_environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with an empty cache for the test, tmp_path / "cache", and small parameters."""
    return command_environment(tmp_path / "cache", FOLDCLI_PARAMS=tiny_parameters())
