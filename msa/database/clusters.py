"""Clusters of a database's sequences, from such a table as `mmseqs createtsv` writes.

A line has a representative's id, a tab and the id of a member of its cluster, which it is itself as well.

Ids are compared by 64-bit hashes, as everywhere in a build: a table takes 16 bytes a line.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from msa.errors import InputError
from msa.io.compression import open_input
from msa.io.fasta_blocks import hash_bytes, is_blank
from msa.jit import kernel

_BLOCK = 8 << 20
_TAB, _NEWLINE, _RETURN, _BAR = b"\t\n\r|"


@dataclass(frozen=True)
class ClusterTable:
    """A table of clusters whose every representative is a member of the cluster it names.

    Attributes:
        path: the file.
        members: uint64 [lines], a hash of each line's member, ascending.
        lines: int64 [lines], the line that each stands in, from 0.
        representatives: int64 [lines], for each of them the place of its representative among them.
    """

    path: str
    members: np.ndarray
    lines: np.ndarray
    representatives: np.ndarray

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(np.count_nonzero(self.representatives == np.arange(len(self.lines))))

    def assign(self, ids: np.ndarray, accessions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The line of each sequence, by its id or, where the table has not that, by its accession.

        Args:
            ids: uint64 [n], a hash of each sequence's id.
            accessions: uint64 [n], of what stands behind the first bar of an id such as sp|P0C2L1|A3X1_LOXLA,
                which is all that MMseqs2 writes of it; 0 where there are none.

        Returns:
            int64 [n], places in `members`, −1 for sequences that the table does not have; int64 [lines], the
            sequence of each.

        Raises:
            InputError: a line has no sequence, or two; names it.
        """
        found = self._places(ids)
        missing = np.flatnonzero(found < 0)
        found[missing] = self._places(accessions[missing])
        there = np.flatnonzero(found >= 0)
        sequences = np.full(len(self.lines), -1, np.int64)
        sequences[found[there]] = there
        again = np.bincount(found[there], minlength=len(self.lines)) > 1
        for wrong, reason in (
            (sequences < 0, "no sequence of the FASTA input has the id {!r}"),
            (again, "several sequences of the FASTA input have the id {!r}"),
        ):
            if wrong.any():
                line = int(self.lines[wrong].min())
                raise InputError(reason.format(_fields(self.path, line)[1]), self.path, line + 1)
        return found, sequences

    def _places(self, hashes: np.ndarray) -> np.ndarray:
        return _places(self.members, hashes)


def read_clusters(path: str | os.PathLike[str]) -> ClusterTable:
    """Read a table of clusters, compressed or not.

    Raises:
        InputError: an empty file, a line that is not two ids with a tab between, a member that stands in two
            lines, a representative that is no member of its own cluster; names file and line.
        OSError: the file cannot be read.
    """
    name = os.fspath(path)
    blocks = list(_hashed(name))
    pairs = np.concatenate([np.empty((0, 2), np.uint64), *blocks])
    if not len(pairs):
        raise InputError("empty file: expected lines of a representative's id, a tab and a member's", name)
    lines = np.argsort(pairs[:, 1], kind="stable")
    members = pairs[lines, 1]
    twice = lines[1:][members[1:] == members[:-1]]
    if len(twice):
        line = int(twice.min())
        raise InputError(f"{_fields(name, line)[1]!r} is a member for the second time", name, line + 1)
    own = pairs[lines, 0]
    representatives = _places(members, own)
    wrong = (representatives < 0) | (own[representatives] != own)
    if wrong.any():
        line = int(lines[wrong].min())
        reason = f"the representative {_fields(name, line)[0]!r} is no member of its own cluster"
        raise InputError(reason, name, line + 1)
    return ClusterTable(name, members, lines, representatives)


def _places(members: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Where hashes stand among members, which ascend; −1 for those that do not; int64."""
    places = np.minimum(np.searchsorted(members, hashes), len(members) - 1)
    return np.where(members[places] == hashes, places, -1)


def _hashed(name: str) -> Iterator[np.ndarray]:
    """Hashes of each line's two ids, uint64 [lines, 2], a block of lines at a time."""
    before, rest = 0, b""
    with open_input(name) as stream:
        while piece := stream.read(_BLOCK):
            joined = rest + piece
            cut = joined.rfind(b"\n") + 1
            yield (pairs := _hashed_block(joined[:cut], name, before))
            before, rest = before + len(pairs), joined[cut:]
    yield _hashed_block(rest, name, before)


def _hashed_block(data: bytes, name: str, before: int) -> np.ndarray:
    most = data.count(b"\n") + 1
    pairs: np.ndarray = np.empty((most, 2), np.uint64)
    count, whole = _hash_lines(np.frombuffer(data, np.uint8), pairs)
    if not whole:
        raise InputError("expected a representative's id, a tab and a member's", name, before + count + 1)
    return pairs[:count]


def _fields(name: str, line: int) -> tuple[str, str]:
    """Both ids of a line, from 0; for messages."""
    with open_input(name) as stream:
        for number, text in enumerate(stream):
            if number == line:
                one, other = text.decode("utf-8", "replace").split("\t")
                return one.strip(), other.strip()
    raise AssertionError("the line has been read before")


@kernel
def _hash_lines(data, pairs):  # type: ignore[no-untyped-def]
    """Fill `pairs` from whole lines; how many there are, and whether the one after these is wrong."""
    count = start = 0
    while start < len(data):
        end = start
        tabs, tab, wrong = 0, 0, False
        while end < len(data) and data[end] != _NEWLINE:
            if data[end] == _TAB:
                tabs, tab = tabs + 1, end
            elif is_blank(data[end]) and data[end] != _RETURN:
                wrong = True
            end += 1
        stop = end - 1 if end > start and data[end - 1] == _RETURN else end
        if wrong or tabs != 1 or tab == start or tab + 1 >= stop:
            return count, False
        pairs[count, 0] = hash_bytes(data, start, tab)
        pairs[count, 1] = hash_bytes(data, tab + 1, stop)
        count, start = count + 1, end + 1
    return count, True


@kernel
def accession_hashes(headers, header_lengths):  # type: ignore[no-untyped-def]
    """Hashes of what stands behind the first bar of each id, up to the next, uint64 [n]; 0 without a bar.

    Args:
        headers, header_lengths: see msa.io.fasta_blocks.Records.
    """
    hashes = np.zeros(len(header_lengths), np.uint64)
    start = 0
    for k in range(len(header_lengths)):
        end = start + header_lengths[k]
        first = place = start
        while place < end and not is_blank(headers[place]) and (first == start or headers[place] != _BAR):
            if headers[place] == _BAR:
                first = place + 1
            place += 1
        if start < first < place:
            hashes[k] = hash_bytes(headers, first, place)
        start = end
    return hashes
