"""Processes for Python work on the hits of many queries, which would delay the threads that drive GPUs.

They start with the search, so that they have imported numba and opened the database when they are needed.
"""

import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from msa.base.errors import DamagedDatabase, InputError, MissingError
from msa.base.services.pool import ServicePool
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest

R = TypeVar("R")

_MAX_PROCESSES, _MIN_QUERIES = 4, 128
"""Maximum number of processes, and minimum number of queries so far for which they are started; each takes a
second of CPU time to start."""


class DatabaseProcesses:
    """Processes that call functions of a database; they end with this object."""

    def __init__(self) -> None:
        self._queries = 0
        self._pool: ServicePool | None = None

    @property
    def have_started(self) -> bool:
        """True if there are processes."""
        return self._pool is not None

    def prepare(
        self, database: TargetDatabase, queries: int, threads: int, function: Callable[..., Any]
    ) -> None:
        """Announce a number of queries for a database; start the processes if there are enough by now.

        Args:
            database: the database.
            queries: number of queries that will be searched next.
            threads: CPU threads of their search; there are at most half as many processes.
            function: one that is called later, whose module the processes import.
        """
        self._queries += queries
        count = min(_MAX_PROCESSES, threads // 2)
        if self._pool is None and count and self._queries >= _MIN_QUERIES and database.can_reopen:
            self._pool = ServicePool(count, partial(_open, database.path.resolve(), function))
            self._pool.start()
            weakref.finalize(self, self._pool.terminate).atexit = False

    def call(self, database: TargetDatabase, function: Callable[..., R], *arguments: Any) -> R:
        """Return `function(database, *arguments)`, called in a process that has opened the same database.

        This process calls it if there are no others, or if the other one has failed.

        Args:
            database: the database.
            function: a function of a module.
            arguments: pickled, as is the result; without the database.
        """
        if self._pool is not None and database.can_reopen:
            request = database.path.resolve(), database.manifest, function, arguments
            try:
                return self._pool.submit(_call, request).result()
            except (OSError, InputError, MissingError):
                pass  # for example for lack of memory, or because the database was replaced
        return function(database, *arguments)


def _call(request: tuple[Path, DatabaseManifest, Callable[..., R], tuple[Any, ...]]) -> R:
    """Call a function of a database in a process of the pool.

    Raises:
        DamagedDatabase: the database was replaced.
    """
    path, manifest, function, arguments = request
    database = _opened(path)
    if database.manifest != manifest:
        raise DamagedDatabase("was replaced after it had been opened", path)
    return function(database, *arguments)


def _open(path: Path, function: Callable[..., Any]) -> None:
    """Open a database, in a process that imports the function's module to receive it."""
    _opened(path)


@cache
def _opened(path: Path) -> TargetDatabase:
    return TargetDatabase.open(path)
