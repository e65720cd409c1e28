"""The thread that searches for the tickets of an MSA server, and writes their results."""

import base64
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from foldcli.errors import ExitCode, describe, exit_code_of, log_bug
from foldcli.fingerprints import fingerprint
from foldcli.inputs.complexes import chain_query
from foldcli.logs import logger
from foldcli.msa_server.results import ResultFiles
from foldcli.msa_server.tickets import Ticket, TicketJob, TicketQueue
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.hit_texts import TextMaker
from foldcli.pipeline.search.protocols import DatabaseSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.server.service import SearchThread, check_query
from foldcli.units import format_count
from foldcli.version import VERSION
from msa.alignments.filter_settings import FOLDING_FILTER, AlignmentFilter
from msa.database.database import TargetDatabase
from msa.engines.search_settings import FOLDING_SEARCH
from msa.io.fasta import FastaRecord

# intended time for the search of a batch: a new ticket waits for it, and small batches take longer for each
_BATCH_SECONDS = 4.0
_MAX_BATCH = 256
# query residues × target residues that a GPU and CPU threads search in a second, for the size of batches
_GPU_SPEED, _CPU_SPEED = 6e12, 1e10
# seconds of a batch from which its speed counts instead; a GPU is slow in small batches
_GPU_MEASURED_SECONDS, _CPU_MEASURED_SECONDS = 8.0, 1.0
_PRUNE_SECONDS = 3600.0
_RESULT_THREADS = 4


@dataclass(frozen=True)
class SearchStages:
    """The searches that tickets ask for.

    Args:
        database: the first database, with the others as companions.
        first: searches the first one.
        cache: folder of the feature cache, which keeps the alignments.
        threads: CPU threads.
    """

    database: TargetDatabase
    all_databases: DatabaseSearcher
    first: DatabaseSearcher
    cache: Path
    threads: int

    @classmethod
    def of(
        cls, database: TargetDatabase, searcher: DatabaseSearcher, cache: Path, threads: int
    ) -> "SearchStages":
        """Return the searches of opened databases."""
        return cls(database, searcher, searcher.alone(), cache, threads)

    @property
    def drives_gpus(self) -> bool:
        """True if GPUs search."""
        return self.first.drives_gpus

    def stage(self, job: TicketJob) -> SearchStage:
        """Return the search for a ticket."""
        searcher = self.all_databases if job.with_all_databases else self.first
        row_filter = FOLDING_FILTER if job.is_filtered else AlignmentFilter()
        settings = AlignmentSettings(replace(FOLDING_SEARCH, threads=self.threads), row_filter)
        return SearchStage(searcher, settings, show_progress=False, write_threads=_RESULT_THREADS)

    def compile(self) -> None:
        """Search as for a ticket, so that no client waits for the compilation.

        Raises:
            Exception: the engine does not work.
        """
        row_filter = replace(FOLDING_FILTER, filter_min_enable=0)
        settings = AlignmentSettings(replace(FOLDING_SEARCH, threads=self.threads), row_filter)
        stage = SearchStage(self.first, settings, show_progress=False)
        query = check_query(self.database)
        for _ in stage.search([(query.id, query)], TextMaker(settings)):
            pass

    def store(self, stage: SearchStage) -> ChainStore:
        """Return the alignments of a search."""
        return ChainStore(CacheStore(self.cache, stage.request))


