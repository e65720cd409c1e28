"""Files with the hits of one part of a split database, from which `foldcli merge-hits` makes results.

A file is a NumPy archive (.npz) without pickled objects. `about` (uint8) is JSON: format, version, alphabet,
the whole database, the settings of the search, and the header and sequence of each query. For query k
there are

- `targets_k`, `representatives_k` (int64) and `bits_k`, `evalues_k` (float64), see
  `msa.search.split.merge.PartHits`;
- `records_k`, `runs_k` (int32), the alignments, see AlignmentPaths;
- `headers_k` (uint8), header lines of the targets as UTF-8, and `header_lengths_k` (int32), their lengths in
  bytes;
- `residues_k` (uint8), letter codes of the targets, and `lengths_k` (int32), the lengths of the targets;
- `members_k` (uint8), 1 for hits that may join the query's family;
- `filtered_k` (int64), `gapless_k` and `windows_k` (int32) and `passes_k` (uint8), the targets that passed
  the gapless filter, see FilteredTargets;
- `profile_k` (int16, flat), if the query has a profile.

For a query that did not take part in the iteration, nothing but its profile is stored.
"""

import errno
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.alphabet import LETTER_BITS, LETTERS
from msa.base.errors import InputError
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.filtered_targets import FilteredTargets
from msa.hits.hits import Hits, StoredSequences
from msa.io.arrays import read_array, write_array
from msa.io.fasta import FastaRecord
from msa.profile.matrices import PROFILE_COLUMNS
from msa.profile.pssm import ProfileRecord
from msa.search.split.merge import PartHits
from msa.search.windows import window_starts

FORMAT, VERSION = "foldcli part hits", 3
_MAX_BYTES = 1 << 34
_NOT_HITS = "not a file of hits from `foldcli search --partial`"


def describe_queries(queries: Sequence[FastaRecord]) -> list[dict[str, Any]]:
    """Return the description of queries that is stored in a file."""
    return [
        {
            "header": query.header,
            "sequence": query.sequence,
            "of_family": query.of_family if isinstance(query, ProfileRecord) else None,
        }
        for query in queries
    ]


class PartHitsWriter:
    """A writer of hits, one query at a time; leaving the `with` block completes the file.

    Args:
        stream: binary stream; the file is invalid until the end of the block.
        about: description of database and search, for `PartHitsFile.about`.
    """

    def __init__(self, stream: IO[bytes], about: Mapping[str, Any]) -> None:
        self._about = about
        self._archive = zipfile.ZipFile(stream, "w", compresslevel=1)
        self._queries: list[FastaRecord] = []
        self._searched: list[int] = []

    def __enter__(self) -> "PartHitsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            about = {"format": FORMAT, "version": VERSION, "alphabet": LETTERS, **self._about}
            about["queries"] = describe_queries(self._queries)
            about["searched"] = self._searched
            write_array(self._archive, "about", np.frombuffer(json.dumps(about).encode(), np.uint8))
        self._archive.close()

    def add(self, query: FastaRecord, part: PartHits | None) -> None:
        """Write the hits of a query, or None if it did not take part in the iteration."""
        content = {} if part is None else _hit_arrays(part)
        if isinstance(query, ProfileRecord):
            content["profile"] = query.profile.ravel()
        for name, array in content.items():
            write_array(self._archive, f"{name}_{len(self._queries)}", array)
        if part is not None:
            self._searched.append(len(self._queries))
        self._queries.append(query)


def _hit_arrays(part: PartHits) -> dict[str, np.ndarray]:
    """Return the arrays of a query's hits by their names in the file."""
    hits, arrays = part.hits, part.hits.source.arrays
    headers = [header.encode() for header in hits.headers]
    codes = [arrays.codes(row) for row in hits.rows.tolist()]
    return {
        "targets": hits.targets,
        "representatives": part.representatives,
        "bits": hits.bits,
        "evalues": hits.evalues,
        "records": hits.alignments.records.ravel(),
        "runs": hits.alignments.runs,
        "headers": np.frombuffer(b"".join(headers), np.uint8),
        "header_lengths": np.array([len(header) for header in headers], np.int32),
        "residues": np.concatenate([np.empty(0, np.uint8), *codes]) & LETTER_BITS,
        "lengths": np.array([len(each) for each in codes], np.int32),
        "members": part.is_member.astype(np.uint8),
        "filtered": part.filtered.targets,
        "gapless": part.filtered.scores,
        "windows": part.filtered.windows,
        "passes": part.filtered.passes.astype(np.uint8),
    }


