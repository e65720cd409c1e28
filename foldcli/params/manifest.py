"""parameters.json: what was unpacked into a folder, from where, with the checksums taken then."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foldcli.params.published import LICENCE
from foldcli.version import VERSION
from msa.errors import InputError
from msa.io.atomic import atomic_write

NAME = "parameters.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class FileRecord:
    """One unpacked file.

    Args:
        bytes: its size.
        sha256: of its content, hex.
        archive: SHA-256 of the archive that it came from, hex.
    """

    bytes: int
    sha256: str
    archive: str


@dataclass(frozen=True)
class ArchiveRecord:
    """Where files came from.

    Args:
        source: URL or path.
        bytes: its size.
        sha256: of the whole, hex, as it was read here.
        compared: what that was compared with before anything was unpacked: "sha256 given", "md5 of the
            server", or "" where there was nothing to compare it with.
        unpacked: when, UTC, ISO 8601.
        unpacked_by: version of foldcli.
    """

    source: str
    bytes: int
    sha256: str
    compared: str
    unpacked: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    unpacked_by: str = VERSION


@dataclass(frozen=True)
class Manifest:
    """What a folder's files were when they were unpacked.

    Args:
        files: by name.
        archives: that they came from, by SHA-256.
    """

    files: dict[str, FileRecord] = field(default_factory=dict)
    archives: dict[str, ArchiveRecord] = field(default_factory=dict)

    def with_unpacked(self, files: dict[str, FileRecord], archive: ArchiveRecord) -> "Manifest":
        """With more files, of one archive, and without archives of which nothing is left."""
        all_files = self.files | files
        used = {record.archive for record in all_files.values()}
        archives = self.archives | {archive.sha256: archive}
        return Manifest(all_files, {sha256: one for sha256, one in archives.items() if sha256 in used})

    def write(self, folder: Path) -> None:
        content: dict[str, Any] = {"format_version": FORMAT_VERSION, "licence": LICENCE} | asdict(self)
        with atomic_write(folder / NAME) as stream:
            json.dump(content, stream, indent=2)
            stream.write("\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; an empty one where there is none.

    Raises:
        InputError: it cannot be understood.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"format version {content['format_version']} is not known here", path)
        return Manifest(
            {name: FileRecord(**record) for name, record in content["files"].items()},
            {sha256: ArchiveRecord(**record) for sha256, record in content["archives"].items()},
        )
    except FileNotFoundError:
        return Manifest()
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"no manifest of parameters, or a damaged one ({error})", path) from error
