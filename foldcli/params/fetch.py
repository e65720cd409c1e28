"""Fetching of parameter files: from an archive, local or remote, to verified files in their folder."""

import base64
import contextlib
import fcntl
import functools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foldcli.logs import logger
from foldcli.params.archive import file_digests, unpack
from foldcli.params.download import PartialFile, check_disk_space, download
from foldcli.params.manifest import ArchiveRecord, FileRecord, read_manifest
from foldcli.params.parameters import LICENCE_FILE, NOTICE, installed_parameters, networks_by_file
from foldcli.params.verify import find_damaged_bytes, find_problem, parameter_bytes
from foldcli.paths import make_writable_folder
from foldcli.progress import progress_bar
from model.alphafold2.modules.config import model_config
from msa.base.errors import InputError, MissingError

# subfolder for unfinished files, on the file system of the final ones so that these can be renamed
WORK_FOLDER = ".fetch"
_UNPACKED_PREFIX = "unpacked-"


@dataclass(frozen=True)
class FetchSettings:
    """Parameters to fetch, and their source.

    Args:
        local_archive: archive on this machine to read instead of the URL, or None.
        sha256: SHA-256 that the archive must have (hex), or None.
        overwrite: also replace existing files that are valid.
    """

    folder: Path
    which: str
    numbers: tuple[int, ...]
    url: str
    local_archive: Path | None
    sha256: str | None
    retries: int
    overwrite: bool


def fetch(settings: FetchSettings) -> list[Path]:
    """Fetch the parameter files that a folder lacks.

    A file gets its final name only when it is complete and its keys, shapes and checksums are right. An
    incomplete download is kept, and the next call resumes it; a download with wrong content is removed.

    Returns:
        The files that were written; empty if none was missing.

    Raises:
        Unreachable: the archive cannot be downloaded; see Download.
        InputError: the archive is not the expected one.
        MissingError: the disk has too little space, or another process is fetching into the same folder.
    """
    networks = networks_by_file(settings.which, settings.numbers)
    usable = set() if settings.overwrite else _usable_networks(settings.folder)
    missing = {name: network for name, network in networks.items() if network not in usable}
    if not missing:
        return []
    make_writable_folder(settings.folder)
    manifest = read_manifest(settings.folder)
    work = settings.folder / WORK_FOLDER
    with locked_work_folder(work):
        partial_file = PartialFile(work / "archive.tar.part")
        path, record = _get_archive(settings, partial_file, missing)
        unpacked = _install(settings, partial_file, path, missing)
        files = {name: FileRecord(size, sha256, record.sha256) for name, (size, sha256) in unpacked.items()}
        manifest.with_unpacked(files, record).write(settings.folder)
        partial_file.remove()
    return [settings.folder / name for name in missing]


def _usable_networks(folder: Path) -> set[str]:
    """Return the networks for which a folder has a usable parameter file."""
    networks = set()
    for source in installed_parameters(folder):
        assert source.file is not None
        if problem := find_problem(source.file, source.config):
            logger.warning("%s cannot be used (%s); it will be replaced", source.file, problem)
        else:
            networks.add(source.config_name)
    return networks


def _get_archive(
    settings: FetchSettings, partial_file: PartialFile, missing: dict[str, str]
) -> tuple[Path, ArchiveRecord]:
    """Download the archive unless it is local, and compare it with its known checksums."""
    if settings.local_archive is not None:
        path, source, md5 = settings.local_archive, str(settings.local_archive), None
    else:

        def check_space(remaining: int) -> None:
            check_disk_space(settings.folder, remaining + sum(map(parameter_bytes, missing.values())))

        remote = download(settings.url, partial_file, check_space, settings.retries)
        path, source, md5 = partial_file.path, settings.url, remote.md5
    with progress_bar("checking", "B") as progress:
        sha256, computed_md5 = file_digests(path, progress)
    problem = ""
    if settings.sha256 not in (None, sha256):
        problem = f"its SHA-256 is {sha256} instead of {settings.sha256}"
    elif md5 is not None and md5 != base64.b64encode(computed_md5).decode():
        problem = f"its MD5 is not the one that the server states ({md5})"
    if problem:
        raise _discard_archive(settings, partial_file, problem)
    checked_against = "sha256 given" if settings.sha256 else "md5 of the server" if md5 is not None else ""
    return path, ArchiveRecord(source, path.stat().st_size, sha256, checked_against)


def _discard_archive(settings: FetchSettings, partial_file: PartialFile, reason: str) -> InputError:
    """Remove a downloaded archive that cannot be used, and return the error to raise."""
    if settings.local_archive is not None:
        return InputError(f"{reason}; nothing was unpacked", settings.local_archive)
    partial_file.remove()
    return InputError(f"{reason}; nothing was unpacked, and the download was removed", settings.url)


def _install(
    settings: FetchSettings,
    partial_file: PartialFile,
    archive: Path,
    missing: dict[str, str],
) -> dict[str, tuple[int, str]]:
    """Unpack into a temporary folder, check every file, then rename them; return size and SHA-256 of each."""
    with tempfile.TemporaryDirectory(prefix=_UNPACKED_PREFIX, dir=partial_file.path.parent) as temporary:
        folder = Path(temporary)
        try:
            with progress_bar("unpacking", "B") as progress:
                check_space = functools.partial(check_disk_space, settings.folder)
                unpacked = unpack(archive, missing, folder, check_space, progress)
            for name, network in missing.items():
                _check_file(folder / name, network)
        except InputError as error:
            raise _discard_archive(settings, partial_file, error.reason) from error
        if not (folder / LICENCE_FILE).is_file():
            (folder / LICENCE_FILE).write_text(NOTICE, encoding="utf-8")
        for name in (*missing, LICENCE_FILE):
            (folder / name).replace(settings.folder / name)
    return unpacked


def _check_file(file: Path, network: str) -> None:
    """Check that an unpacked file has a network's parameters and is undamaged."""
    config = model_config(network)
    if problem := find_problem(file, config) or find_damaged_bytes(file, config):
        raise InputError(f"in the archive, {file.name}: {problem}")


@contextlib.contextmanager
def locked_work_folder(work: Path) -> Iterator[None]:
    """Create and lock the folder for unfinished files; remove it afterwards unless it holds a download.

    Raises:
        MissingError: another process has locked it.
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
            # some cluster file systems have no locks
            pass
        try:
            for abandoned in work.glob(f"{_UNPACKED_PREFIX}*"):  # by processes that were killed
                shutil.rmtree(abandoned, ignore_errors=True)
            yield
        finally:
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                work.rmdir()
