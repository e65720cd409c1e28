"""From an archive, here or on a server, to parameter files that are whole, checked and in their place."""

import base64
import contextlib
import fcntl
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from foldcli.params import archive as archives
from foldcli.params.download import Download
from foldcli.params.manifest import ArchiveRecord, FileRecord, read_manifest
from foldcli.params.parameters import installed
from foldcli.params.part import Part
from foldcli.params.published import LICENCE_FILE, NOTICE, networks_by_file, parameter_bytes
from foldcli.params.verify import damaged_array, problem_of
from foldcli.paths import make_writable_folder
from msa.errors import InputError, MissingError

Progress = Callable[[int, int | None], None]

_WORK = ".fetch"
"""What is unfinished lies here, on the file system on which it will be renamed."""

_UNPACKED = "unpacked-"

_SLACK = 64 << 20
"""Room that is left to others."""


@dataclass(frozen=True)
class FetchSettings:
    """What to fetch, and from where.

    Args:
        folder: where the files go.
        which: "ptm", "monomer" or "all"; see published.networks_by_file.
        numbers: of models.
        url: of the archive.
        local: an archive on this machine, in place of the URL.
        sha256: that the archive must have (hex), or None.
        retries: see Download.
        overwrite: whether files that are there and right are made anew.
    """

    folder: Path
    which: str
    numbers: tuple[int, ...]
    url: str
    local: Path | None
    sha256: str | None
    retries: int
    overwrite: bool


@dataclass(frozen=True)
class Ui:
    """How fetching is told.

    Args:
        say: a line that everyone may want to read.
        bar: a progress bar of bytes with a title.
    """

    say: Callable[[str], None]
    bar: Callable[[str], AbstractContextManager[Progress]]


def fetch(settings: FetchSettings, ui: Ui) -> list[Path]:
    """Have parameter files in a folder.

    Until a file has its name it is complete, and has the keys, shapes and checksums it should have. What
    was downloaded stays, to be gone on with, unless it is found to be wrong.

    Returns:
        The files that were made; none if all were there.

    Raises:
        Unreachable: the archive cannot be had; see Download.
        InputError: it is not the archive that it should be.
        MissingError: no room on the disk, or another process fetches into the same folder.
        OSError: the folder cannot be written.
    """
    networks = networks_by_file(settings.which, settings.numbers)
    there = set() if settings.overwrite else _usable(settings.folder, ui)
    wanted = {name: network for name, network in networks.items() if network not in there}
    if not wanted:
        return []
    make_writable_folder(settings.folder)
    manifest = read_manifest(settings.folder)
    work = settings.folder / _WORK
    with _alone_in(work):
        part = Part(work / "archive.tar.part")
        path, record = _have_archive(settings, part, wanted, ui)
        unpacked = _put_in_place(settings, part, path, wanted, ui)
        files = {name: FileRecord(size, sha256, record.sha256) for name, (size, sha256) in unpacked.items()}
        manifest.with_unpacked(files, record).write(settings.folder)
        part.remove()
    return [settings.folder / name for name in wanted]


def _usable(folder: Path, ui: Ui) -> set[str]:
    """The networks of which a folder has parameters that could be used."""
    networks = set()
    for source in installed(folder):
        assert source.file is not None
        if problem := problem_of(source.file, source.config_name):
            ui.say(f"{source.file} is there but cannot be used ({problem}); it will be made anew")
        else:
            networks.add(source.config_name)
    return networks


def _have_archive(
    settings: FetchSettings, part: Part, wanted: dict[str, str], ui: Ui
) -> tuple[Path, ArchiveRecord]:
    """The archive on this machine, compared with what is known of it."""
    if settings.local is not None:
        path, source, md5 = settings.local, str(settings.local), None
    else:

        def check_room(coming: int) -> None:
            _check_room(settings.folder, coming + sum(map(parameter_bytes, wanted.values())))

        with ui.bar("downloading") as progress:
            download = Download(settings.url, part, check_room, ui.say, progress, settings.retries)
            version = download.run()
        path, source, md5 = part.path, settings.url, version.md5
    with ui.bar("checking") as progress:
        sha256, own_md5 = archives.digests(path, progress)
    wrong = ""
    if settings.sha256 not in (None, sha256):
        wrong = f"its SHA-256 is {sha256} instead of {settings.sha256}"
    elif md5 is not None and md5 != base64.b64encode(own_md5).decode():
        wrong = f"its MD5 is not the one that the server states ({md5})"
    if wrong:
        raise _wrong(settings, part, wrong)
    compared = "sha256 given" if settings.sha256 else "md5 of the server" if md5 is not None else ""
    return path, ArchiveRecord(source, path.stat().st_size, sha256, compared)


def _wrong(settings: FetchSettings, part: Part, reason: str) -> InputError:
    """The error for an archive that cannot be used; what was downloaded of it goes."""
    if settings.local is not None:
        return InputError(f"{reason}; nothing was unpacked", settings.local)
    part.remove()
    return InputError(f"{reason}; nothing was unpacked, and the download was removed", settings.url)


def _put_in_place(
    settings: FetchSettings, part: Part, archive: Path, wanted: dict[str, str], ui: Ui
) -> dict[str, tuple[int, str]]:
    """Unpack beside, check, and only then give the files their names; size and SHA-256 of each."""
    with tempfile.TemporaryDirectory(prefix=_UNPACKED, dir=part.path.parent) as made:
        folder = Path(made)
        try:
            with ui.bar("unpacking") as progress:
                room = functools.partial(_check_room, settings.folder)
                unpacked = archives.unpack(archive, wanted, folder, room, progress)
            for name, network in wanted.items():
                _check_file(folder / name, network)
        except InputError as error:
            raise _wrong(settings, part, error.reason) from error
        if not (folder / LICENCE_FILE).is_file():
            (folder / LICENCE_FILE).write_text(NOTICE, encoding="utf-8")
        for name in (*wanted, LICENCE_FILE):
            (folder / name).replace(settings.folder / name)
    return unpacked


def _check_file(file: Path, network: str) -> None:
    """Whether an unpacked file holds a network's parameters, every array as it was written.

    Raises:
        InputError: it does not.
    """
    if problem := problem_of(file, network):
        raise InputError(f"in the archive {file.name}: {problem}")
    if damaged := damaged_array(file):
        raise InputError(f"in the archive {file.name}: the bytes of {damaged} are damaged")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + _SLACK > free:
        raise MissingError(
            f"{folder}: {needed / 1e9:,.1f} GB are needed on the disk, for the download and unpacked files, "
            f"and {free / 1e9:,.1f} GB are free",
            "Make room, or name a folder on another disk with --dest.",
        )


@contextlib.contextmanager
def _alone_in(work: Path) -> Iterator[None]:
    """Have a working folder to oneself; it is gone afterwards unless a part of a download lies in it.

    Raises:
        MissingError: another process has it.
    """
    work.mkdir(exist_ok=True)
    lock = work / "lock"
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MissingError(
                f"another process is fetching into {work.parent}",
                "Wait for it, or name another folder with --dest.",
            ) from error
        except OSError:
            # some file systems of clusters have no locks
            pass
        try:
            # of runs that were killed
            for left in work.glob(f"{_UNPACKED}*"):
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                work.rmdir()
