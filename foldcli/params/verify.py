"""Checks of parameter files: keys, shapes and types against the network, and bytes against checksums."""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from pathlib import Path

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
from msa.base.digests import json_sha256


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


def verify(sources: Sequence[ParameterSource | AllAtomParameters], progress: Progress) -> list[VerifiedFile]:
    """Verify keys, shapes, types and every byte of parameter files.

    Args:
        sources: the files.
        progress: called with (bytes read, bytes in total).

    Raises:
        InputError: a folder's manifest cannot be read.
    """
    files = [(source, source.file) for source in sources if source.file is not None]
    total, done, results = sum(file.stat().st_size for _, file in files), 0, []
    for source, file in files:

        def update(read: int, _: int | None, before: int = done) -> None:
            progress(before + read, total)

        results.append(_verify_file(source, file, update))
        done += file.stat().st_size
        progress(done, total)
    return results


def _verify_file(source: ParameterSource | AllAtomParameters, file: Path, progress: Progress) -> VerifiedFile:
    """Verify one file; call `progress` with (bytes read, bytes in total)."""
    record, kind = None, "none"
    if isinstance(source, AllAtomParameters):
        if source.sha256:
            record = FileRecord(source.bytes, source.sha256, source.source_sha256)
        problem = _problem_of(partial(_read_all_atom, file))
    else:
        record, kind = read_manifest(file.parent).files.get(file.name), "crc32"
        problem = find_problem(file, source.config)
        if record is None:
            problem = problem or find_damaged_bytes(file, source.config)
    if record is not None:
        kind, problem = "sha256", problem or _find_difference(file, record, progress)
    return VerifiedFile(file, problem, kind)


def _read_all_atom(file: Path) -> None:
    from model.checkpoints.openfold3 import read_checkpoint  # imports torch

    read_checkpoint(file)


def _problem_of(check: Callable[[], object]) -> str:
    """Return the reason of the error that a check raises; "" if it raises none."""
    try:
        check()
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
        return json_sha256(content)
    if source.file is None:
        return source.config_name
    digest = check_npz(source.file, source.config)
    return digest if source.architecture is None else json_sha256([digest, asdict(source.architecture)])


def find_problem(file: Path, config: ModelConfig) -> str:
    """Return a description of wrong keys, shapes or types in a network's file, without its path; else ""."""
    return _problem_of(partial(check_npz, file, config))


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
