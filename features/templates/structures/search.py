"""Search by structure: the chains of a library that resemble the chains of a model."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from features.templates.candidates import aligned_pairs
from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary
from features.templates.library.states import encode_states
from features.templates.structures.scores import (
    GAP_EXTEND,
    GAP_OPEN,
    corrected_scores,
    evalues,
    joint_codes,
    joint_profile,
    residue_codes,
    state_profile,
)
from msa.alphabet import LETTER_BITS, X
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import Candidates, Engine, EngineRequest, SelectionCriteria, evalues_of_passing
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.profile.pssm import QueryProfile

MAX_CANDIDATES = 1000
"""Number of chains that are aligned by states and residues: those with the highest scores by states alone."""


@dataclass(frozen=True)
class StructureSearchSettings:
    """The settings of a search by structure.

    Args:
        evalue: largest E-value of a hit.
        max_seqs: maximum number of hits of a query.
        threads: CPU threads. Does not affect the result.
    """

    evalue: float = 0.1
    max_seqs: int = 300
    threads: int = 1

    @property
    def of_states(self) -> SearchSettings:
        """Settings of the engine, which filters and aligns by states alone."""
        return SearchSettings(
            max_seqs=max(self.max_seqs, MAX_CANDIDATES), matrix="BLOSUM62", gap_open=GAP_OPEN,
            gap_extend=GAP_EXTEND, threads=self.threads,
        )  # fmt: skip


def search_structures(
    queries: Iterable[TemplateChain],
    library: StructureLibrary,
    states: SequenceArrays,
    engine: Engine,
    settings: StructureSearchSettings,
) -> Iterator[tuple[TemplateChain, Hits]]:
    """Find the chains of a library that resemble each query.

    The engine filters all chains and scores the best ones by states; the CPU aligns the best of these by
    states and residues together.

    Args:
        queries: chains with a backbone; consumed lazily.
        library: the library.
        states: its states; see `library_states`.
        engine: filters and scores.
        settings: see StructureSearchSettings.

    Yields:
        Each query with its hits, best first.
    """
    waiting: deque[tuple[TemplateChain, np.ndarray]] = deque()

    def profiles() -> Iterator[QueryProfile]:
        for query in queries:
            (codes,) = encode_states([(query.positions, query.mask)])
            waiting.append((query, codes))
            yield QueryProfile(codes, state_profile(codes))

    # only scores are needed of the engine, no paths
    nothing = SelectionCriteria(lambda *pairs: evalues_of_passing(np.zeros(len(pairs[1]), bool)), 0.0)
    request = EngineRequest(states, settings.of_states, selection=nothing)
    for found in engine.run(profiles(), request):
        query, codes = waiting.popleft()
        yield query, _align(query, codes, found, library, states, settings)


def _align(
    query: TemplateChain,
    codes: np.ndarray,
    found: Candidates,
    library: StructureLibrary,
    states: SequenceArrays,
    settings: StructureSearchSettings,
) -> Hits:
    """Align the candidates of a query with the highest scores, and return its hits."""
    best = np.lexsort((found.targets, -found.scores))[: settings.of_states.max_seqs]
    targets = found.targets[best]
    sequences = library.database.arrays
    joined = SequenceArrays.concatenate(
        [joint_codes(states.codes(k), sequences.codes(k) & LETTER_BITS) for k in targets.tolist()]
        or [np.empty(0, np.uint16)]
    )
    residues = residue_codes(query.sequence)
    profile, letters = joint_profile(codes, residues), joint_codes(codes, residues)
    costs, lengths = (GAP_OPEN, GAP_EXTEND, settings.threads), sequences.lengths[targets]

    def bits_of(scores: np.ndarray, reversed_scores: np.ndarray, kept: np.ndarray) -> np.ndarray:
        return corrected_scores(scores, reversed_scores, len(codes), lengths[kept])

    paths = align(profile, letters, joined, np.arange(len(targets)), *costs)
    scores = paths.records[:, 0]
    # the correction only lowers scores
    uncorrected = bits_of(scores, np.zeros_like(scores), np.arange(len(targets)))
    kept = np.flatnonzero((evalues(uncorrected, len(library)) <= settings.evalue) & (scores > 0))
    turned = align(np.ascontiguousarray(profile[::-1]), letters, joined, kept, *costs)
    bits = np.zeros(len(targets))
    bits[kept] = bits_of(scores[kept], turned.records[:, 0], kept)
    expected = evalues(bits, len(library))
    kept = kept[expected[kept] <= settings.evalue]
    order = kept[np.lexsort((targets[kept], -bits[kept]))]
    hits = Hits(
        len(codes), library.database, targets[order], targets[order], bits[order], expected[order],
        paths.subset(order), len(order) > settings.max_seqs,
    )  # fmt: skip
    hits = replace(hits.subset(np.arange(len(hits)) < settings.max_seqs), capped=hits.capped)
    _count_identities(hits, residues)
    return hits


def _count_identities(hits: Hits, residues: np.ndarray) -> None:
    """Write the number of identical residues into the records; that of the alignment counts states too."""
    for record, target, pairs in zip(hits.alignments.records, hits.targets, aligned_pairs(hits), strict=True):
        codes = hits.source.arrays.codes(int(target)) & LETTER_BITS
        of_query = residues[pairs[:, 0]]
        record[5] = np.count_nonzero((of_query == codes[pairs[:, 1]]) & (of_query < X))
