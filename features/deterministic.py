"""The features that depend on the alignment alone: AlphaFold2's pipeline up to its first random number."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from features.residues import aatypes, atom_maps, msa_codes
from features.templates import no_templates
from msa.errors import InputError
from msa.io.alignments import Alignment

NUM_CODES = 22  # twenty residues, X, gap
# work on blocks of this many letters, so that the peak stays near the result
_BLOCK = 1 << 16


def make_features(
    alignments: Sequence[Alignment], templates: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """The cached features of one target, as `features.schema.CACHED` lists them.

    Rows are taken alignment by alignment, and of equal rows only the first is kept, as in DeepMind's
    `make_msa_features`. Unlike there, residues are numbered in the network's order from the start (0–19,
    X 20, gap 21). The header of the first query is kept as `domain_name`.

    Args:
        alignments: at least one; all of the same query. A query alone is an alignment of one row.
        templates: what `features.templates.process_templates` returns; none by default.

    Raises:
        InputError: no alignment, or alignments of different queries.
    """
    if not alignments:
        raise InputError("no alignment to make features from")
    query = alignments[0].query
    for other in alignments[1:]:
        if other.query != query:
            first = alignments[0].source or "the first alignment"
            raise InputError(f"its query differs from that of {first}", other.source)
    length = len(query)
    aatype = aatypes(query)
    msa, deletions = _first_of_equal_rows(alignments)
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
        "hhblits_profile": _profile(msa),
        **atom_maps(aatype),
        **(no_templates(length) if templates is None else templates),
    }


def _first_of_equal_rows(alignments: Sequence[Alignment]) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 and deletions [M, R] of all alignments in order, of rows of equal letters the first."""
    kept = _first_places(alignments)
    shape = sum(map(len, kept)), alignments[0].letters.shape[1]
    largest = max(int(alignment.deletions.max()) for alignment in alignments)
    msa, deletions = np.empty(shape, np.int8), np.empty(shape, np.min_scalar_type(largest))
    step = max(1, _BLOCK // shape[1])
    end = 0
    for alignment, rows in zip(alignments, kept, strict=True):
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            begin, end = end, end + len(block)
            msa[begin:end] = msa_codes(alignment.letters[block])
            deletions[begin:end] = alignment.deletions[block]
    # the largest may have been in a row that was left out
    return msa, deletions.astype(np.min_scalar_type(int(deletions.max())), copy=False)


def _first_places(alignments: Sequence[Alignment]) -> list[np.ndarray]:
    """Per alignment, the indices of the rows of which no equal one comes before, in any alignment."""
    # 128 bits stand for a row: small beside a deep alignment
    digests = bytearray()
    for alignment in alignments:
        for row in alignment.letters:
            digests += hashlib.blake2b(row, digest_size=16).digest()
    _, firsts = np.unique(np.frombuffer(digests, "S16"), return_index=True)
    new = np.zeros(len(digests) // 16, bool)
    new[firsts] = True
    ends = np.cumsum([len(alignment) for alignment in alignments])
    return [np.flatnonzero(part) for part in np.split(new, ends[:-1])]


def _profile(msa: np.ndarray) -> np.ndarray:
    """Share of every code in every column, float32 [R, 22]."""
    rows, length = msa.shape
    counts = np.zeros(length * NUM_CODES, np.int64)
    offsets = np.arange(length) * NUM_CODES
    step = max(1, _BLOCK // length)
    for start in range(0, rows, step):
        places = offsets + msa[start : start + step]
        counts += np.bincount(places.reshape(-1), minlength=len(counts))
    return counts.reshape(length, NUM_CODES).astype(np.float32) / np.float32(rows)
