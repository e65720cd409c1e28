"""The parameter archive: its expected checksum, its digests, and safe unpacking of selected files."""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import IO

from foldcli.params.download import TransientError, Unreachable, check_address, open_url
from foldcli.params.parameters import LICENCE_FILE
from foldcli.progress import Progress
from msa.base.errors import InputError, MissingError

_CHUNK_BYTES = 1 << 20
_MAX_LICENCE_BYTES = 1 << 20
_MAX_CHECKSUM_LIST_BYTES = 1 << 20
# maximum size of one read while headers are parsed; larger extended headers are damaged or malicious
_MAX_READ_BYTES = 1 << 24


def expected_sha256(checksum: str, archive: str) -> str:
    """Return the checksum (hex) that an archive must have.

    Args:
        checksum: 64 hexadecimal digits, or a file or https URL with the output of sha256sum.
        archive: URL or path of the archive.

    Raises:
        InputError: `checksum` is not a SHA-256, or the file or URL has none of the archive.
        Unreachable: the URL cannot be read.
    """
    if _is_sha256(checksum):
        return checksum.lower()
    name = PurePosixPath(archive.partition("?")[0]).name
    if checksum.startswith("http://"):
        raise InputError("a checksum sent over http could be forged; use https", checksum)
    if not checksum.startswith("https://"):
        if not Path(checksum).is_file():
            raise InputError("--sha256 is neither 64 hexadecimal digits nor an existing file", checksum)
        return _sha256_in_list(Path(checksum).read_text(encoding="utf-8", errors="replace"), name, checksum)
    try:
        check_address(checksum)
    except ValueError as error:
        raise InputError(f"not a valid address ({error})", checksum) from None
    try:
        with open_url(checksum, {}, has_answered=False) as response:
            text = response.read(_MAX_CHECKSUM_LIST_BYTES).decode(errors="replace")
    except TransientError as error:
        raise Unreachable(str(error), "Try again, or give the SHA-256 itself.") from error
    return _sha256_in_list(text, name, checksum)


def _sha256_in_list(text: str, name: str, source: str) -> str:
    """Return the checksum in the line that names a file, or in the only line."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    lines_of_file = [line for line in lines if PurePosixPath(line[-1].lstrip("*")).name == name]
    for line in lines_of_file or (lines if len(lines) == 1 else []):
        if _is_sha256(line[0]):
            return line[0].lower()
    raise InputError(f"no SHA-256 of {name}: expected 64 hexadecimal digits, or lines of sha256sum", source)


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and not set(text.lower()) - set("0123456789abcdef")


def file_digests(path: Path, progress: Progress) -> tuple[str, bytes]:
    """Return SHA-256 (hex) and MD5 of a file; call `progress` with (bytes read, bytes in total)."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    total, done = path.stat().st_size, 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
            done += len(chunk)
            progress(done, total)
    return sha256.hexdigest(), md5.digest()


def unpack(
    archive: Path,
    requested: Collection[str],
    folder: Path,
    check_space: Callable[[int], None],
    progress: Progress,
) -> dict[str, tuple[int, str]]:
    """Unpack selected files and the licence from an archive; write nothing else.

    Args:
        archive: an uncompressed tar with the files at its top level, in `./` or in `params/`.
        requested: names of the files.
        folder: destination.
        check_space: called with the number of bytes to be written; raises an exception if they do not fit.
        progress: called with (bytes written, bytes in total).

    Returns:
        Size and SHA-256 (hex) of each requested file, by name.

    Raises:
        InputError: the archive is not a tar, is damaged, lacks a requested file, or has an unsafe member: a
            path outside the destination, a link or a device.
    """
    try:
        with _BoundedFile(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            members = _top_level_files(tar, archive)
            if missing := [name for name in requested if name not in members]:
                raise InputError(f"the archive has no {', '.join(missing)}", archive)
            selected = {name: members[name] for name in (*requested, LICENCE_FILE) if name in members}
            total, done = sum(member.size for member in selected.values()), 0
            check_space(total)
            unpacked: dict[str, tuple[int, str]] = {}
            for name, member in sorted(selected.items(), key=lambda entry: entry[1].offset):
                source = tar.extractfile(member)
                assert source is not None  # regular files have content

                def update(written: int, before: int = done) -> None:
                    progress(before + written, total)

                sha256 = _copy(source, folder / name, update)
                done += member.size
                if name != LICENCE_FILE:
                    unpacked[name] = member.size, sha256
            return unpacked
    except (InputError, MissingError, OSError):
        raise
    except Exception as error:  # tarfile raises many classes for damaged headers
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"not a tar archive, or a damaged one ({reason:.200})", archive) from error


class _BoundedFile(io.FileIO):
    """A file that is never read or positioned beyond its end, whatever sizes an archive's headers state."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.length = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(_MAX_READ_BYTES, self.length if size is None or size < 0 else size)) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and not 0 <= offset <= self.length:
            raise tarfile.ReadError("a member ends after the archive")
        return super().seek(offset, whence)


def _top_level_files(tar: tarfile.TarFile, archive: Path) -> dict[str, tarfile.TarInfo]:
    """Return the regular files at the top level of an archive, by name."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        if member.size < 0:
            raise tarfile.ReadError(f"{member.name!r} has a negative size")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"the archive has the path {member.name!r}, outside its own folder", archive)
        if member.isdir():
            continue
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            raise InputError(f"in the archive, {member.name!r} is not a regular file", archive)
        parts = path.parts[1:] if path.parts[:1] == ("params",) else path.parts
        if len(parts) != 1:
            continue
        if parts[0] in members:
            raise InputError(f"the archive has {parts[0]} twice", archive)
        if parts[0] == LICENCE_FILE and member.size > _MAX_LICENCE_BYTES:
            raise InputError(f"in the archive, {member.name!r} has {member.size:,} bytes", archive)
        members[parts[0]] = member
    return members


def _copy(source: IO[bytes], path: Path, progress: Callable[[int], None]) -> str:
    """Write a new file, flush it to the disk, and return its SHA-256 (hex)."""
    digest, done = hashlib.sha256(), 0
    with path.open("xb") as stream:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            stream.write(chunk)
            done += len(chunk)
            progress(done)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()
