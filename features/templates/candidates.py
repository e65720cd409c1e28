"""Candidates of a template search: hits with their alignments, used as templates or rejected."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from features.templates.library.chains import TemplateChain
from msa.hits.hits import Hits
from msa.hits.local_alignments import OPERATIONS


@dataclass(frozen=True, eq=False)
class TemplateCandidate:
    """A hit of a template search.

    Args:
        index: number of the chain in the library.
        id: id of the chain, such as 1abc_A.
        source: file or collection of the chain.
        release_date: YYYY-MM-DD, or None if unknown.
        evalue: E-value of the hit; None for templates of a job.
        identity: identical pairs as a fraction of the alignment's columns.
        query_start, query_end, template_start, template_end: ends of the alignment, from 1, inclusive.
        pairs: int64 [n, 2], aligned residues of query and template, from 0.
        query_coverage: aligned residues of the query as a fraction of its length.
        expected_pairs: expected number of correctly aligned pairs; None if the hit was
            rejected before they were computed.
        rejection: the reason why the hit is not used; None for templates.
        bits: score of the hit.
    """

    index: int
    id: str
    source: str
    release_date: str | None
    evalue: float | None
    identity: float
    query_start: int
    query_end: int
    template_start: int
    template_end: int
    pairs: np.ndarray = field(repr=False)
    query_coverage: float
    expected_pairs: float | None = None
    rejection: str | None = None
    bits: float = 0.0


@dataclass(frozen=True, eq=False)
class TemplateHits:
    """The result of a template search for one query.

    Args:
        query: the query's residues.
        candidates: templates first, best first, then rejected hits by E-value.
        chains: the chain of each template, in order.
    """

    query: str
    candidates: Sequence[TemplateCandidate] = ()
    chains: Sequence[TemplateChain] = field(default=(), repr=False)

    @property
    def templates(self) -> list[TemplateCandidate]:
        """The candidates that are used, best first."""
        return [candidate for candidate in self.candidates if candidate.rejection is None]


def aligned_pairs(hits: Hits) -> list[np.ndarray]:
    """Return the aligned residues of query and target of each hit, from 0: int64 [pairs, 2]."""
    alignments = hits.alignments
    lengths, operations = alignments.runs >> 2, alignments.runs & 3
    counts, is_pair = np.diff(alignments.run_offsets), operations == OPERATIONS.index("M")
    # residues of query and target before each run, of all alignments together
    moves = lengths[:, None] * (operations[:, None] != [OPERATIONS.index("D"), OPERATIONS.index("I")])
    before = np.cumsum(moves, axis=0) - moves
    of_alignment = before[np.repeat(alignments.run_offsets[:-1], counts)]
    starts = np.repeat(alignments.records[:, [1, 3]], counts, axis=0) + before - of_alignment
    sizes = lengths[is_pair]
    ends = np.cumsum(sizes)
    pairs = np.repeat(starts[is_pair] - (ends - sizes)[:, None], sizes, axis=0)
    pairs += np.arange(len(pairs))[:, None]
    owners = np.repeat(np.arange(len(hits)), counts)
    per_hit = np.bincount(owners, lengths * is_pair, len(hits)).astype(np.int64)
    return np.split(pairs, np.cumsum(per_hit))[:-1]
