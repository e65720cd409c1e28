"""The features that depend on the alignment alone: AlphaFold2's pipeline up to its first random number."""

from collections.abc import Mapping, Sequence

import numpy as np

from features.residues import aatypes, atom_maps, msa_codes
from features.templates import no_templates
from msa.alignments import Alignment
from msa.errors import InputError

NUM_CODES = 22  # twenty residues, X, gap


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
    letters, deletions = _first_of_equal_rows(alignments)
    msa = msa_codes(letters)
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
    """Letters and deletions [M, R] of all alignments in order, of equal rows of letters the first."""
    seen: set[bytes] = set()
    letters, deletions = [], []
    for alignment in alignments:
        # one bytes object per row: hashing them beats sorting rows by a factor of five
        rows = alignment.letters.view(f"V{alignment.letters.shape[1]}").ravel().tolist()
        kept = np.empty(len(rows), bool)
        for index, row in enumerate(rows):
            kept[index] = row not in seen
            seen.add(row)
        letters.append(alignment.letters[kept])
        deletions.append(alignment.deletions[kept])
    stacked = np.concatenate(deletions)
    return np.concatenate(letters), stacked.astype(np.min_scalar_type(int(stacked.max())))


def _profile(msa: np.ndarray) -> np.ndarray:
    """Share of every code in every column, float32 [R, 22]."""
    rows, length = msa.shape
    counts = np.empty((length, NUM_CODES), np.int64)
    for code in range(NUM_CODES):
        counts[:, code] = np.count_nonzero(msa == code, axis=0)
    return counts.astype(np.float32) / np.float32(rows)