@dataclass(frozen=True, eq=False)
class PartHitsFile:
    """An open file of hits.

    Args:
        path: the file.
        about: the description that was given to the writer.
        queries: the queries, in the order in which they were searched.
        searched: indices of the queries that took part in the iteration.
    """

    path: str
    about: dict[str, Any]
    queries: list[FastaRecord]
    searched: frozenset[int]
    _archive: zipfile.ZipFile

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "PartHitsFile":
        """Open a file.

        Raises:
            InputError: it is not a file of hits, or is damaged.
            OSError: it cannot be read.
        """
        name = os.fspath(path)
        try:
            archive = zipfile.ZipFile(name)
            if "about.npy" not in archive.namelist():
                raise InputError(_NOT_HITS, name)
            about = json.loads(read_array(archive, "about", np.uint8, (-1,), _MAX_BYTES).tobytes())
            if not isinstance(about, dict) or about.pop("format", None) != FORMAT:
                raise InputError(_NOT_HITS, name)
            if (version := about.pop("version")) != VERSION or about.pop("alphabet") != LETTERS:
                raise InputError(f"version {version!r:.40}, and this foldcli reads {VERSION}", name)
            queries = [_read_query(archive, k, query) for k, query in enumerate(about.pop("queries"))]
            searched = frozenset(about.pop("searched"))
            if not searched <= set(range(len(queries))):
                raise InputError("damaged file of hits: unknown queries were searched", name)
            return cls(name, about, queries, searched, archive)
        except zipfile.BadZipFile:
            raise InputError(_NOT_HITS, name) from None
        except InputError:
            raise
        except Exception as error:  # json, zlib, numpy and others raise many classes for damaged data
            raise _damaged(name, error) from None

    def read(self, index: int) -> PartHits:
        """Read the hits of a query that was searched.

        Raises:
            InputError: the file is damaged.
            OSError: it cannot be read.
        """
        try:
            return self._read(index)
        except Exception as error:  # see `open`
            raise _damaged(self.path, error) from None

    def _read(self, index: int) -> PartHits:
        def read(name: str, dtype: type, length: int = -1) -> np.ndarray:
            return read_array(self._archive, f"{name}_{index}", dtype, (length,), _MAX_BYTES)

        targets = read("targets", np.int64)
        count, query = len(targets), self.queries[index]
        lengths, header_lengths = read("lengths", np.int32, count), read("header_lengths", np.int32, count)
        residues, headers = read("residues", np.uint8), read("headers", np.uint8).tobytes()
        records, runs = read("records", np.int32, 8 * count).reshape(-1, 8), read("runs", np.int32)
        _check_alignments(records, runs, len(query.sequence), lengths)
        if count and (lengths.min() < 1 or header_lengths.min() < 0):
            raise ValueError("a negative length")
        if int(lengths.sum(dtype=np.int64)) != len(residues):
            raise ValueError("the number of residues differs from the lengths")
        ends = np.cumsum(header_lengths, dtype=np.int64).tolist()
        bits, evalues = read("bits", np.float64, count), read("evalues", np.float64, count)
        if not (np.isfinite(bits).all() and np.all(evalues >= 0)):
            raise ValueError("a score that is not a number")
        lines = [headers[a:b].decode() for a, b in zip([0, *ends[:-1]], ends, strict=False)]
        arrays = SequenceArrays.contiguous(residues, lengths)
        hits = Hits(
            len(query.sequence),
            StoredSequences(lines, arrays),
            np.arange(count),
            targets,
            bits,
            evalues,
            AlignmentPaths.of_records(records, runs),
        )
        filtered = read("filtered", np.int64)
        windows = read("windows", np.int32, len(filtered))
        if np.any(windows < 0) or np.any(windows > len(window_starts(len(query.sequence)))):
            raise ValueError("unknown windows of the query")
        return PartHits(
            hits,
            read("representatives", np.int64, count),
            read("members", np.uint8, count).astype(bool),
            FilteredTargets(
                filtered,
                read("gapless", np.int32, len(filtered)),
                windows,
                read("passes", np.uint8, len(filtered)).astype(bool),
            ),
        )


def _read_query(archive: zipfile.ZipFile, index: int, described: dict[str, Any]) -> FastaRecord:
    header, sequence, of_family = described["header"], described["sequence"], described["of_family"]
    if not (isinstance(header, str) and isinstance(sequence, str)):
        raise ValueError(f"query {index} has no header or no sequence")
    if of_family is None:
        return FastaRecord(header, sequence)
    shape = len(sequence), PROFILE_COLUMNS
    scores = read_array(archive, f"profile_{index}", np.int16, (shape[0] * shape[1],)).reshape(shape)
    return ProfileRecord(header, sequence, scores, "a search", bool(of_family))


def _check_alignments(
    records: np.ndarray, runs: np.ndarray, query_length: int, target_lengths: np.ndarray
) -> None:
    """Raise ValueError if an alignment's path does not lead from its first to its last position."""
    counts = records[:, 7].astype(np.int64)
    if np.any(counts < 1) or counts.sum() != len(runs) or np.any(runs < 4) or np.any(runs & 3 > 2):
        raise ValueError("alignments without paths")
    if not len(runs):
        return
    starts, operations, lengths = np.cumsum(counts) - counts, runs & 3, (runs >> 2).astype(np.int64)
    scores, identities, columns = records[:, 0], records[:, 5], records[:, 6]
    if np.any(scores < 1) or np.any(identities < 0) or np.any(identities > columns):
        raise ValueError("alignments with impossible numbers")
    if np.any(columns != np.add.reduceat(lengths, starts)):
        raise ValueError("alignments whose paths and columns differ")
    for gap, first, last, limit in ((2, 1, 2, query_length), (1, 3, 4, target_lengths)):
        covered = np.add.reduceat(np.where(operations == gap, 0, lengths), starts)
        positions = records[:, [first, last]].astype(np.int64)
        if np.any(positions[:, 0] < 0) or np.any(positions[:, 1] >= limit):
            raise ValueError("alignments beyond their sequences")
        if np.any(covered != positions[:, 1] - positions[:, 0] + 1):
            raise ValueError("alignments whose paths and ends differ")


def _damaged(path: str, error: Exception) -> Exception:
    """Return the error for a damaged file, or the system's own error."""
    # an archive with wrong offsets makes zipfile seek to impossible positions
    if isinstance(error, OSError) and error.errno != errno.EINVAL:
        return error
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"damaged file of hits: {reason:.200}", path)
