"""The interface of the search engines. The CPU and GPU engines return bitwise identical results."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.scored_batch import ScoringProcess
from msa.engines.search_settings import SearchSettings
from msa.hits.filtered_targets import FilteredTargets
from msa.io.fasta import FastaRecord
from msa.profile.pssm import QueryProfile

ProfileCallback = Callable[[FastaRecord, QueryProfile, bool], None]
"""A callback with a query, the profile that it was searched with, and True if this is a family profile."""


EvalueFunction = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
"""A callback that returns the E-values by which candidates are selected, float64 [n], in any thread.

Its arguments are, for each candidate, the index of its query, int64 [n], ascending; the index of its target,
int64 [n]; its score, int32 [n], half-bits; and the score of the same target against the reversed profile,
int32 [n], or None for E-values without the correction that needs it. Without a limit `max_aligned`, those up
to `SelectionCriteria.max_evalue` may be 0.
"""


def evalues_of_passing(passes: np.ndarray) -> np.ndarray:
    """Return 0 for candidates that pass, bool [n], and infinity for others."""
    return np.where(passes, 0.0, math.inf)


@dataclass(frozen=True)
class SelectionCriteria:
    """The criteria by which candidates are selected for alignment.

    Args:
        evalues: see EvalueFunction.
        max_evalue: largest E-value.
        max_aligned: maximum number of candidates per query, those with the smallest E-values (ties: higher
            score, then database order); None for no limit.
        reverse: whether E-values are corrected by the scores of the reversed profile, which are computed for
            the candidates that pass without the correction.
        max_target_lengths: returns `msa.profile.statistics.max_target_lengths`, given the index of a query.
    """

    evalues: EvalueFunction
    max_evalue: float
    max_aligned: int | None = None
    reverse: bool = False
    max_target_lengths: Callable[[int], np.ndarray] | None = None

    def possible(
        self, queries: Sequence[int], owners: np.ndarray, lengths: np.ndarray, scores: np.ndarray
    ) -> np.ndarray:
        """Return the indices, int64 [m], of the candidates of several queries that may pass.

        Args:
            queries: indices of the queries.
            owners: int32 [n], index in `queries` of each candidate's query.
            lengths: int32 [n], residues of the targets.
            scores: int32 [n], half-bits.
        """
        if self.max_target_lengths is None:
            return np.flatnonzero(scores > 0)
        longest = np.stack([self.max_target_lengths(self.original_query(query)) for query in queries])
        entries = owners * longest.shape[1] + np.minimum(scores, longest.shape[1] - 1)
        return np.flatnonzero(lengths <= longest.reshape(-1).take(entries))

    def original_query(self, query: int) -> int:
        """Return the index by which the functions of this selection know a query."""
        return query

    def limit_of(self, query: int) -> int | None:
        """Return the maximum number of candidates of a query."""
        return self.max_aligned

    def passing(
        self,
        queries: Sequence[int],
        counts: Sequence[int],
        targets: np.ndarray,
        scores: np.ndarray,
        reversed_scores: np.ndarray | None = None,
    ) -> tuple[np.ndarray, list[bool]]:
        """Return the indices of the candidates of several queries that pass.

        Args:
            queries: indices of the queries, ascending.
            counts: number of candidates of each query.
            targets: int64 [n], target indices of the candidates, query after query.
            scores: see EvalueFunction.
            reversed_scores: see EvalueFunction.

        Returns:
            int64 [m], ascending, and for each query, whether `max_aligned` limited their number. It does so
            only for the final E-values.
        """
        owners = np.repeat(np.array([self.original_query(query) for query in queries], np.int64), counts)
        evalues = self.evalues(owners, targets, scores, reversed_scores)
        passing, capped = np.flatnonzero((scores > 0) & (evalues <= self.max_evalue)), [False] * len(queries)
        limits = [self.limit_of(query) for query in queries]
        final = reversed_scores is not None or not self.reverse
        if not final or all(limit is None for limit in limits):
            return passing, capped
        kept = np.split(passing, np.searchsorted(passing, np.cumsum(counts)[:-1]))
        for k, limit in enumerate(limits):
            if limit is not None and len(kept[k]) > limit:
                order = np.lexsort((targets[kept[k]], -scores[kept[k]], evalues[kept[k]]))
                kept[k], capped[k] = np.sort(kept[k][order[:limit]]), True
        return np.concatenate(kept), capped


@dataclass(frozen=True)
class Candidates:
    """The targets of one query that passed the gapless filter, and the alignments of the selected ones.

    Args:
        targets: int64 [n], target indices by descending gapless score, then by index. In a clustered
            database, the cluster members of the aligned representatives follow.
        scores: int32 [n], alignment scores of all targets, half-bits; 0 if no residue pair scores above 0.
        aligned: int64 [m], indices into `targets` of the aligned targets: selected, with a score above 0.
        reversed_scores: int32 [m], scores of the aligned targets against the reversed profile; 0 where not
            computed.
        alignments: [m], alignments of the aligned targets.
        capped: whether `SelectionCriteria.max_aligned` limited the number of aligned targets.
        filtered: the targets that passed the filter, which come first in `targets`; empty without a filter.
        more_are_ready: whether the candidates of the next query follow at once, so that the caller may wait
            for them; they are of the same batch.
    """

    targets: np.ndarray
    scores: np.ndarray
    aligned: np.ndarray
    reversed_scores: np.ndarray
    alignments: AlignmentPaths
    capped: bool = False
    filtered: FilteredTargets = field(
        default_factory=lambda: FilteredTargets.of_query(np.empty(0, np.int64), np.empty(0, np.int32))
    )
    more_are_ready: bool = False

    def followed_by(self, other: "Candidates") -> "Candidates":
        """Append candidates of the same query that were aligned later, and did not come from the filter."""
        return Candidates(
            np.concatenate([self.targets, other.targets]),
            np.concatenate([self.scores, other.scores]),
            np.concatenate([self.aligned, other.aligned + len(self.targets)]),
            np.concatenate([self.reversed_scores, other.reversed_scores]),
            AlignmentPaths.concatenate([self.alignments, other.alignments]),
            self.capped,
            self.filtered,
            other.more_are_ready,
        )


def all_alignments(found: Sequence[Candidates]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Combine the alignments of several queries.

    Returns:
        Their targets, int64 [n], scores, int32 [n], and records, int32 [n, 8]; see AlignmentPaths.
    """
    targets = np.concatenate([each.targets[each.aligned] for each in found])
    scores = np.concatenate([each.scores[each.aligned] for each in found])
    return targets, scores, np.concatenate([each.alignments.records for each in found])


