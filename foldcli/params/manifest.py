"""A folder's parameters.json: the archives that its parameter files came from, and unusual architectures."""

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from foldcli.version import VERSION
from model.alphafold2.modules.config import ModelConfig
from model.dataclass_mapping import from_mapping
from model.errors import ConfigError
from msa.base.errors import InputError
from msa.base.json_files import read_json, to_record, write_json

LICENCE = "CC BY 4.0"
MANIFEST_FILE = "parameters.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class FileRecord:
    """One unpacked file.

    Args:
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
        sha256: SHA-256 of the whole archive, hex, computed on this machine.
        compared: the checksum that the archive was compared with: "sha256 given", "md5 of the server", or ""
            for none.
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
        archives: archives that they came from, by SHA-256.
        architectures: architectures of files that do not have those of the published networks, by name.
    """

    files: dict[str, FileRecord] = field(default_factory=dict)
    archives: dict[str, ArchiveRecord] = field(default_factory=dict)
    architectures: dict[str, ModelConfig] = field(default_factory=dict)

    def with_unpacked(self, files: dict[str, FileRecord], archive: ArchiveRecord) -> "ParameterManifest":
        """Return a manifest with the files of an archive added, and archives without files removed."""
        all_files = self.files | files
        used_sha256s = {record.archive for record in all_files.values()}
        archives = self.archives | {archive.sha256: archive}
        used_archives = {sha256: record for sha256, record in archives.items() if sha256 in used_sha256s}
        # unpacked files have the architectures of the published networks
        other = {name: config for name, config in self.architectures.items() if name not in files}
        return ParameterManifest(all_files, used_archives, other)

    def write(self, folder: Path) -> None:
        """Write parameters.json into a folder, atomically."""
        content: dict[str, Any] = {"format_version": FORMAT_VERSION, "licence": LICENCE} | asdict(self)
        if not self.files:
            del content["licence"]  # that of DeepMind's files
        if not self.architectures:
            del content["architectures"]
        write_json(folder / MANIFEST_FILE, content, indent=2)


def read_manifest(folder: Path) -> ParameterManifest:
    """Read a folder's parameters.json; return an empty manifest if there is none.

    Raises:
        InputError: the file is not a manifest of a known version.
    """
    path = folder / MANIFEST_FILE
    try:
        content = read_json(path)
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"unknown format version {content['format_version']}", path)
        architectures = content.pop("architectures", {})
        return replace(
            to_record(content, ParameterManifest),
            architectures={name: _architecture(name, config) for name, config in architectures.items()},
        )
    except FileNotFoundError:
        return ParameterManifest()
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, ConfigError) as error:
        raise InputError(f"not a parameter manifest, or a damaged one ({error})", path) from error


def _architecture(name: str, content: Any) -> ModelConfig:
    """Return the architecture of a file, given its entry in the manifest."""
    config = from_mapping(ModelConfig, content, name)
    if (config.multimer is not None) != ("_multimer" in name):
        raise ConfigError(f"{name}: the architecture of a network of another kind")
    return config
