"""Taking parameter files out of a tar, each under the name expected of it and no other."""

import hashlib
import os
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import IO

from foldcli.params.published import LICENCE_FILE
from msa.errors import InputError

Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_LICENCE_BYTES = 1 << 20
"""A licence is not larger."""


def digests(path: Path, progress: Progress) -> tuple[str, bytes]:
    """SHA-256 (hex) and MD5 of a file; progress is told bytes done and in all."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    total, done = path.stat().st_size, 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            sha256.update(chunk)
            md5.update(chunk)
            done += len(chunk)
            progress(done, total)
    return sha256.hexdigest(), md5.digest()


def unpack(
    archive: Path,
    wanted: Collection[str],
    folder: Path,
    check_room: Callable[[int], None],
    progress: Progress,
) -> dict[str, tuple[int, str]]:
    """Take files and the licence out of an archive; what else is in it stays there.

    Args:
        archive: an uncompressed tar with files at its top, in `./` or in `params/`.
        wanted: names of the files.
        folder: where they go.
        check_room: called with the bytes that will be written; raises where there is no room for them.
        progress: called with bytes written and to be written.

    Returns:
        Size and SHA-256 (hex) of each file wanted, by name.

    Raises:
        InputError: no tar, a damaged one, one without a file that is wanted, or one with a path that leads
            out of it or a link or device in the place of a file.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            members = _members(tar, archive)
            if missing := [name for name in wanted if name not in members]:
                raise InputError(f"the archive has no {', '.join(missing)}", archive)
            chosen = {name: members[name] for name in (*wanted, LICENCE_FILE) if name in members}
            total, done = sum(member.size for member in chosen.values()), 0
            check_room(total)
            made: dict[str, tuple[int, str]] = {}
            for name, member in sorted(chosen.items(), key=lambda entry: entry[1].offset):
                source = tar.extractfile(member)
                assert source is not None  # a plain file has content
                before = done
                sha256 = _copy(source, folder / name, lambda n, b=before: progress(b + n, total))  # type: ignore[misc]
                done += member.size
                if name != LICENCE_FILE:
                    made[name] = member.size, sha256
            return made
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"no tar archive, or a damaged one ({error})", archive) from error


def _members(tar: tarfile.TarFile, archive: Path) -> dict[str, tarfile.TarInfo]:
    """The plain files at the top of an archive, by name."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"the archive has the path {member.name!r}, which leads out of it", archive)
        if member.isdir():
            continue
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise InputError(f"in the archive {member.name!r} is no plain file", archive)
        parts = path.parts[1:] if path.parts[:1] == ("params",) else path.parts
        if len(parts) != 1:
            continue
        if parts[0] in members:
            raise InputError(f"the archive has {parts[0]} twice", archive)
        if parts[0] == LICENCE_FILE and member.size > _LICENCE_BYTES:
            raise InputError(f"in the archive {member.name!r} has {member.size:,} bytes", archive)
        members[parts[0]] = member
    return members


def _copy(source: IO[bytes], path: Path, progress: Callable[[int], None]) -> str:
    """Write a new file, on the disk when this returns; its SHA-256 (hex)."""
    digest, done = hashlib.sha256(), 0
    with path.open("xb") as stream:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            stream.write(chunk)
            done += len(chunk)
            progress(done)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()
