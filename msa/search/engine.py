"""The interface of the search engines. The CPU and GPU engines return bitwise identical results."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.search.candidates import AlignmentSelector, Candidates
from msa.search.settings import SearchSettings


@dataclass(frozen=True)
class QueryProfile:
    """A query and its profile (PSSM).

    Args:
        codes: uint8 [length ≥ 1], letter codes.
        profile: int16 [length, 32], scores in half-bits; column = letter code.
    """

    codes: np.ndarray
    profile: np.ndarray


@dataclass(frozen=True)
class EngineRequest:
    """Everything that the queries of one engine call have in common.

    Args:
        targets: the sequences to search.
        settings: filter limits, gap costs and, for the CPU engine, the number of threads.
        progress: called with the number of query–target pairs that have passed through the filter so far.
        selector: decides from the scores which candidates are aligned; all of them if None. With
            `settings.comp_bias_corr` it is called a second time for the candidates that it selected, with
            their scores against the reversed profile.
    """

    targets: SequenceArrays
    settings: SearchSettings
    progress: Callable[[int], None] | None = None
    selector: AlignmentSelector | None = None


class Engine(Protocol):
    """Gapless filter and gapped alignment of queries against a database."""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent so far by stage name; empty if the engine does not measure them."""
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

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Align each query to given targets, without filtering.

        May be called while an iterator returned by `run` is not exhausted; the targets of that run stay
        loaded.

        Args:
            pairs: queries, each with its targets as int64 [n] indices; consumed lazily.
            request: targets, settings and selector; `progress` is not called.

        Returns:
            For each query, in order, its targets in the given order.
        """
        ...
