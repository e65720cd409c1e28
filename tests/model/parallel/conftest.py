"""Fixtures: groups of two and of three ranks, started once."""

from collections.abc import Iterator

import pytest

from tests.rank_processes import RankProcesses


@pytest.fixture(scope="session", params=[2, 3], ids=lambda size: f"{size}-ranks")
def ranks(request: pytest.FixtureRequest) -> Iterator[RankProcesses]:
    """Return the processes of a group."""
    processes = RankProcesses(request.param)
    yield processes
    processes.close()
