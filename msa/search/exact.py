"""Exact search: all occurrences of queries in a database, however short they are.

Peptides of about eight residues score too low for a similarity search: E-values of their best alignments are
above 1 in databases of any size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.alphabet import LETTER_BITS, STANDARD, X, encode
from msa.base.errors import InputError
from msa.base.progress import Progress
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.matrices import background, substitution_matrix
from msa.profile.pssm import ProfileRecord
from msa.profile.statistics import bit_scores
from msa.search.database_search import apply_thresholds, check_query

_CHUNK_BYTES = 1 << 24
"""Number of residues scanned at a time."""


def exact_search(
    queries: Sequence[FastaRecord],
    database: TargetDatabase,
    settings: SearchSettings,
    progress: Progress | None = None,
) -> Iterator[tuple[FastaRecord, Hits]]:
    """Find every occurrence of each query.

    Letters must be equal, X included; masks are ignored.

    Args:
        queries: at least 2 residues each, letters A–Z.
        database: the database; its clusters have no effect.
        settings: `evalue` and the thresholds select hits, `max_seqs` is the maximum number of hits, `matrix`
            and gap costs define scores and bits.
        progress: called with the number of targets scanned so far, and the number of all targets.

    Returns:
        An iterator over each query with its hits, one for each occurrence, in the order of the database. The
        E-value is the number of occurrences that are expected in random sequences with the background
        frequencies of amino acids.

    Raises:
        InputError: a query is too short, or is a profile.
    """
    codes = []
    for query in queries:
        check_query(query)
        if isinstance(query, ProfileRecord):
            raise InputError(f"query {query.id!r} is a profile: an exact search takes sequences")
        codes.append(encode(query.sequence))
    found = _find(codes, database, progress)
    for query, query_codes, (targets, starts) in zip(queries, codes, found, strict=True):
        yield query, _hits(query_codes, targets, starts, database, settings)


def _find(
    queries: Sequence[np.ndarray], database: TargetDatabase, progress: Progress | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the targets and the first positions, int64 [n], of all occurrences of each query."""
    arrays = database.arrays
    patterns = [codes.tobytes() for codes in queries]
    found: list[list[np.ndarray]] = [[np.empty((0, 2), np.int64)] for _ in queries]
    overlap = max(map(len, patterns), default=1) - 1
    total = len(arrays.residues)
    for first in range(0, total, _CHUNK_BYTES):
        end = min(total, first + _CHUNK_BYTES)
        text = (arrays.residues[first : end + overlap] & LETTER_BITS).tobytes()
        for pattern, occurrences in zip(patterns, found, strict=True):
            last = min(len(text), end - first + len(pattern) - 1)
            positions = np.array(list(_occurrences(text, pattern, last)), np.int64) + first
            targets = np.searchsorted(arrays.offsets, positions, side="right") - 1
            starts = positions - arrays.offsets[targets]
            # an occurrence may span two sequences, or X may match the padding between them
            inside = starts + len(pattern) <= arrays.lengths[targets]
            occurrences.append(np.stack([targets[inside], starts[inside]], axis=1))
        if progress is not None:
            progress(int(np.searchsorted(arrays.offsets, end)), len(arrays))
    return [(each[:, 0], each[:, 1]) for each in map(np.concatenate, found)]


def _occurrences(text: bytes, pattern: bytes, end: int) -> Iterator[int]:
    """Yield the first positions of all occurrences that end before `end`; they may overlap."""
    position = text.find(pattern, 0, end)
    while position >= 0:
        yield position
        position = text.find(pattern, position + 1, end)


def _hits(
    codes: np.ndarray,
    targets: np.ndarray,
    starts: np.ndarray,
    database: TargetDatabase,
    settings: SearchSettings,
) -> Hits:
    """Return the hits of a query, which differ only in their targets and positions."""
    length = len(codes)
    # alignments need a positive score, even if the query has too many X to reach one
    score = max(1, int(substitution_matrix(settings.matrix)[codes, codes].sum()))
    parameters = gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)
    # letters without a background frequency count as the rarest amino acid
    frequencies = np.maximum(background(), background()[: len(STANDARD)].min())
    expected = database.total_residues * float(np.prod(frequencies[codes]))
    count = len(targets) if expected <= settings.evalue else 0
    records = np.empty((count, 8), np.int32)
    records[:] = score, 0, length - 1, 0, length - 1, np.count_nonzero(codes != X), length, 1
    records[:, 3:5] += starts[:count, None].astype(np.int32)
    hits = Hits(
        length,
        database,
        targets[:count],
        targets[:count],
        np.full(count, bit_scores(np.array([score]), parameters)[0]),
        np.full(count, expected),
        AlignmentPaths(records, np.full(count, length << 2, np.int32), np.arange(count + 1)),
    )
    hits = apply_thresholds(hits, np.zeros(count, bool), settings)
    first = hits.subset(np.arange(len(hits)) < settings.max_seqs)
    return replace(first, capped=len(first) < len(hits))
