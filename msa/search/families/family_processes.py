"""Families that are built in processes of their own, while threads of this process drive GPUs.

A family takes a few milliseconds, in hundreds of short operations. In threads, these compete with the threads
that launch kernels for the interpreter lock, and so does the import of numba. The processes start with the
search, and import numba during its first iteration.

Requests are the arguments of `FamilyBuilder.update`; answers are families, or exceptions.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from msa.base.child_process import ignore_stop_signals, main_command, start_process
from msa.database.database import TargetDatabase
from msa.engines.hits import Hits
from msa.engines.settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.search.families.family import Family

if TYPE_CHECKING:
    from msa.search.families.families import FamilyBuilder

_SENT: Any = None
"""Stands for the database in hits that are sent to another process, which has opened it."""


class FamilyProcesses:
    """Processes that build families; has the method `update` of FamilyBuilder.

    Args:
        database: the database that is searched, and to which all hits refer.
        settings: settings of the search.
        count: number of processes, and of threads that may call `update` at the same time.
    """

    def __init__(self, database: TargetDatabase, settings: SearchSettings, count: int) -> None:
        self._database, self._settings = database, settings
        self._processes = [_Process(database, settings) for _ in range(count)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def update(self, query: FastaRecord, family: Family | None, hits: Hits) -> Family | None:
        """Build the family for the next iteration; see FamilyBuilder.

        If a process has ended, for example for lack of memory, this process builds the family.
        """
        process = self._idle.get()
        try:
            new = process.request(query, _without_source(family), replace(hits, source=_SENT))
        except (EOFError, OSError):
            return self._builder.update(query, family, hits)
        finally:
            self._idle.put(process)
        return _with_source(new, self._database)

    def close(self) -> None:
        """End the processes; no calls may follow."""
        for process in self._processes:
            process.close()

    @cached_property
    def _builder(self) -> "FamilyBuilder":
        from msa.search.families.families import FamilyBuilder  # imports numba

        return FamilyBuilder(self._database, self._settings)


@contextlib.contextmanager
def family_processes(
    database: TargetDatabase, settings: SearchSettings, count: int
) -> Iterator[FamilyProcesses]:
    """Start processes, which end when the block does."""
    processes = FamilyProcesses(database, settings, count)
    try:
        yield processes
    finally:
        processes.close()


class _Process:
    """One process; serves one request at a time."""

    def __init__(self, database: TargetDatabase, settings: SearchSettings) -> None:
        started = start_process(main_command(__name__))
        self._process, self._connection = started.process, started.connect()
        with contextlib.suppress(OSError):
            self._connection.send((database.path.resolve(), database.manifest, settings))

    def request(self, query: FastaRecord, family: Family | None, hits: Hits) -> Family | None:
        """Build a family.

        Raises:
            EOFError, OSError: the process has ended.
            Exception: the error of `FamilyBuilder.update`.
        """
        self._connection.send((query, family, hits))
        failed, answer = self._connection.recv()
        if failed:
            raise answer
        result: Family | None = answer
        return result

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Serve the socket whose file descriptor is the first argument, until its other end is closed."""
    ignore_stop_signals()
    connection = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):
        path, manifest, settings = connection.recv()
        database = TargetDatabase.open(path)
        if database.manifest != manifest:
            # the folder was replaced after the search had opened it
            return
        from msa.search.families.families import FamilyBuilder  # imports numba

        builder = FamilyBuilder(database, settings)
        while True:
            query, family, hits = connection.recv()
            try:
                new = builder.update(query, _with_source(family, database), replace(hits, source=database))
            except Exception as error:
                connection.send((True, error))
            else:
                connection.send((False, _without_source(new)))


def _without_source(family: Family | None) -> Family | None:
    """Return a family that can be sent to another process."""
    if family is None or family.members is None:
        return family
    return replace(family, members=replace(family.members, source=_SENT))


def _with_source(family: Family | None, database: TargetDatabase) -> Family | None:
    """Return a family from another process, with members in a database."""
    if family is None or family.members is None:
        return family
    return replace(family, members=replace(family.members, source=database))
