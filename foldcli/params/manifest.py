"""Facts about DeepMind's parameter archive, and parameters.json, the record of what was unpacked from it.

This module imports nothing heavy: the `params` command shows these facts in its help.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foldcli.version import VERSION
from msa.errors import InputError
from msa.io.atomic import atomic_write

# published in December 2022; ColabFold uses the same files
ARCHIVE_URL = "https://storage.googleapis.com/alphafold/alphafold_params_2022-12-06.tar"
LICENCE = "CC BY 4.0"
LICENCE_FILE = "LICENSE"
NOTICE = """\
AlphaFold2's parameters are (c) DeepMind Technologies Limited, under the Creative Commons Attribution 4.0
International licence (CC BY 4.0), https://creativecommons.org/licenses/by/4.0/legalcode, without warranty.
Cite: Jumper et al., Highly accurate protein structure prediction with AlphaFold, Nature 596, 583 (2021).
"""
_SUFFIXES: dict[str, tuple[str, ...]] = {"ptm": ("_ptm",), "monomer": ("",), "all": ("_ptm", "")}

MANIFEST_FILE = "parameters.json"
FORMAT_VERSION = 1


def networks_by_file(which: str, numbers: Sequence[int]) -> dict[str, str]:
    """Return network names by the names of their files in the archive.

    Args:
        which: "ptm", networks with a head for the predicted aligned error; "monomer", without; or "all".
        numbers: model numbers, 1 to 5.
    """
    names = [f"model_{number}{suffix}" for suffix in _SUFFIXES[which] for number in numbers]
    return {f"params_{name}.npz": name for name in names}


@dataclass(frozen=True)
class FileRecord:
    """One unpacked file.

    Args:
        bytes: its size.
        sha256: SHA-256 of its content, hex.
        archive: SHA-256 of the archive that it came from, hex.
    """

    bytes: int
    sha256: str
    archive: str


@dataclass(frozen=True)
class ArchiveRecord:
    """The archive that files were unpacked from.

    Args:
        source: URL or path.
        bytes: its size.
        sha256: SHA-256 of the whole archive, hex, computed on this machine.
        compared: the checksum that the archive was verified against: "sha256 given", "md5 of the server", or
            "" if there was none.
        unpacked: time of unpacking, UTC, ISO 8601.
        unpacked_by: version of foldcli.
    """

    source: str
    bytes: int
    sha256: str
    compared: str
    unpacked: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    unpacked_by: str = VERSION


@dataclass(frozen=True)
class ParameterManifest:
    """The content of a folder's parameters.json.

    Args:
        files: unpacked files, by name.
        archives: archives that they came from, by SHA-256.
    """

    files: dict[str, FileRecord] = field(default_factory=dict)
    archives: dict[str, ArchiveRecord] = field(default_factory=dict)

    def with_unpacked(self, files: dict[str, FileRecord], archive: ArchiveRecord) -> "ParameterManifest":
        """Return a manifest with the files of an archive added, and unused archives removed."""
        all_files = self.files | files
        used = {record.archive for record in all_files.values()}
        archives = self.archives | {archive.sha256: archive}
        used_archives = {sha256: record for sha256, record in archives.items() if sha256 in used}
        return ParameterManifest(all_files, used_archives)

    def write(self, folder: Path) -> None:
        """Write parameters.json into a folder, atomically."""
        content: dict[str, Any] = {"format_version": FORMAT_VERSION, "licence": LICENCE} | asdict(self)
        with atomic_write(folder / MANIFEST_FILE) as stream:
            json.dump(content, stream, indent=2)
            stream.write("\n")


def read_manifest(folder: Path) -> ParameterManifest:
    """Read a folder's parameters.json; return an empty manifest if there is none.

    Raises:
        InputError: the file is not a manifest of a known version.
    """
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"unknown format version {content['format_version']}", path)
        return ParameterManifest(
            {name: FileRecord(**record) for name, record in content["files"].items()},
            {sha256: ArchiveRecord(**record) for sha256, record in content["archives"].items()},
        )
    except FileNotFoundError:
        return ParameterManifest()
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"not a parameter manifest, or a damaged one ({error})", path) from error
