"""Deterministic features: AlphaFold2's feature pipeline up to its first random number."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from features.chemistry.residues import atom_maps, encode_msa, encode_query
from features.templates.template_features import no_templates
from msa.alignments.files import Alignment
from msa.base.errors import InputError
from msa.base.residues import NUM_CODES

# number of letters processed at a time, which limits memory
_BLOCK = 1 << 16


def make_features(
    alignments: Sequence[Alignment], templates: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Compute the features in `features.alphafold2.schema.CACHED_FEATURES` for one target.

    Alignments are concatenated, and only the first of identical rows is kept, as in DeepMind's
    `make_msa_features`. Unlike in that function, residues have the network's codes (0 to 19, X 20, gap 21)
    and not those of HHblits. The header of the first query becomes `domain_name`.

    `species_row` (the index of a distinct row) and `species` list all rows of known species except the
    queries. Each pair of row and species is listed once, so a row that several species have in common is
    listed for each of them.

    Args:
        alignments: at least one, all of the same query. A query alone is an alignment of one row.
        templates: see `make_template_features`; default no templates.

    Raises:
        InputError: there is no alignment, or the alignments have different queries.
    """
    if not alignments:
        raise InputError("no alignment to compute features from")
    query = alignments[0].query
    for other in alignments[1:]:
        if other.query != query:
            first = alignments[0].source or "the first alignment"
            raise InputError(f"its query differs from that of {first}", other.source)
    length = len(query)
    aatype = encode_query(query)
    kept, positions = first_occurrences(alignments)
    msa, deletions = _encode_rows(alignments, kept)
    species_row, species = _species_rows(alignments, positions)
    return {
        "aatype": aatype,
        "residue_index": np.arange(length, dtype=np.int32),
        "seq_length": np.array(length, np.int32),
        "between_segment_residues": np.zeros(length, np.int32),
        "domain_name": np.array([alignments[0].names[0].encode()], np.bytes_),
        "sequence": np.array([query.encode()], np.bytes_),
        "msa": msa,
        "deletion_matrix": deletions,
        "num_alignments": np.array(len(msa), np.int32),
        "hhblits_profile": column_profile(msa),
        "species_row": species_row,
        "species": species,
        **atom_maps(aatype),
        **(no_templates(length) if templates is None else templates),
    }


def _encode_rows(
    alignments: Sequence[Alignment], kept: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes (int8) and deletions (unsigned) of the kept rows of each alignment, each [M, R]."""
    shape = sum(map(len, kept)), alignments[0].letters.shape[1]
    largest = max(int(alignment.deletions.max()) for alignment in alignments)
    msa, deletions = np.empty(shape, np.int8), np.empty(shape, np.min_scalar_type(largest))
    step = max(1, _BLOCK // shape[1])
    end = 0
    for alignment, rows in zip(alignments, kept, strict=True):
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            begin, end = end, end + len(block)
            msa[begin:end] = encode_msa(alignment.letters[block])
            deletions[begin:end] = alignment.deletions[block]
    # the largest count may have been in a duplicate row
    return msa, deletions.astype(np.min_scalar_type(int(deletions.max())), copy=False)


def first_occurrences(
    alignments: Sequence[Alignment],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Find the distinct rows of all alignments.

    Returns:
        For each alignment, the indices of the rows that equal no earlier row.
        For each alignment, the index of each of its rows among the distinct rows of all alignments.
    """
    # rows are compared by 128-bit digests, to save memory
    digests = bytearray()
    for alignment in alignments:
        for row in alignment.letters:
            digests += hashlib.blake2b(row, digest_size=16).digest()
    _, first, inverse = np.unique(np.frombuffer(digests, "S16"), return_index=True, return_inverse=True)
    is_first = np.zeros(len(digests) // 16, bool)
    is_first[first] = True
    positions = (np.cumsum(is_first) - 1)[first[inverse]]
    ends = np.cumsum([len(alignment) for alignment in alignments])[:-1]
    return [np.flatnonzero(part) for part in np.split(is_first, ends)], np.split(positions, ends)


def _species_rows(
    alignments: Sequence[Alignment], positions: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of distinct rows of known species (unsigned [P]) and their species (bytes [P])."""
    found: dict[tuple[int, str], None] = {}
    for alignment, rows in zip(alignments, positions, strict=True):
        if any(alignment.species[1:]):
            pairs = zip(rows[1:].tolist(), alignment.species[1:], strict=True)
            found.update(dict.fromkeys(pair for pair in pairs if pair[1]))
    species_row = np.array([row for row, _ in found], np.int64)
    species = np.array([name.encode() for _, name in found], np.bytes_)
    return species_row.astype(np.min_scalar_type(int(species_row.max(initial=0)))), species


def column_profile(msa: np.ndarray) -> np.ndarray:
    """Return the frequency of each code in each column: float32 [R, 22]."""
    return column_counts(msa, NUM_CODES).astype(np.float32) / np.float32(len(msa))


def column_counts(codes: np.ndarray, count: int) -> np.ndarray:
    """Return how often each code, 0 to `count` - 1, occurs in each column of int [M, R]: int64 [R, count]."""
    rows, length = codes.shape
    counts = np.zeros(length * count, np.int64)
    offsets = np.arange(length) * count
    step = max(1, _BLOCK // length)
    for start in range(0, rows, step):
        bins = offsets + codes[start : start + step]
        counts += np.bincount(bins.reshape(-1), minlength=len(counts))
    return counts.reshape(length, count)