class Worker(SearchThread):
    """The thread that searches for tickets.

    Args:
        locks: locks of sequences, which other runs with the same cache respect.
        keep_seconds: time for which answered tickets are kept.

    Attributes:
        searched: number of sequences searched so far.
    """

    def __init__(
        self,
        queue: TicketQueue,
        stages: SearchStages,
        results: ResultFiles,
        locks: TargetLocks,
        keep_seconds: float,
    ) -> None:
        super().__init__(stages.compile, self._search_tickets)
        self._queue, self._stages, self._results = queue, stages, results
        self._locks, self._keep_seconds = locks, keep_seconds
        self._stopped = False
        speed, self._measured_seconds = (
            (_GPU_SPEED, _GPU_MEASURED_SECONDS) if stages.drives_gpus else (_CPU_SPEED, _CPU_MEASURED_SECONDS)
        )
        self._residues_per_second = speed / max(1, stages.database.total_residues)
        self.searched, self.seconds = 0, 0.0

    def ticket_id(self, job: TicketJob) -> str:
        """Return the id of a request, in the form of ColabFold's server; equal ones share a ticket."""
        request = self._stages.stage(job).request
        searched = [VERSION, request.checksums, request.settings.identity(), self._results.identity()]
        identity = fingerprint([job.kind, job.mode, job.query, searched])
        digest = hashlib.sha224(identity.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def stop(self, seconds: float) -> None:
        """Let the current batch finish, if it does so within a time."""
        self._stopped = True
        self._queue.wake()
        self.join(seconds)

    def _search_tickets(self) -> None:
        """Search until `stop` is called."""
        pruned = 0.0
        with ThreadPoolExecutor(_RESULT_THREADS, "results") as writers:
            while not self._stopped:
                if batch := self._next_batch():
                    self._search(batch, writers)
                else:
                    self._queue.wait(_PRUNE_SECONDS)
                if time.monotonic() - pruned > _PRUNE_SECONDS:
                    pruned = time.monotonic()
                    self._queue.prune(self._keep_seconds)

    def _next_batch(self) -> list[tuple[Ticket, FastaRecord]]:
        """Return the next sequences to search, all with the same settings.

        Clients take turns, and those that seem to be gone come last.
        """
        turns: Counter[str] = Counter()
        ranked: list[tuple[bool, int, int, Ticket, str]] = []
        for ticket in self._queue.waiting():
            for sequence in ticket.unsearched[:_MAX_BATCH]:
                client = ticket.job.client
                ranked.append((ticket.is_abandoned, turns[client], len(ranked), ticket, sequence))
                turns[client] += 1
        ranked.sort(key=lambda entry: entry[:3])
        batch: list[tuple[Ticket, FastaRecord]] = []
        residues = 0
        for *_, ticket, sequence in ranked:
            if batch and _settings(ticket.job) != _settings(batch[0][0].job):
                continue
            residues += len(sequence)
            if batch and residues > _BATCH_SECONDS * self._residues_per_second:
                break
            batch.append((ticket, FastaRecord(ticket.id, sequence)))
            if len(batch) == _MAX_BATCH:
                break
        return batch

    def _search(self, batch: Sequence[tuple[Ticket, FastaRecord]], writers: ThreadPoolExecutor) -> None:
        """Search a batch; as soon as a ticket is searched, other threads write its results."""
        start = time.perf_counter()
        for ticket, _ in batch:
            ticket.is_running = True
        stage = self._stages.stage(batch[0][0].job)
        store = self._stages.store(stage)
        tickets_of: dict[str, list[Ticket]] = {}
        for ticket, query in batch:
            tickets_of.setdefault(query.sequence, []).append(ticket)
        chains = [FastaRecord(tickets[0].id, sequence) for sequence, tickets in tickets_of.items()]
        unfinished = [chain for chain in chains if not store.is_finished("", chain_query(chain))]
        failed: dict[Ticket, Exception] = {}
        for chain, error in ChainSearch(stage, store, self._locks).search_each(chains):
            for ticket in tickets_of[chain.sequence]:
                ticket.unsearched.remove(chain.sequence)
                if error is not None:
                    failed.setdefault(ticket, error)
                elif not ticket.unsearched and ticket not in failed:
                    writers.submit(self._write, ticket, store)
        for ticket, error in failed.items():
            self._fail(ticket, error)
        seconds = time.perf_counter() - start
        if unfinished:
            self.searched, self.seconds = self.searched + len(unfinished), self.seconds + seconds
            if seconds > self._measured_seconds:
                self._residues_per_second = sum(len(query.sequence) for query in unfinished) / seconds
        tickets = format_count(len({ticket for ticket, _ in batch}), "ticket")
        logger.info("%s of %s, %.3f s", format_count(len(batch), "sequence"), tickets, seconds)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        log_bug(error)
        if exit_code_of(error) is ExitCode.UNEXPECTED:
            self._stages.compile()
        logger.error("%s: %s", ticket.id, describe(error))
        self._queue.fail(ticket, describe(error))

    def _write(self, ticket: Ticket, store: ChainStore) -> None:
        """Write the results of a ticket whose sequences have been searched."""
        try:
            self._queue.complete(ticket, lambda stream: self._results.write(stream, ticket, store))
        except Exception as error:
            log_bug(error)
            logger.error("%s: %s", ticket.id, describe(error))
            self._queue.fail(ticket, describe(error))


def _settings(job: TicketJob) -> tuple[bool, bool]:
    """Return what tickets that are searched together have in common."""
    return job.with_all_databases, job.is_filtered
