"""Entries of the feature cache for complexes: the rows of their alignments."""

import hashlib
from collections.abc import Mapping

import numpy as np

from features.cache import FeatureCache, add_to_digest
from features.complexes.entities import AlignedRows
from features.complexes.rows import ComplexRows, rows_of_file
from features.deterministic import column_profile
from features.entry import FORMAT
from features.residues import GAP
from features.schema import SCHEMA_VERSION
from msa.io.complex_a3m import ComplexAlignment

_PAIRED = -1


def complex_key(name: str, alignment: ComplexAlignment) -> str:
    """Return the key of the entry of a complex: a hash of its name and of everything in its rows.

    The names of rows do not matter, because the file already says which rows are paired.
    """
    order = "" if alignment.order is None else ",".join(map(str, alignment.order))
    copies = ",".join(map(str, alignment.copies))
    digest = hashlib.sha256(f"{FORMAT}\0{SCHEMA_VERSION}\0complex\0{copies}\0{order}\0".encode())
    for rows in (*alignment.paired, *alignment.unpaired):
        add_to_digest(digest, rows, name)
    return digest.hexdigest()


def load_or_make_rows(
    cache: FeatureCache, name: str, alignment: ComplexAlignment, overwrite: bool = False, verify: bool = True
) -> tuple[ComplexRows, bool]:
    """Load the rows of a complex from a cache, or store them there.

    Args:
        cache: the cache.
        name: name of the complex.
        alignment: its alignment.
        overwrite: see `FeatureCache.load_or_make`.
        verify: see `FeatureCache.load_or_make`.

    Returns:
        The rows, and whether they were loaded; raises the exceptions of `FeatureCache.load_or_make`.
    """
    features, hit = cache.load_or_compute(
        complex_key(name, alignment),
        lambda: rows_to_features(name, rows_of_file(alignment)),
        [alignment.source],
        overwrite,
        verify,
    )
    return features_to_rows(features), hit


def rows_to_features(name: str, rows: ComplexRows) -> dict[str, np.ndarray]:
    """Return the rows of a complex as the features in `features.schema.CACHED_COMPLEX`."""
    ends = np.cumsum([len(sequence) for sequence in rows.sequences])
    columns = [slice(end - len(sequence), end) for end, sequence in zip(ends, rows.sequences, strict=True)]
    counts = [len(rows.paired[0]), *map(len, rows.unpaired)]
    row_entity = np.repeat(np.arange(_PAIRED, len(columns), dtype=np.int32), counts)
    msa = np.full((sum(counts), ends[-1]), GAP, np.int8)
    deletions = np.zeros(msa.shape, np.uint32)
    for number, part in enumerate(columns):
        for entity, block in ((_PAIRED, rows.paired[number]), (number, rows.unpaired[number])):
            msa[row_entity == entity, part] = block.codes
            deletions[row_entity == entity, part] = block.deletions
    return {
        "domain_name": np.array([name.encode()], np.bytes_),
        "sequence": np.array([sequence.encode() for sequence in rows.sequences], np.bytes_),
        "order": np.array(rows.order, np.int32),
        "is_complete": np.array(rows.is_complete, np.int32),
        "row_entity": row_entity,
        "msa": msa,
        "deletion_matrix": deletions.astype(np.min_scalar_type(int(deletions.max()))),
        "hhblits_profile": column_profile(msa),
    }


def features_to_rows(features: Mapping[str, np.ndarray]) -> ComplexRows:
    """Return the rows of a complex; the inverse of `rows_to_features`."""
    sequences = tuple(sequence.decode() for sequence in features["sequence"].tolist())
    ends = np.cumsum([len(sequence) for sequence in sequences])[:-1]
    blocks = list(
        zip(*(np.split(features[name], ends, axis=1) for name in ("msa", "deletion_matrix")), strict=True)
    )

    def rows(entity: int, number: int) -> AlignedRows:
        codes, deletions = blocks[number]
        chosen = features["row_entity"] == entity
        return AlignedRows(codes[chosen], deletions[chosen])

    return ComplexRows(
        sequences,
        tuple(features["order"].tolist()),
        tuple(rows(_PAIRED, number) for number in range(len(sequences))),
        tuple(rows(number, number) for number in range(len(sequences))),
        bool(features["is_complete"]),
    )
