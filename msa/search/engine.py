"""What does the heavy part of a search: the CPU or a GPU, chosen once. Both give the same, bit for bit."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from msa.search.candidates import Candidates, Wanted

if TYPE_CHECKING:
    from msa.database.sequence_arrays import SequenceArrays
    from msa.search.settings import SearchSettings


@dataclass(frozen=True)
class QueryProfile:
    """A query as the engines take it.

    Args:
        codes: uint8 [length ≥ 1], letter codes.
        profile: int16 [length, 32], half-bits.
    """

    codes: np.ndarray
    profile: np.ndarray


class Engine(Protocol):
    """Gapless filter and alignment of queries against a database."""

    @property
    def seconds(self) -> dict[str, float]:
        """What its stages have taken so far, by name; empty where that is not measured."""
        ...

    def run(
        self,
        queries: Iterable[QueryProfile],
        targets: "SequenceArrays",
        settings: "SearchSettings",
        scored: Callable[[int], None] | None = None,
        wanted: Wanted | None = None,
    ) -> Iterator[Candidates]:
        """Filter and align.

        Args:
            queries: taken as the engine has room for them.
            targets: the database.
            settings: of which the filter's limits and the gap costs are used, and the threads by the CPU;
                with the composition correction, `wanted` is asked again about those that it wants, with
                what they score against the reversed profile.
            scored: called with how many pairs of query and target have been through the filter so far.
            wanted: says from the scores which alignments are asked for; all if there is none.

        Returns:
            The candidates of each query, in order.
        """
        ...

    def align(
        self,
        pairs: Iterable[tuple[QueryProfile, np.ndarray]],
        targets: "SequenceArrays",
        settings: "SearchSettings",
        wanted: Wanted | None = None,
    ) -> Iterator[Candidates]:
        """Align without a filter; also between two results of a `run`, whose targets stay where they are.

        Args:
            pairs: queries, each with int64 [n] places in `targets`; taken as the engine has room for them.
            targets: of the pairs.
            settings: of which the gap costs are used, and the threads by the CPU.
            wanted: see `run`.

        Returns:
            Of each query its targets in the order given, in the order of the queries.
        """
        ...
