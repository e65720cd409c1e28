"""Import and download of OpenFold3's parameters.

A checkpoint is converted once to safetensors, which are mapped into memory, next to a manifest with its
origin. Only tensors are read from a checkpoint's pickle; anything else in it is refused.
"""

from pathlib import Path

from foldcli.inputs.names import file_safe_name
from foldcli.logs import logger
from foldcli.params.download import PartialFile, check_disk_space, download
from foldcli.params.fetch import WORK_FOLDER, locked_work_folder
from foldcli.params.openfold3 import (
    CHECKPOINT_SUFFIX,
    PUBLISHED,
    REMEDY,
    SUFFIX,
    AllAtomParameters,
    parameters_name,
    write_manifest,
)
from foldcli.paths import make_writable_folder
from model.checkpoints.openfold3 import convert_checkpoint
from model.errors import ParametersError, ParametersMissing
from msa.base.digests import file_sha256


def import_parameters(path: Path, folder: Path, sha256: str | None = None) -> AllAtomParameters:
    """Convert a checkpoint to safetensors in a folder, with a manifest.

    The network is recognised by its tensors. A file with the name of a published one must have its SHA-256,
    as far as that is known.

    Args:
        path: a checkpoint (`.pt`), safetensors of the same tensors, or DeepMind's `af3.bin.zst`.
        folder: folder for the safetensors NAME.safetensors and the manifest NAME.json.
        sha256: SHA-256 that the checkpoint must have (hex), or None.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: the file is damaged, has another SHA-256, contains more than tensors, or has those
            of another network; nothing is written.
        MissingError: the disk has too little space.
    """
    if not path.is_file():
        raise ParametersMissing(f"{path}: no such file", REMEDY)
    make_writable_folder(folder)
    check_disk_space(folder, path.stat().st_size)
    name = file_safe_name(parameters_name(path))
    return _convert(path, path.name, folder, name, sha256)


def fetch_parameters(
    name: str,
    folder: Path,
    url: str | None = None,
    sha256: str | None = None,
    retries: int = 5,
) -> AllAtomParameters:
    """Download a published checkpoint and import it; an unfinished download is resumed.

    Args:
        name: a key of PUBLISHED.
        folder: see `import_parameters`.
        url: address of a mirror; None for the authors' bucket.
        sha256: see `import_parameters`.
        retries: see `Download`.

    Raises:
        Unreachable: the file cannot be downloaded.
        ParametersError: the file is not the expected one; the download is removed.
        MissingError: the disk has too little space, or another process fetches into the folder.
    """
    published = PUBLISHED[name]
    if published.sha256 is None and sha256 is None:
        logger.warning("the SHA-256 of %s is not known: it is not compared", f"{name}{CHECKPOINT_SUFFIX}")
    make_writable_folder(folder)
    work = folder / WORK_FOLDER
    with locked_work_folder(work):
        path = work / f"{name}{CHECKPOINT_SUFFIX}"
        # the file exists if the conversion of an earlier call was interrupted
        if url is not None or not path.is_file():
            part = PartialFile(path.with_name(f"{path.name}.part"))
            # the safetensors are written next to the whole download
            check_space = lambda remaining: check_disk_space(folder, 2 * remaining)  # noqa: E731
            download(url or published.url, part, check_space, retries)
            part.path.replace(path)
            part.remove()
        try:
            result = _convert(path, path.name, folder, name, sha256)
        except ParametersError as error:
            path.unlink()
            reason = f"{error.reason}; the download was removed"
            raise ParametersError(reason, url or published.url) from None
        path.unlink()
    return result


def _convert(path: Path, source: str, folder: Path, name: str, sha256: str | None) -> AllAtomParameters:
    """Check and convert a checkpoint; see `import_parameters`."""
    found = file_sha256(path)
    published = PUBLISHED.get(name) if source == f"{name}{CHECKPOINT_SUFFIX}" else None
    expected = sha256 or (published.sha256 if published is not None else None)
    if expected is not None and found != expected.lower():
        origin = "given" if sha256 else "published"
        raise ParametersError(f"its SHA-256 is {found}; the one {origin} is {expected}", path)
    target = folder / f"{name}{SUFFIX}"
    config = convert_checkpoint(path, target)
    checked = "" if expected is None else "SHA-256 given" if sha256 else "SHA-256 published"
    size, target_sha256 = target.stat().st_size, file_sha256(target)
    result = AllAtomParameters(name, config.variant, target, source, found, checked, size, target_sha256)
    write_manifest(result)
    return result
