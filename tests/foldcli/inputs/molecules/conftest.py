"""Fixture of the readers of molecules."""

from pathlib import Path

import pytest

from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard


@pytest.fixture
def failures(tmp_path: Path) -> Failures:
    """Return a list of failures without entries."""
    return Failures(tmp_path, Shard())
