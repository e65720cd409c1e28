"""Clusters of a database's sequences, read from a table such as `mmseqs createtsv` writes.

Each line has the id of a representative, a tab and the id of a member of its cluster. A representative is a
member of its own cluster.

Ids are compared by 64-bit hashes, so a table needs 24 bytes of memory per line.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.base.cpu_kernels.jit import kernel
from msa.base.errors import InputError
from msa.database.length_sort import LengthSorter
from msa.database.manifest import CLUSTERS, MEMBERS, ClusterSummary
from msa.io.compression import open_input
from msa.io.fasta_blocks import ParsedBlock, hash_bytes, is_whitespace

_CHUNK_BYTES = 8 << 20
_TAB, _NEWLINE, _RETURN, _BAR = b"\t\n\r|"


@dataclass(frozen=True)
class ClusterTable:
    """A table of clusters, sorted by the hashes of the members.

    Attributes:
        path: the file.
        members: uint64 [lines], ascending: hash of each line's member.
        lines: int64 [lines], 0-based line number of each member.
        representatives: int64 [lines], for each member the index of its representative in `members`.
    """

    path: str
    members: np.ndarray
    lines: np.ndarray
    representatives: np.ndarray

    @property
    def count(self) -> int:
        """The number of clusters."""
        return int(np.count_nonzero(self.representatives == np.arange(len(self.lines))))

    def representatives_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the index in `members` of the representative of each id that the table has."""
        result = {}
        for name in ids:
            data = np.frombuffer(name.encode(), np.uint8)
            (index,) = _find(self.members, np.array([hash_bytes(data, 0, len(data))], np.uint64))
            if index >= 0:
                result[name] = int(self.representatives[index])
        return result

    def assign(self, ids: np.ndarray, accessions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Match sequences to lines, by id or, if the table lacks the id, by accession.

        Args:
            ids: uint64 [n], hash of each sequence's id.
            accessions: uint64 [n], hash of the accession, the text after the first bar of an id such as
                sp|P0C2L1|A3X1_LOXLA, which MMseqs2 writes instead of the id; 0 without a bar.

        Returns:
            int64 [n]: for each sequence its index in `members`, −1 if it is not in the table.
            int64 [lines]: for each member its sequence.

        Raises:
            InputError: a line matches no sequence, or several; names it.
        """
        indices = _find(self.members, ids)
        missing = np.flatnonzero(indices < 0)
        indices[missing] = _find(self.members, accessions[missing])
        matched = np.flatnonzero(indices >= 0)
        sequences = np.full(len(self.lines), -1, np.int64)
        sequences[indices[matched]] = matched
        repeated = np.bincount(indices[matched], minlength=len(self.lines)) > 1
        for wrong, reason in (
            (sequences < 0, "no sequence of the FASTA input has the id {!r}"),
            (repeated, "several sequences of the FASTA input have the id {!r}"),
        ):
            if wrong.any():
                line = int(self.lines[wrong].min())
                raise InputError(reason.format(_read_ids(self.path, line)[1]), self.path, line + 1)
        return indices, sequences


def read_clusters(path: str | os.PathLike[str]) -> ClusterTable:
    """Read a table of clusters, compressed or not.

    Raises:
        InputError: an empty file, a line that is not two ids with a tab between them, a member on two lines,
            or a representative that is not a member of its own cluster; names file and line.
        OSError: the file cannot be read.
    """
    name = os.fspath(path)
    pairs = np.concatenate([np.empty((0, 2), np.uint64), *_hash_file(name)])
    if not len(pairs):
        raise InputError(
            "empty file: expected a representative's id, a tab and a member's id on each line", name
        )
    lines = np.argsort(pairs[:, 1], kind="stable")
    members = pairs[lines, 1]
    repeated = lines[1:][members[1:] == members[:-1]]
    if len(repeated):
        line = int(repeated.min())
        raise InputError(f"{_read_ids(name, line)[1]!r} is already listed as a member", name, line + 1)
    hashes = pairs[lines, 0]
    representatives = _find(members, hashes)
    wrong = (representatives < 0) | (hashes[representatives] != hashes)
    if wrong.any():
        line = int(lines[wrong].min())
        reason = f"the representative {_read_ids(name, line)[0]!r} is not a member of its own cluster"
        raise InputError(reason, name, line + 1)
    return ClusterTable(name, members, lines, representatives)


class ClusterBuilder:
    """The assignment of sequences to the clusters of a table (see `read_clusters`) while a database is built.

    The table and the hashed ids of all sequences are kept in memory: at most about 100 bytes per sequence.

    Raises:
        InputError: the table is invalid.
    """

    def __init__(self, path: Path) -> None:
        self._table = read_clusters(path)
        self._ids: list[np.ndarray] = []
        self._accessions: list[np.ndarray] = []

    def add(self, block: ParsedBlock) -> None:
        """Add the next sequences of the input."""
        self._ids.append(block.id_hashes)
        self._accessions.append(accession_hashes(block.headers, block.header_lengths))

    def write(
        self, folder: Path, sorter: LengthSorter, threads: int
    ) -> tuple[ClusterSummary, dict[str, str]]:
        """Write all files of the database.

        Returns:
            The summary for the manifest, and the SHA-256 of each file.

        Raises:
            InputError: sequences and table do not match.
            OSError: the disk is full.
        """
        representatives = self._representatives(sorter)
        is_member = representatives != np.arange(len(representatives))
        ranks = sorter.ranks(is_member)
        count = int(np.count_nonzero(~is_member))
        clusters, members = ranks[representatives[is_member]], ranks[is_member]
        # sort by cluster, then by the order of the database
        members = members[np.lexsort((members, clusters))]
        sizes = np.bincount(clusters, minlength=count)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        residues = sorter.residues_of(~is_member)
        checksums = sorter.write(threads, is_member)
        for name, array in ((CLUSTERS, starts), (MEMBERS, members)):
            data = array.astype("<i8").tobytes()
            (folder / name).write_bytes(data)
            checksums[name] = hashlib.sha256(data).hexdigest()
        summary = ClusterSummary(count, residues, int(sizes.max()) + 1, Path(self._table.path).name)
        return summary, checksums

    def _representatives(self, sorter: LengthSorter) -> np.ndarray:
        """Return the representative of each sequence, int64 [sequences], as indices in input order."""
        ids, accessions = np.concatenate(self._ids), np.concatenate(self._accessions)
        self._ids, self._accessions = [], []
        indices, sequences = self._table.assign(ids, accessions)
        unmatched = np.flatnonzero(indices < 0)
        if len(unmatched):
            header = sorter.header(int(unmatched[0]))
            others = f" ({len(unmatched) - 1:,} more are missing)" if len(unmatched) > 1 else ""
            raise InputError(
                f"no line lists the sequence {header[:60]!r} as a member{others}; list a singleton as its "
                "own representative",
                self._table.path,
            )
        return np.asarray(sequences[self._table.representatives[indices]])


def _find(members: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Return the index of each hash in `members`, which is sorted; −1 if absent; int64."""
    indices = np.minimum(np.searchsorted(members, hashes), len(members) - 1)
    return np.where(members[indices] == hashes, indices, -1)


def _hash_file(name: str) -> Iterator[np.ndarray]:
    """Yield hashes of each line's two ids, uint64 [lines, 2], a chunk of lines at a time."""
    lines_before, rest = 0, b""
    with open_input(name) as stream:
        while data := stream.read(_CHUNK_BYTES):
            joined = rest + data
            cut = joined.rfind(b"\n") + 1
            yield (pairs := _hash_chunk(joined[:cut], name, lines_before))
            lines_before, rest = lines_before + len(pairs), joined[cut:]
    yield _hash_chunk(rest, name, lines_before)


def _hash_chunk(data: bytes, name: str, lines_before: int) -> np.ndarray:
    pairs: np.ndarray = np.empty((data.count(b"\n") + 1, 2), np.uint64)
    count, valid = _hash_lines(np.frombuffer(data, np.uint8), pairs)
    if not valid:
        reason = "expected a representative's id, a tab and a member's id"
        raise InputError(reason, name, lines_before + count + 1)
    return pairs[:count]


def _read_ids(name: str, line: int) -> tuple[str, str]:
    """Return both ids of a line (0-based) for an error message."""
    with open_input(name) as stream:
        for number, text in enumerate(stream):
            if number == line:
                representative, member = text.decode("utf-8", "replace").split("\t")
                return representative.strip(), member.strip()
    raise AssertionError("the line existed when the file was first read")


@kernel
def _hash_lines(data, pairs):  # type: ignore[no-untyped-def]
    """Fill `pairs` from whole lines; return the number of leading valid lines, and whether all are valid."""
    count = start = 0
    while start < len(data):
        end = start
        tabs, tab, invalid = 0, 0, False
        while end < len(data) and data[end] != _NEWLINE:
            if data[end] == _TAB:
                tabs, tab = tabs + 1, end
            elif is_whitespace(data[end]) and data[end] != _RETURN:
                invalid = True
            end += 1
        stop = end - 1 if end > start and data[end - 1] == _RETURN else end
        if invalid or tabs != 1 or tab == start or tab + 1 >= stop:
            return count, False
        pairs[count, 0] = hash_bytes(data, start, tab)
        pairs[count, 1] = hash_bytes(data, tab + 1, stop)
        count, start = count + 1, end + 1
    return count, True


@kernel
def accession_hashes(headers, header_lengths):  # type: ignore[no-untyped-def]
    """Return the hash of the text between the first two bars of each id, uint64 [n]; 0 without a bar.

    Args:
        headers: uint8, all headers, concatenated.
        header_lengths: int32 [n].
    """
    hashes = np.zeros(len(header_lengths), np.uint64)
    start = 0
    for k in range(len(header_lengths)):
        end = start + header_lengths[k]
        first = stop = start
        while stop < end and not is_whitespace(headers[stop]) and (first == start or headers[stop] != _BAR):
            if headers[stop] == _BAR:
                first = stop + 1
            stop += 1
        if start < first < stop:
            hashes[k] = hash_bytes(headers, first, stop)
        start = end
    return hashes
