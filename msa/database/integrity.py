"""Checks that the arrays of a database are consistent, so that no search reads outside of them."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from msa.base.errors import InputError, check_intact
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
    DatabaseManifest,
)
from msa.database.sequence_arrays import SequenceArrays

SMALL_FILE_BYTES = 8 << 20
"""Size up to which the checksums of residues and headers are compared whenever a database is opened."""

_INDEX_FILES = (OFFSETS, LENGTHS, HEADER_INDEX, CLUSTERS, MEMBERS, WHOLE_INDEX, SAMPLE_LENGTHS)
_HASH_CHUNK_BYTES = 1 << 22
_CHECK_THREADS = 4
# entries that are checked at a time: their temporary arrays fit into a core's cache
_CHUNK = 1 << 16

_require = partial(check_intact, "database")


def check_sequences(arrays: SequenceArrays, manifest: DatabaseManifest, folder: Path) -> None:
    """Check that lengths ascend, and that each sequence starts where the previous one, padded, ends.

    Raises:
        InputError: they contradict each other, the residues or the manifest; names the file.
    """
    clusters, count = manifest.clusters, len(arrays)
    boundary = count if clusters is None else clusters.representatives
    residues_before: dict[int, int] = {}
    end = residues = previous = 0
    for first, last in _spans(0, boundary, count):
        if first in (0, boundary):
            residues_before[first], previous = residues, 1
        lengths = arrays.lengths[first:last].astype(np.int64)
        ascend = int(lengths[0]) >= previous and bool(np.all(lengths[1:] >= lengths[:-1]))
        _require(ascend, "lengths are not ascending", folder / LENGTHS)
        ends = (lengths + 3) & ~3
        np.cumsum(ends, out=ends)
        ends += end
        offsets = arrays.offsets[first:last]
        follow = offsets[0] == end and np.array_equal(offsets[1:], ends[:-1])
        reason = f"the offsets of sequences {first} to {last - 1} do not follow from their lengths"
        _require(follow, reason, folder / OFFSETS)
        end, previous = int(ends[-1]), int(lengths[-1])
        residues += int(lengths.sum())
    size = len(arrays.residues)
    _require(end == size, f"the last sequence ends at byte {end} of {size} of {RESIDUES}", folder / OFFSETS)
    reason = f"{residues} residues, and the manifest has {manifest.residues}"
    _require(residues == manifest.residues, reason, folder / LENGTHS)
    if clusters is not None:
        reason = f"the representatives do not have the manifest's {clusters.residues} residues"
        _require(residues_before.get(boundary, residues) == clusters.residues, reason, folder / LENGTHS)


def check_headers(index: np.ndarray, size: int, folder: Path) -> None:
    """Check the index of the headers.

    Args:
        index: int64 [sequences + 1].
        size: bytes of all headers.
        folder: the database.

    Raises:
        InputError: the offsets are not ascending, or do not end at the end of the headers.
    """
    reason = f"the last header ends at byte {index[-1]} of {size} of {HEADERS}"
    _require(index[0] == 0 and index[-1] == size, reason, folder / HEADER_INDEX)
    _require(_is_ascending(index), "offsets are not ascending", folder / HEADER_INDEX)


def check_clusters(
    clusters: np.ndarray, members: np.ndarray, manifest: DatabaseManifest, folder: Path
) -> None:
    """Check that every sequence after the representatives is a member of one cluster.

    Args:
        clusters: int64 [representatives + 1], offset of each cluster in `members`.
        members: int64 [sequences − representatives].
        manifest: manifest of a database with clusters.
        folder: the database.

    Raises:
        InputError: the clusters are inconsistent; names the file.
    """
    summary = manifest.clusters
    assert summary is not None
    reason = f"the last cluster ends at {clusters[-1]} of {len(members)} members"
    _require(clusters[0] == 0 and clusters[-1] == len(members), reason, folder / CLUSTERS)
    right = _is_ascending(clusters) and int(np.diff(clusters).max()) + 1 == summary.largest
    _require(right, "the sizes of clusters are wrong", folder / CLUSTERS)
    first, end = summary.representatives, manifest.sequences
    inside = not len(members) or (members.min() >= first and members.max() < end)
    _require(inside, f"a member is not in [{first}, {end})", folder / MEMBERS)
    found = np.zeros(end - first, np.bool_)
    found[members - first] = True
    _require(found.all(), "a sequence is missing, another occurs twice", folder / MEMBERS)


def check_part_files(files: dict[str, np.ndarray], manifest: DatabaseManifest, folder: Path) -> None:
    """Check the indices in the whole database, and the lengths of its sample.

    Raises:
        InputError: an index is not in the whole database or not in its order, or the sample's residues and
            lengths contradict each other; names the file.
    """
    whole, index, lengths = manifest.whole, files[WHOLE_INDEX], files[SAMPLE_LENGTHS]
    assert whole is not None
    boundary = len(index) if manifest.clusters is None else manifest.clusters.representatives
    for first, end, low, high in (
        (0, boundary, 0, whole.representatives),
        (boundary, len(index), whole.representatives, whole.sequences),
    ):
        group = index[first:end]
        ascend = not len(group) or (group[0] >= low and group[-1] < high and np.all(np.diff(group) > 0))
        _require(ascend, "not ascending indices of the whole", folder / WHOLE_INDEX)
    agree = len(lengths) and lengths.min() >= 1 and int(lengths.sum(dtype=np.int64)) == len(files[SAMPLE])
    _require(agree, f"lengths that differ from {SAMPLE}", folder / SAMPLE_LENGTHS)


def check_small_files(files: dict[str, np.ndarray], manifest: DatabaseManifest, folder: Path) -> None:
    """Compare the checksums of all indices, and of residues and headers up to SMALL_FILE_BYTES.

    Raises:
        InputError: a file differs from its checksum; names it.
    """
    names = [name for name in files if name in _INDEX_FILES or files[name].nbytes <= SMALL_FILE_BYTES]

    def check(name: str) -> None:
        for _ in check_file(files[name], manifest.files[name].sha256, folder / name):
            pass

    if sum(files[name].nbytes for name in names) < _HASH_CHUNK_BYTES:
        for name in names:
            check(name)
        return
    # hashing releases the interpreter lock
    with ThreadPoolExecutor(_CHECK_THREADS) as pool:
        for _ in pool.map(check, names):
            pass


def check_file(array: np.ndarray, sha256: str, path: Path) -> Iterator[int]:
    """Compare one file with its checksum; yield the number of bytes of each piece that was read.

    Raises:
        InputError: the file differs from its checksum.
    """
    digest = hashlib.sha256()
    data = array.view(np.uint8)
    for first in range(0, len(data), _HASH_CHUNK_BYTES):
        piece = data[first : first + _HASH_CHUNK_BYTES]
        digest.update(piece.data)
        yield len(piece)
    if digest.hexdigest() != sha256:
        raise InputError("damaged: its SHA-256 differs from the manifest's", path)


def _spans(*boundaries: int) -> Iterator[tuple[int, int]]:
    """Yield [first, end) of consecutive pieces that cross none of the boundaries."""
    for start, stop in pairwise(boundaries):
        for first in range(start, stop, _CHUNK):
            yield first, min(first + _CHUNK, stop)


def _is_ascending(index: np.ndarray) -> bool:
    pieces = (index[first : end + 1] for first, end in _spans(0, len(index)))
    return all(bool(np.all(piece[1:] >= piece[:-1])) for piece in pieces)
