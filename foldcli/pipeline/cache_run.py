"""What one run of `foldcli cache-features` does: read the inputs, search with sequences, make entries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foldcli.inputs.alignment_targets import AlignmentTarget, find_alignment_targets
from foldcli.inputs.names import ALIGNMENT_SUFFIXES, check_unique_names, file_endings, file_safe_name
from foldcli.logs import logger
from foldcli.pipeline.alignment_request import AlignmentRequest
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.feature_stage import Cached, CacheTask, cache_target
from foldcli.pipeline.worker_pool import Outcome, in_processes
from foldcli.progress import progress_bar
from msa.errors import InputError

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.alignment_filter import AlignmentFilter
    from msa.search.search import SearchSettings

_ALIGNMENTS = file_endings(ALIGNMENT_SUFFIXES)


def read_inputs(
    inputs: Sequence[str], failures: Failures, searched: bool
) -> "list[tuple[str, AlignmentTarget | FastaRecord]]":
    """Each target with its alignments, or the sequence to be searched with, by name.

    A file that cannot be read goes to `failures`.

    Args:
        inputs: see `find_alignment_targets`.
        failures: of the run.
        searched: whether there is a database to search.

    Raises:
        InputError: an empty folder, or two targets of one name.
        click.UsageError: a file of sequences, and no database.
    """
    found: list[tuple[str, AlignmentTarget | FastaRecord]] = []
    places: list[tuple[str, str]] = []
    for target in find_alignment_targets(inputs):
        try:
            own = _read(target)
        except (InputError, OSError) as error:
            failures.add(target.name, error)
            continue
        if not searched and not isinstance(own[0][1], AlignmentTarget):
            where = "standard input" if target.files[0] == "-" else target.files[0]
            raise click.UsageError(
                f"{where} holds unaligned sequences, to be searched with: give a database with --db "
                f"(an alignment of one sequence is a file ending in .a3m)"
            )
        found += own
        places += [(name, target.files[0]) for name, _ in own]
    check_unique_names(places)
    return found


def _read(target: AlignmentTarget) -> "list[tuple[str, AlignmentTarget | FastaRecord]]":
    """The target itself if its files are alignments, else the sequences in its one file."""
    from io import BytesIO

    from foldcli.inputs.queries import is_unaligned_fasta
    from msa.io.compression import read_bytes
    from msa.io.fasta import read_records

    path = target.files[0]
    if len(target.files) > 1 or path.lower().endswith(_ALIGNMENTS):
        return [(target.name, target)]
    content = read_bytes(path)
    if is_unaligned_fasta(content):
        return [(file_safe_name(record.id), record) for record in read_records(BytesIO(content), path)]
    # standard input cannot be read again, files are by the process that makes the features
    return [(target.name, AlignmentTarget(target.name, target.files, content if path == "-" else None))]


@dataclass(frozen=True)
class CacheRun:
    """A run of the command.

    Args:
        cache: folder of the feature cache.
        workers: processes that make features.
        overwrite: do again what is there.
        verify: compare what is there with its checksums.
        db: database for sequences; see `foldcli.pipeline.searcher.open_database`.
        settings, rows, device: of the searches; see `CachedSearches`.
    """

    cache: Path
    workers: int
    overwrite: bool
    verify: bool
    db: str | None
    settings: "SearchSettings"
    rows: "AlignmentFilter"
    device: str

    def run(
        self, selected: "Sequence[tuple[str, AlignmentTarget | FastaRecord]]", failures: Failures
    ) -> None:
        """Have the entries of all targets, and say how many there are."""
        given = [item for _, item in selected if isinstance(item, AlignmentTarget)]
        queries = [(name, item) for name, item in selected if not isinstance(item, AlignmentTarget)]
        targets = chain(given, self._searched(queries, failures))
        hits: list[bool] = []

        def say(name: str, outcome: Outcome[CacheTask, Cached]) -> None:
            cached = outcome.get()
            hits.append(cached.hit)
            state = "already cached" if cached.hit else "cached"
            logger.info("%s: %s, %d residues, %d rows", name, state, cached.residues, cached.rows)

        def tell(outcome: Outcome[CacheTask, Cached]) -> None:
            failures.run([(outcome.item.target.name, outcome)], say)

        waiting: dict[int, Outcome[CacheTask, Cached]] = {}
        said = 0
        try:
            with progress_bar("caching features", "target") as progress:
                for done, outcome in enumerate(self._outcomes(targets, len(selected)), start=1):
                    progress(done, len(selected))
                    # told in the order of the targets, in whatever order they were finished
                    waiting[outcome.index] = outcome
                    while said in waiting:
                        tell(waiting.pop(said))
                        said += 1
        finally:
            # of an interrupted run, what was finished after one that was not
            for _, outcome in sorted(waiting.items()):
                tell(outcome)
        made = len(hits) - sum(hits)
        logger.info("%d cached, %d already there, %d failed", made, sum(hits), len(failures.failed))

    def _outcomes(
        self, targets: Iterator[AlignmentTarget], count: int
    ) -> Iterator[Outcome[CacheTask, Cached]]:
        """What becomes of each target."""
        tasks = (CacheTask(target, self.cache, self.overwrite, self.verify) for target in targets)
        if min(self.workers, count) > 1:
            yield from in_processes(cache_target, tasks, min(self.workers, count))
            return
        for index, task in enumerate(tasks):
            try:
                yield Outcome(index, task, cache_target(task))
            except Exception as error:
                yield Outcome(index, task, error=error)

    def request(self, database: "TargetDatabase") -> AlignmentRequest:
        """The alignments that this run asks a database for."""
        return AlignmentRequest.of(database, self.settings, self.rows)

    def _searched(
        self, queries: "Sequence[tuple[str, FastaRecord]]", failures: Failures
    ) -> Iterator[AlignmentTarget]:
        """The alignments of the queries, searched with where that has not been done."""
        if not queries:
            return
        from foldcli.pipeline.cached_searches import CachedSearches
        from foldcli.pipeline.searcher import open_database
        from msa.search.search import check_query

        usable = []
        for name, query in queries:
            try:
                check_query(query)
            except InputError as error:
                failures.add(name, error)
            else:
                usable.append((name, query))
        assert self.db is not None  # without one, sequences were refused
        database = open_database(self.db)
        searches = CachedSearches(self.cache, database, self.request(database), self.device)
        yield from searches.targets(usable, self.overwrite)
