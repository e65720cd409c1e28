"""Checks of parameter files: keys, shapes and types against the network, and bytes against checksums."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from foldcli.params.archive import file_digests
from foldcli.params.manifest import FileRecord, read_manifest
from foldcli.params.openfold3 import AllAtomParameters
from foldcli.params.parameters import ParameterSource
from foldcli.progress import Progress
from model.alphafold2.modules.config import ModelConfig, model_config
from model.checkpoints.alphafold2 import check_npz, expected_shapes
from model.checkpoints.deepmind import foreign_bytes, parameter_errors
from model.checkpoints.network_folder import read_weights_file
from model.errors import ParametersError


@dataclass(frozen=True)
class VerifiedFile:
    """The verification result of one file.

    Args:
        problem: description of the damage, or "" if there is none.
        checksum_kind: "sha256" if the file was compared with its manifest, "crc32" if no manifest lists it
            and its arrays were compared with their own checksums, "none" if there are no checksums.
    """

    file: Path
    problem: str
    checksum_kind: str


@dataclass(frozen=True)
class _Check:
    """A file to verify.

    Args:
        record: its checksum; None if no manifest has it.
        find_problem: returns wrong keys, shapes or types in words; "" if there are none.
        find_damaged_bytes: as `find_problem`, for bytes of a file without a record; None if they have no
            checksums.
    """

    file: Path
    record: FileRecord | None
    find_problem: Callable[[], str]
    find_damaged_bytes: Callable[[], str] | None = None

    @property
    def checksum_kind(self) -> str:
        """See `VerifiedFile`."""
        if self.record is not None:
            return "sha256"
        return "none" if self.find_damaged_bytes is None else "crc32"

    def run(self, progress: Progress) -> VerifiedFile:
        """Verify the file."""
        problem = self.find_problem()
        if not problem and self.record is not None:
            problem = _find_difference(self.file, self.record, progress)
        elif not problem and self.find_damaged_bytes is not None:
            problem = self.find_damaged_bytes()
        return VerifiedFile(self.file, problem, self.checksum_kind)


def verify(sources: Sequence[ParameterSource | AllAtomParameters], progress: Progress) -> list[VerifiedFile]:
    """Verify keys, shapes, types and every byte of parameter files.

    Args:
        sources: the files.
        progress: called with (bytes read, bytes in total).

    Raises:
        InputError: a folder's manifest cannot be read.
    """
    checks = [check for source in sources if (check := _check_of(source)) is not None]
    total, done, results = sum(check.file.stat().st_size for check in checks), 0, []
    for check in checks:

        def update(read: int, _: int | None, before: int = done) -> None:
            progress(before + read, total)

        results.append(check.run(update))
        done += check.file.stat().st_size
        progress(done, total)
    return results


def _check_of(source: ParameterSource | AllAtomParameters) -> _Check | None:
    """Return the check of a file; None for parameters without one."""
    if isinstance(source, AllAtomParameters):
        record = FileRecord(source.bytes, source.sha256, source.source_sha256) if source.sha256 else None
        return _Check(source.file, record, partial(_find_all_atom_problem, source.file))
    if source.file is None:
        return None
    file, config = source.file, source.config
    record = read_manifest(file.parent).files.get(file.name)
    return _Check(
        file, record, partial(find_problem, file, config), partial(find_damaged_bytes, file, config)
    )


def _find_all_atom_problem(file: Path) -> str:
    from model.checkpoints.openfold3 import read_checkpoint  # imports torch

    try:
        read_checkpoint(file)
    except ParametersError as error:
        return error.reason
    return ""


def content_hash(source: ParameterSource) -> str:
    """Return a hash of the content of a model's parameters, after checking the keys and shapes of their file.

    Raises:
        ParametersError: the file cannot be used; names the file and the problem.
    """
    if source.folder is not None and source.manifest is not None:
        read_weights_file(source.folder, source.manifest)
        manifest = source.manifest
        content = [manifest.sha256, asdict(manifest.config), asdict(manifest.inputs)]
        if manifest.plddt_shift:
            content.append({"plddt_shift": manifest.plddt_shift})
        return _hash_of(content)
    if source.file is None:
        return source.config_name
    digest = check_npz(source.file, source.config)
    return digest if source.architecture is None else _hash_of([digest, asdict(source.architecture)])


def _hash_of(content: list[Any]) -> str:
    """Return the SHA-256 (hex) of values that JSON can store."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def find_problem(file: Path, config: ModelConfig) -> str:
    """Return a description of wrong keys, shapes or types in a network's file, without its path; else ""."""
    try:
        check_npz(file, config)
    except ParametersError as error:
        return error.reason
    return ""


def find_damaged_bytes(file: Path, config: ModelConfig) -> str:
    """Return a description of the first damage to a parameter file, without its path; "" if there is none.

    Each array must match its CRC-32, and every byte must belong to an array or to the zip file's directory.
    """
    try:
        with parameter_errors(file, config.name):
            with zipfile.ZipFile(file) as archive:
                if damaged := archive.testzip():
                    return f"the bytes of {damaged} are damaged"
            if count := foreign_bytes(file):
                return f"{count:,} bytes belong to no array"
    except ParametersError as error:
        return error.reason
    return ""


def parameter_bytes(network: str) -> int:
    """Return the size of a network's parameters in bytes, as float32."""
    return 4 * sum(prod(shape) for shape in expected_shapes(model_config(network)).values())


def _find_difference(file: Path, record: FileRecord, progress: Progress) -> str:
    """Return a description of the difference between a file and its record; "" if there is none."""
    if (size := file.stat().st_size) != record.bytes:
        return f"has {size:,} bytes instead of the {record.bytes:,} that were written"
    sha256, _ = file_digests(file, progress)
    if sha256 != record.sha256:
        return f"its SHA-256 is {sha256} instead of the {record.sha256} that was written"
    return ""
