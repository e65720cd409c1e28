"""Splitting of a database into parts that several machines search.

Part I of N gets every N-th representative, starting with the I-th, and the members of their clusters, so
that all parts have about the same distribution of lengths and take about the same time. Each part is a
database that can be searched alone. It also contains the data about the whole database that a search needs:
the number of residues, the index of each sequence, and a sample of sequences for the statistics of family
profiles.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from msa.alphabet import MASK_BIT
from msa.base.atomic import errors_name
from msa.base.errors import InputError
from msa.database.database import TargetDatabase
from msa.database.manifest import (
    CLUSTERS,
    HEADER_INDEX,
    HEADERS,
    LENGTHS,
    MEMBERS,
    OFFSETS,
    RESIDUES,
    SAMPLE,
    SAMPLE_LENGTHS,
    WHOLE_INDEX,
    ClusterSummary,
    DatabaseFile,
    DatabaseManifest,
    WholeDatabase,
    part_name,
    write_manifest,
)

_CHUNK_BYTES = 16 << 20
"""Number of residues copied at a time; the indices for copying take about thirty times as much memory."""
_CHUNK_HEADERS = 1 << 16


def split_database(whole: Path, folder: Path, parts: int) -> list[DatabaseManifest]:
    """Write the parts of a database into the folders FOLDER/I-of-N.

    Args:
        whole: folder of a database that is not itself a part.
        folder: an existing folder.
        parts: number of parts.

    Returns:
        The manifest of each part.

    Raises:
        InputError: there are fewer representatives than parts.
        OSError: the disk is full.
    """
    database = TargetDatabase.open(whole)
    if database.representatives < parts:
        kind = "sequences" if database.manifest.clusters is None else "clusters"
        raise InputError(f"{parts} parts need at least {parts} {kind}; there are {database.representatives}")
    return [_write_part(database, folder, part, parts) for part in range(1, parts + 1)]


class _PartWriter:
    """A writer of the files of one part that computes their checksums."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: dict[str, DatabaseFile] = {}

    def write(self, name: str, chunks: Iterator[bytes] | list[bytes]) -> None:
        """Write one file.

        Raises:
            OSError: the disk is full; names the file.
        """
        path, digest, size = self._folder / name, hashlib.sha256(), 0
        with errors_name(path), path.open("wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        self.files[name] = DatabaseFile(size, digest.hexdigest())

    def write_array(self, name: str, array: np.ndarray, dtype: str) -> None:
        """Write an array as one file; see `write`."""
        self.write(name, [array.astype(dtype).tobytes()])


def _write_part(whole: TargetDatabase, folder: Path, part: int, parts: int) -> DatabaseManifest:
    """Write one part of a database, and return its manifest."""
    part_folder = folder / part_name(part, parts)
    part_folder.mkdir()
    writer = _PartWriter(part_folder)
    indices, clusters = _select(whole, part, parts, writer)
    lengths = whole.arrays.lengths[indices]
    padded = (lengths.astype(np.int64) + 3) & ~3
    ends = np.cumsum(padded)
    masked = 0

    def residues() -> Iterator[bytes]:
        nonlocal masked
        cuts = np.searchsorted(ends, np.arange(_CHUNK_BYTES, int(ends[-1]), _CHUNK_BYTES))
        for chunk in np.split(indices, np.unique(cuts)):
            # `gather` appends a word of zeros
            codes = whole.arrays.gather(chunk).residues[:-4]
            masked += int(np.count_nonzero(codes & MASK_BIT))
            yield codes.tobytes()

    header_lengths: list[int] = []

    def headers() -> Iterator[bytes]:
        for first in range(0, len(indices), _CHUNK_HEADERS):
            lines = whole.raw_headers(indices[first : first + _CHUNK_HEADERS])
            header_lengths.extend(map(len, lines))
            yield b"".join(lines)

    writer.write(RESIDUES, residues())
    writer.write_array(OFFSETS, ends - padded, "<i8")
    writer.write_array(LENGTHS, lengths, "<i4")
    writer.write(HEADERS, headers())
    writer.write_array(HEADER_INDEX, np.cumsum([0, *header_lengths]), "<i8")
    writer.write_array(WHOLE_INDEX, indices, "<i8")
    sample = whole.length_sample
    writer.write_array(SAMPLE, sample.residues, "u1")
    writer.write_array(SAMPLE_LENGTHS, sample.lengths, "<i4")
    total, sorted_lengths = int(lengths.sum(dtype=np.int64)), np.sort(lengths)
    manifest = msgspec.structs.replace(
        whole.manifest,
        sequences=len(indices),
        residues=total,
        # padding bytes have the mask bit as well
        masked_residues=masked - (int(ends[-1]) - total),
        length_quantiles={
            name: int(sorted_lengths[max(0, int(np.ceil(float(name) * len(lengths))) - 1)])
            for name in whole.manifest.length_quantiles
        },
        files=writer.files,
        clusters=clusters,
        whole=WholeDatabase(
            part,
            parts,
            whole.manifest.sequences,
            whole.representatives,
            whole.manifest.residues,
            whole.manifest.checksums,
        ),
    )
    write_manifest(part_folder, manifest)
    return manifest


def _select(
    whole: TargetDatabase, part: int, parts: int, writer: _PartWriter
) -> tuple[np.ndarray, ClusterSummary | None]:
    """Select the sequences of a part, and write the files of its clusters, if there are any.

    Returns:
        Their indices in the whole database, int64 [n], in the order of the part, and the summary of their
        clusters.
    """
    count = whole.representatives
    representatives = np.arange(part - 1, count, parts)
    if (summary := whole.manifest.clusters) is None:
        return representatives, None
    clusters = whole.cluster_representatives(np.arange(count, len(whole)))
    members = count + np.flatnonzero(clusters % parts == part - 1)
    part_clusters = clusters[members - count] // parts
    order = np.lexsort((members, part_clusters))
    sizes = np.bincount(part_clusters, minlength=len(representatives))
    writer.write_array(CLUSTERS, np.concatenate([[0], np.cumsum(sizes)]), "<i8")
    writer.write_array(MEMBERS, len(representatives) + order, "<i8")
    residues = int(whole.arrays.lengths[representatives].sum(dtype=np.int64))
    part_summary = replace(
        summary, representatives=len(representatives), residues=residues, largest=int(sizes.max()) + 1
    )
    return np.concatenate([representatives, members]), part_summary
