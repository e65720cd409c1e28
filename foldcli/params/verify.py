"""Whether parameter files are what they were when they were unpacked, and what a network needs."""

import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foldcli.params.archive import digests
from foldcli.params.manifest import FileRecord, read_manifest
from foldcli.params.parameters import ParameterSource
from model.errors import ParametersError

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Verified:
    """What became of one file's check.

    Args:
        file: its path.
        problem: what is wrong with it, or "".
        checked: by what it was found right: "sha256" of the manifest, or "crc32" of its own arrays where
            no manifest has it.
    """

    file: Path
    problem: str
    checked: str


def verify(sources: Sequence[ParameterSource], progress: Progress) -> list[Verified]:
    """Check files by keys, shapes and types, and every byte by a checksum.

    Args:
        sources: the files.
        progress: called with bytes read and bytes in all.

    Raises:
        InputError: a folder's manifest cannot be understood.
    """
    files = [(source.file, source.config_name) for source in sources if source.file is not None]
    total, done, results = sum(file.stat().st_size for file, _ in files), 0, []
    for file, network in files:
        record = read_manifest(file.parent).files.get(file.name)
        problem = problem_of(file, network) or _differs(file, record, done, total, progress)
        results.append(Verified(file, problem, "crc32" if record is None else "sha256"))
        done += file.stat().st_size
        progress(done, total)
    return results


def problem_of(file: Path, network: str) -> str:
    """What is wrong with a file by its keys, shapes and types, without its path; "" if nothing is."""
    from model.config import model_config
    from model.parameters import check_npz

    try:
        check_npz(file, model_config(network))
    except ParametersError as error:
        return error.reason
    return ""


def damaged_array(file: Path) -> str:
    """The first array of an npz file whose bytes are not those that its CRC-32 was made of; "" if none."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() or ""
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return str(error)


def _differs(file: Path, record: FileRecord | None, done: int, total: int, progress: Progress) -> str:
    if record is None:
        damaged = damaged_array(file)
        return f"the bytes of {damaged} are damaged" if damaged else ""
    if (size := file.stat().st_size) != record.bytes:
        return f"has {size:,} bytes instead of the {record.bytes:,} that were unpacked"
    sha256, _ = digests(file, lambda now, _: progress(done + now, total))
    if sha256 != record.sha256:
        return f"its SHA-256 is {sha256} instead of the {record.sha256} that was unpacked"
    return ""
