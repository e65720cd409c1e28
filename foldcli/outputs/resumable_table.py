"""Tables of search results that a later run continues after an interruption.

While a table OUT is unfinished, `.OUT.unfinished` holds the lines of the finished queries. After the lines of
a query, one line of JSON is written to `.OUT.unfinished.index`. It has a hash of the query and of everything
that its lines depend on (`key`), the end offset and the CRC-32 of the lines, and whether the number of hits
was limited.
"""

import contextlib
import fcntl
import io
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from foldcli.errors import OptionError
from msa.base.atomic import DiskFull, atomic_write, errors_name, is_disk_full, is_stream
from msa.base.errors import InputError
from msa.base.json_files import parse_json

_MAX_NAME_BYTES = 200
"""Longer names would leave no room for the suffixes within the usual limit of 255 bytes."""


def refuse_existing(path: str | Path, overwrite: bool) -> None:
    """Raise OptionError if a file would be replaced without `--overwrite`; "-" and streams never are."""
    if not overwrite and path != "-" and not is_stream(path) and Path(path).exists():
        raise OptionError(f"{path} exists; --overwrite replaces it.")


class Table:
    """A table that is being written, and not kept if that is interrupted.

    Attributes:
        finished: number of queries that an earlier run has written; they are the first ones.
        capped: number of queries written so far that have more hits than are listed.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.finished = self.capped = 0

    def write(self, lines: str, capped: bool) -> None:
        """Write the lines of the next query."""
        self._stream.write(lines)
        self.capped += capped


@contextlib.contextmanager
def open_table(path: str | os.PathLike[str], keys: Sequence[str], resumable: bool) -> Iterator[Table]:
    """Open a table, which appears under its name when the block ends without an exception.

    If an error or an interruption ends the block, a resumable table with finished queries is kept for the
    next call with the same path, unless the input is invalid or the disk is full.

    Args:
        path: final name; streams (see `is_stream`) are written to directly.
        keys: for each query, a hash of everything that its lines depend on.
        resumable: continue an interrupted table, and keep this one if it is interrupted. Has no effect on
            streams, on file systems without locks, and while another process writes the same table.

    Raises:
        DiskFull: no space is left.
    """
    path = Path(path)
    if not resumable or is_stream(path) or len(os.fsencode(path.name)) > _MAX_NAME_BYTES:
        files = None
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        with errors_name(path):
            files = _open_locked(path)
    if files is None:
        with atomic_write(path) as stream:
            yield Table(stream)
        return
    with files.table, files.index:
        table = _ResumableTable(path, files, keys)
        try:
            yield table
            os.fsync(files.table.fileno())
            files.table_path.replace(path)
            files.index_path.unlink()
        except BaseException as error:
            disk_full = is_disk_full(error)
            if table.is_empty or disk_full or isinstance(error, InputError):
                files.remove()
            if disk_full:
                assert isinstance(error, OSError)
                raise DiskFull(error.errno, error.strerror, str(path), table.bytes_written) from error
            raise


@dataclass(frozen=True)
class _Files:
    """The files of an unfinished table, open for reading and writing, with a lock on the table."""

    table_path: Path
    table: io.FileIO
    index_path: Path
    index: io.FileIO

    def remove(self) -> None:
        """Delete both files."""
        self.table_path.unlink(missing_ok=True)
        self.index_path.unlink(missing_ok=True)


def _open_locked(path: Path) -> _Files | None:
    """Open the files of an unfinished table; return None if they cannot be locked."""
    table_path = path.with_name(f".{path.name}.unfinished")
    index_path = path.with_name(f"{table_path.name}.index")
    while True:
        table = _open(table_path)
        try:
            fcntl.flock(table, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            table.close()
            return None
        # the process that had the lock before may have renamed or deleted the file
        if table_path.exists() and os.path.samestat(os.fstat(table.fileno()), table_path.stat()):
            return _Files(table_path, table, index_path, _open(index_path))
        table.close()


def _open(path: Path) -> io.FileIO:
    """Open a file for reading and writing; create it if it does not exist."""
    return io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")


@dataclass(frozen=True)
class _IndexEntry:
    """The line of a query in the index; see the module's documentation."""

    key: str
    end: int
    crc: int
    capped: bool


class _ResumableTable(Table):
    """A table with an index of its queries."""

    def __init__(self, path: Path, files: _Files, keys: Sequence[str]) -> None:
        self._path, self._files, self._keys = path, files, keys
        self.finished = self.capped = self.bytes_written = 0
        index_bytes = 0
        for key, line in zip(keys, files.index.readall().splitlines(keepends=True), strict=False):
            try:
                entry = parse_json(line, _IndexEntry)
            except ValueError:  # not written completely
                break
            if entry.key != key:
                break
            size = entry.end - self.bytes_written
            lines = os.pread(files.table.fileno(), max(size, 0), self.bytes_written)
            if len(lines) != size or zlib.crc32(lines) != entry.crc:
                break
            self.bytes_written, index_bytes = entry.end, index_bytes + len(line)
            self.finished += 1
            self.capped += entry.capped
        self._queries = self.finished
        for stream, size in ((files.table, self.bytes_written), (files.index, index_bytes)):
            stream.truncate(size)
            stream.seek(size)

    @property
    def is_empty(self) -> bool:
        """True if no query is finished."""
        return self._queries == 0

    def write(self, lines: str, capped: bool) -> None:
        """Write the lines of the next query, then its entry in the index."""
        content = lines.encode()
        with errors_name(self._path):
            _write_all(self._files.table, content)
        self.bytes_written += len(content)
        entry = _IndexEntry(self._keys[self._queries], self.bytes_written, zlib.crc32(content), capped)
        with errors_name(self._path):
            _write_all(self._files.index, json.dumps(asdict(entry)).encode() + b"\n")
        self._queries += 1
        self.capped += capped


def _write_all(stream: io.FileIO, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[stream.write(remaining) :]
