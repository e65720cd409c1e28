"""Fixtures of command tests."""

import os

import pytest

from tests.networks import tiny_parameters


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with a cache for the module only, so that the user's is not touched."""
    return os.environ | {
        "FOLDCLI_CACHE": str(tmp_path_factory.mktemp("cache")),
        "FOLDCLI_PARAMS": tiny_parameters(),
    }
