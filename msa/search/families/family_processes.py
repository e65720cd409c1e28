"""Families that are built in processes of their own, while threads of this process drive GPUs.

A family takes a few milliseconds, in hundreds of short operations. In threads, these compete with the threads
that launch kernels for the interpreter lock, and so does the import of numba. The processes start with the
search, and import numba during its first iteration.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from msa.base.services.service import Service, ServiceEnded
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.hits.hits import Hits
from msa.hits.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.search.families.builder import FamilyBuilder
from msa.search.families.family import ProfileFamily

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
        arguments = database.path.resolve(), database.manifest, settings
        self.services = [Service(f"{__name__}:RemoteBuilder", *arguments) for _ in range(count)]
        self._idle: SimpleQueue[Service] = SimpleQueue()
        for service in self.services:
            self._idle.put(service)

    def update(self, query: FastaRecord, family: ProfileFamily | None, hits: Hits) -> ProfileFamily | None:
        """Build the family for the next iteration; see FamilyBuilder.

        If a process has ended, for example for lack of memory, this process builds the family.
        """
        service = self._idle.get()
        try:
            request = service.request("update", query, _without_source(family), replace(hits, source=_SENT))
            new: ProfileFamily | None = request.result()
        except ServiceEnded:
            return self._builder.update(query, family, hits)
        finally:
            self._idle.put(service)
        return _with_source(new, self._database)

    def close(self) -> None:
        """End the processes; no calls may follow."""
        for service in self.services:
            service.kill()

    @cached_property
    def _builder(self) -> FamilyBuilder:
        return FamilyBuilder(self._database, self._settings)


class RemoteBuilder:
    """A builder of families in a process of its own; ends if it finds another database in the folder."""

    def __init__(
        self, report: Callable[..., None], path: Path, manifest: DatabaseManifest, settings: SearchSettings
    ) -> None:
        self._database = TargetDatabase.open(path)
        if self._database.manifest != manifest:
            # the folder was replaced after the search had opened it
            raise SystemExit
        self._builder = FamilyBuilder(self._database, settings)

    def update(self, query: FastaRecord, family: ProfileFamily | None, hits: Hits) -> ProfileFamily | None:
        """See FamilyBuilder."""
        database = self._database
        new = self._builder.update(query, _with_source(family, database), replace(hits, source=database))
        return _without_source(new)


def _without_source(family: ProfileFamily | None) -> ProfileFamily | None:
    """Return a family that can be sent to another process."""
    if family is None or family.members is None:
        return family
    return replace(family, members=replace(family.members, source=_SENT))


def _with_source(family: ProfileFamily | None, database: TargetDatabase) -> ProfileFamily | None:
    """Return a family from another process, with members in a database."""
    if family is None or family.members is None:
        return family
    return replace(family, members=replace(family.members, source=database))
