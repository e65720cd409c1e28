"""Searches for the sequences of a run, in batches ahead of the other stages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from foldcli.logs import log_time_since_start, logger
from foldcli.outputs.target import TargetRun, measured_stage
from foldcli.pipeline.search.stage import SEARCH_BATCH, SearchStage
from foldcli.pipeline.search.stores import TargetStore
from foldcli.pipeline.targets.alignment_settings import FIRST_BATCH
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.plan import TargetPlan
from msa.io.fasta import FastaRecord
from msa.search.database_search import check_query


@dataclass(frozen=True)
class TargetSearch:
    """Searches of a run's sequences, ahead of the other stages.

    Args:
        locks: a target is locked while it is searched.
        begin_target: called with each target after it was locked; returns None if it is already finished.
        fail_target: called with each target that fails, and the error; must release the lock.
        show_status: called with descriptions of the progress.
    """

    stage: SearchStage
    store: TargetStore
    locks: TargetLocks
    begin_target: Callable[[TargetRun], TargetPlan | None]
    fail_target: Callable[[TargetRun, BaseException], None]
    show_status: Callable[[str], None]

    def search_ahead(self, targets: Iterable[TargetRun]) -> Iterator[TargetRun]:
        """Yield targets once their alignments exist; those without alignments are searched in batches.

        Targets that another run has locked come last, when that run has released them. Then the searches are
        closed, so that the network gets their memory.

        Args:
            targets: all targets of the run; only sequences are searched, others are passed on.
        """
        locked_elsewhere: list[TargetRun] = []
        batch: list[TargetRun] = []
        # each batch is twice as large as the one before
        size = FIRST_BATCH
        for target in targets:
            if not isinstance(target.input, FastaRecord):
                yield target
            elif not self.locks.try_acquire(target.files.lock_path):
                locked_elsewhere.append(target)
            elif self._is_needed(target):
                batch.append(target)
                if len(batch) == size:
                    yield from self._search(batch)
                    batch, size = [], min(2 * size, SEARCH_BATCH)
            elif not target.failed:
                yield target
        if batch:
            yield from self._search(batch)
        for target in locked_elsewhere:
            if not self.locks.acquire(target.files.lock_path, target.name):
                break
            if self._is_needed(target):
                yield from self._search([target])
            elif not target.failed:
                yield target
        self.stage.close()

    def _is_needed(self, target: TargetRun) -> bool:
        """Return True if a locked target must be searched; otherwise release its lock."""
        assert isinstance(target.input, FastaRecord)
        try:
            check_query(target.input)
            is_planned = self.begin_target(target) is not None
            if is_planned and not self.store.is_finished(target.name, target.input):
                return True
        except Exception as error:
            self.fail_target(target, error)
            return False
        self.locks.release(target.files.lock_path)
        return False

    def _search(self, batch: Sequence[TargetRun]) -> Iterator[TargetRun]:
        """Search for all targets of a batch; yield those that do not fail, with their locks released."""
        queries = [(target.name, target.input) for target in batch if isinstance(target.input, FastaRecord)]
        text = f"searching with {len(queries)} sequence{'s' if len(queries) > 1 else ''}"
        logger.debug("%s", text)
        self.show_status(text)

        def progress(done: int, total: int | None) -> None:
            self.show_status(f"{text}, {100 * done // total} %" if total else text)

        with measured_stage("search") as costs:
            results = list(self.stage.run(queries, self.store, progress=progress))
        log_time_since_start(f"{len(queries)} sequences were searched")
        cost = replace(costs[0], seconds=costs[0].seconds / len(batch))
        for target, result in zip(batch, results, strict=True):
            if result.error is not None:
                self.fail_target(target, result.error)
                continue
            target.add_cost(cost)
            self.locks.release(target.files.lock_path)
            yield target