@dataclass(frozen=True)
class EngineRequest:
    """The arguments of one engine call that apply to all of its queries.

    Args:
        targets: the sequences to search.
        settings: filter limits, gap costs and, for the CPU engine, the number of threads.
        progress: called with the number of query–target pairs that have passed through the filter so far.
        selection: the criteria by which candidates are selected for alignment; None to align all.
    """

    targets: SequenceArrays
    settings: SearchSettings
    progress: Callable[[int], None] | None = None
    selection: SelectionCriteria | None = None


class Aligner(Protocol):
    """Gapped alignment of queries to given targets."""

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Align each query to given targets, without filtering.

        May be called while an iterator returned by `Engine.run` is not exhausted; the targets of that run
        stay loaded.

        Args:
            pairs: queries, each with its targets as int64 [n] indices; consumed lazily.
            request: targets, settings and selection; `progress` is not called.

        Returns:
            The candidates of each query, in the order of the queries; targets stay in the given order.
        """
        ...


class Engine(Aligner, Protocol):
    """Gapless filter and gapped alignment of queries against a database."""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent so far by stage name; empty if the engine does not measure them."""
        ...

    @property
    def drives_gpus(self) -> bool:
        """True for GPUs, whose threads other Python code in this process delays; False for the CPU."""
        ...

    @property
    def scoring_process(self) -> ScoringProcess | None:
        """The process that scores candidates and aligns with the same GPU, if there is one."""
        ...

    @property
    def processes(self) -> DatabaseProcesses | None:
        """Processes for other Python code, if it would delay threads that drive GPUs."""
        ...

    def prepare(self, lengths: Sequence[int]) -> None:
        """Announce the lengths of the next queries, so that kernels can be compiled for all at once."""
        ...

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Filter all targets, then align the best ones.

        Args:
            queries: consumed lazily, as the engine has capacity.
            request: targets, settings and callbacks.

        Returns:
            The candidates of each query, in the order of the queries.
        """
        ...


class EngineWrapper:
    """A base of engines that wrap another one: subclasses define `run`, and all else is the wrapped one's."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.align, self.prepare = engine, engine.align, engine.prepare
        self.drives_gpus, self.scoring_process = engine.drives_gpus, engine.scoring_process
        self.processes = engine.processes

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent by the wrapped engine."""
        return self._engine.seconds
