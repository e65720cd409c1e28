"""Entries of the feature cache for complexes: the rows of their alignments."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from features.alphafold2.schema import SCHEMA_VERSION
from features.cache.cache import FeatureCache
from features.cache.entry import FORMAT
from features.complexes.entities import AlignedRows
from features.complexes.rows import ComplexRows
from msa.base.residues import GAP

_PAIRED = -1


def complex_key(name: str, rows: ComplexRows) -> str:
    """Return the key of the entry of a complex: a hash of its name and its rows."""
    order = ",".join(map(str, rows.order))
    digest = hashlib.sha256(
        f"{FORMAT}\0{SCHEMA_VERSION}\0complex\0{name}\0{order}\0{rows.is_complete}\0".encode()
    )
    for sequence in rows.sequences:
        digest.update(f"{sequence}\0".encode())
    for block in (*rows.paired, *rows.unpaired):
        positions = np.flatnonzero(block.deletions)
        digest.update(f"{len(block)}\0{len(positions)}\0".encode())
        digest.update(np.ascontiguousarray(block.codes).data)
        digest.update(positions.astype("<i8").tobytes())
        digest.update(block.deletions.reshape(-1)[positions].astype("<u4").tobytes())
    return digest.hexdigest()


def add_rows(
    cache: FeatureCache,
    name: str,
    rows: ComplexRows,
    sources: Sequence[str | None],
    overwrite: bool = False,
    verify: bool = True,
) -> bool:
    """Add the rows of a complex to a cache, and return whether it already had them.

    Args:
        cache: the cache.
        name: name of the complex.
        rows: its rows.
        sources: see `FeatureCache.store`.
        overwrite: see `FeatureCache.load_or_make`, whose exceptions this raises.
        verify: see `FeatureCache.load_or_make`.
    """
    key = complex_key(name, rows)
    return cache.load_or_compute(key, lambda: rows_to_features(name, rows), sources, overwrite, verify)[1]


def rows_to_features(name: str, rows: ComplexRows) -> dict[str, np.ndarray]:
    """Return the rows of a complex as `features.alphafold2.schema.CACHED_COMPLEX_FEATURES`."""
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
    }


def features_to_rows(features: Mapping[str, np.ndarray]) -> ComplexRows:
    """Return the rows of a complex; the inverse of `rows_to_features`.

    Raises:
        LookupError, ValueError: the features are not those of a complex.
    """
    sequences = tuple(sequence.decode("ascii") for sequence in features["sequence"].tolist())
    counts = np.bincount(features["row_entity"] - _PAIRED, minlength=len(sequences) + 1)
    if (
        set(features["order"].tolist()) != set(range(len(sequences)))
        or sum(map(len, sequences)) != features["msa"].shape[1]
        or len(counts) > len(sequences) + 1
        or not counts.all()
    ):
        raise ValueError("the rows do not match the chains")
    ends = np.cumsum([len(sequence) for sequence in sequences])[:-1]
    blocks = list(
        zip(*(np.split(features[name], ends, axis=1) for name in ("msa", "deletion_matrix")), strict=True)
    )

    def rows(entity: int, number: int) -> AlignedRows:
        codes, deletions = blocks[number]
        selected = features["row_entity"] == entity
        return AlignedRows(codes[selected], deletions[selected])

    return ComplexRows(
        sequences,
        tuple(features["order"].tolist()),
        tuple(rows(_PAIRED, number) for number in range(len(sequences))),
        tuple(rows(number, number) for number in range(len(sequences))),
        bool(features["is_complete"]),
    )
