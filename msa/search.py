"""Searching a target database with one query: gapless filter, alignment, E-values; docs/search.md.

Stage 1 scores every target without gaps, masked residues as X, and passes on the best. Stage 2 aligns those
with gaps, masked residues as the letters they are. Every step is exact and its ties are broken by database
order, so results do not depend on the number of threads or the machine.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from msa.alphabet import encode
from msa.database import TargetDatabase
from msa.errors import InputError
from msa.fasta import FastaRecord
from msa.hits import Hit
from msa.profile import query_profile
from msa.statistics import bit_score, evalue, gumbel_parameters

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class SearchSettings:
    """What a search depends on, query and database apart.

    Args:
        evalue: largest E-value of a hit.
        max_seqs: targets that pass from the gapless filter to the alignment.
        min_ungapped_score: smallest gapless score that passes, half-bits.
        gap_open: cost of a gap's first residue, half-bits.
        gap_extend: cost of each further residue, half-bits.
        comp_bias_corr: correct scores for the query's local composition.
        min_seq_id: smallest fraction of identical pairs among the alignment's columns.
        coverage: smallest fraction of residues between the alignment's ends.
        cov_mode: of query and target (0), of the target (1), of the query (2).
        threads: CPU threads; results do not depend on them.

    Raises:
        InputError: there are no E-value statistics for the gap costs.
    """

    evalue: float = 1e-3
    max_seqs: int = 300
    min_ungapped_score: int = 15
    gap_open: int = 11
    gap_extend: int = 1
    comp_bias_corr: bool = True
    min_seq_id: float = 0.0
    coverage: float = 0.0
    cov_mode: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        try:
            gumbel_parameters(self.gap_open, self.gap_extend)
        except ValueError as error:
            raise InputError(str(error)) from None


def search(
    query: FastaRecord,
    database: TargetDatabase,
    settings: SearchSettings | None = None,
    progress: Progress | None = None,
) -> list[Hit]:
    """Find the targets that resemble a query.

    Args:
        query: at least 2 residues, letters A–Z.
        database: what to search; E-values are for the whole of it.
        settings: see SearchSettings.
        progress: called with targets that have been through the gapless filter and targets in all.

    Returns:
        Hits by E-value, then score from high to low, then database order; at most one per target.

    Raises:
        InputError: the query is too short.
    """
    # numba takes a third of a second to import
    from msa.cpu.gapless import gapless_scores
    from msa.cpu.gotoh import align
    from msa.cpu.targets import Targets

    settings = settings or SearchSettings()
    check_query(query)
    codes = encode(query.sequence)
    profile = query_profile(codes, settings.comp_bias_corr)
    targets = Targets(database.residues, database.offsets, database.lengths)
    scores = gapless_scores(profile, targets, settings.threads, progress)
    chosen = best_targets(scores, settings.max_seqs, settings.min_ungapped_score)
    alignments = align(
        profile, codes, targets, chosen, settings.gap_open, settings.gap_extend, settings.threads
    )
    parameters = gumbel_parameters(settings.gap_open, settings.gap_extend)
    hits = []
    for target, alignment in zip(chosen.tolist(), alignments, strict=True):
        length = int(targets.lengths[target])
        expected = evalue(alignment.score, len(codes), length, database.total_residues, parameters)
        if alignment.score == 0 or expected > settings.evalue:
            continue
        hit = Hit(
            target=target,
            header=database.header(target),
            sequence=database.sequence(target),
            query_length=len(codes),
            bits=bit_score(alignment.score, parameters),
            evalue=expected,
            alignment=alignment,
        )
        if _similar_enough(hit, settings):
            hits.append(hit)
    return sorted(hits, key=lambda hit: (hit.evalue, -hit.score, hit.target))


def check_query(query: FastaRecord) -> None:
    """Refuse a query that cannot be searched with.

    Raises:
        InputError: it has fewer than 2 residues.
    """
    if len(query.sequence) < 2:
        count = "1 residue" if query.sequence else "no residues"
        raise InputError(f"query {query.id!r} has {count}: a search needs at least 2")


def best_targets(scores: np.ndarray, most: int, smallest: int) -> np.ndarray:
    """The targets that pass the gapless filter.

    Args:
        scores: int32 [n], half-bits.
        most: how many may pass; of equal ones at the limit the first in the database do.
        smallest: score that a target needs.

    Returns:
        int64 [≤ most], indices of targets, best first, equal ones in database order.
    """
    passing = np.flatnonzero(scores >= smallest)
    if len(passing) > most:
        # only those not below the last place need sorting
        limit = np.partition(scores[passing], len(passing) - most)[len(passing) - most]
        passing = passing[scores[passing] >= limit]
    return passing[np.argsort(-scores[passing], kind="stable")][:most]


def _similar_enough(hit: Hit, settings: SearchSettings) -> bool:
    covered = {
        0: min(hit.query_coverage, hit.target_coverage),
        1: hit.target_coverage,
        2: hit.query_coverage,
    }[settings.cov_mode]
    return hit.identity >= settings.min_seq_id and covered >= settings.coverage
