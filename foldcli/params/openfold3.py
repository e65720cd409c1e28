"""Parameters of OpenFold3: where they come from, import of a checkpoint, and the files that runs find.

A checkpoint is converted once to safetensors, which are mapped into memory, next to a manifest with its
origin. Only tensors are read from a checkpoint's pickle; anything else in it is refused.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from foldcli.inputs.names import file_safe_name
from foldcli.params.download import Download, PartialFile
from foldcli.params.fetch import WORK_FOLDER, FetchReporter, check_disk_space, locked_work_folder
from foldcli.params.parameters import default_folder
from foldcli.paths import make_writable_folder
from model.alphafold3.config import OPENBIND, P2, SHA256
from model.errors import ParametersError, ParametersMissing
from msa.base.atomic import atomic_write
from msa.base.errors import MissingError

# value of --params for the parameters in `openfold3_folder()`
OPENFOLD3 = "openfold3"
_FORMAT, _FORMAT_VERSION = "foldcli all-atom parameters", 1
_SUFFIX, _CHECKPOINT_SUFFIX = ".safetensors", ".pt"
_BUCKET = "https://openfold3-data.s3.amazonaws.com/openfold3-parameters"
LICENCE = (
    "OpenFold3's parameters are under the Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0"
)


@dataclass(frozen=True)
class PublishedFile:
    """A checkpoint that OpenFold3's authors publish.

    Attributes:
        name: its name without suffix.
        variant: "openbind" or "p2", the two networks.
        sha256: its SHA-256, hex; None if it is not known here, and then a download is not compared.
    """

    name: str
    variant: str
    sha256: str | None

    @property
    def url(self) -> str:
        """Its address in the authors' bucket."""
        return f"{_BUCKET}/{self.name}{_CHECKPOINT_SUFFIX}"


PUBLISHED = {
    network.name: PublishedFile(network.name, variant, SHA256.get(network.name))
    for network, variant in ((OPENBIND, "openbind"), (P2, "p2"))
}
DEFAULT_NAME = OPENBIND.name
_REMEDY = (
    f"Get {DEFAULT_NAME}{_CHECKPOINT_SUFFIX} (1.4 GB, Apache License 2.0) from\n"
    f"{PUBLISHED[DEFAULT_NAME].url}\nor https://huggingface.co/OpenFold/OpenFold3, and name the file."
)


@dataclass(frozen=True)
class AllAtomParameters:
    """The parameters of an all-atom network in a file.

    Attributes:
        name: name of the parameters, such as of3-p2-155k.
        variant: "openbind" or "p2"; empty for a file without a manifest, whose tensors tell it when read.
        file: safetensors or checkpoint, for `model.checkpoints.openfold3.read_checkpoint`.
        source: name of the checkpoint that was imported; empty without a manifest.
        source_sha256: its SHA-256, hex; empty without a manifest.
        checked: what its SHA-256 was compared with; empty if with nothing.
    """

    name: str
    variant: str
    file: Path
    source: str = ""
    source_sha256: str = ""
    checked: str = ""


def import_parameters(path: Path, folder: Path, sha256: str | None = None) -> AllAtomParameters:
    """Convert a checkpoint to safetensors in a folder, with a manifest.

    The network is recognised by its tensors. A file with the name of a published one must have its SHA-256,
    as far as that is known.

    Args:
        path: a checkpoint (`.pt`), or safetensors of the same tensors.
        folder: folder for the safetensors NAME.safetensors and the manifest NAME.json.
        sha256: SHA-256 that the checkpoint must have (hex), or None.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: the file is damaged, has another SHA-256, contains more than tensors, or has those
            of another network; nothing is written.
        MissingError: the disk has too little space.
        OSError: the folder cannot be written.
    """
    if not path.is_file():
        raise ParametersMissing(f"{path}: no such file", _REMEDY)
    make_writable_folder(folder)
    check_disk_space(folder, path.stat().st_size)
    name = file_safe_name(path.name.removesuffix(_CHECKPOINT_SUFFIX).removesuffix(_SUFFIX))
    return _convert(path, path.name, folder, name, sha256)


def fetch_parameters(
    name: str,
    folder: Path,
    reporter: FetchReporter,
    url: str | None = None,
    sha256: str | None = None,
    retries: int = 5,
) -> AllAtomParameters:
    """Download a published checkpoint and import it; an unfinished download is resumed.

    Args:
        name: a key of PUBLISHED.
        folder: see `import_parameters`.
        reporter: callbacks.
        url: address of a mirror; None for the authors' bucket.
        sha256: see `import_parameters`.
        retries: see `Download`.

    Raises:
        Unreachable: the file cannot be downloaded.
        ParametersError: the file is not the expected one; the download is removed.
        MissingError: the disk has too little space, or another process fetches into the folder.
        OSError: the folder cannot be written.
    """
    published = PUBLISHED[name]
    if published.sha256 is None and sha256 is None:
        reporter.notify(f"the SHA-256 of {name}{_CHECKPOINT_SUFFIX} is not known: it is not compared")
    make_writable_folder(folder)
    work = folder / WORK_FOLDER
    with locked_work_folder(work):
        partial_file = PartialFile(work / f"{name}{_CHECKPOINT_SUFFIX}.part")
        with reporter.progress_bar("downloading") as progress:
            # the safetensors are written next to the whole download
            Download(
                url or published.url,
                partial_file,
                lambda remaining: check_disk_space(folder, 2 * remaining),
                reporter.notify,
                progress,
                retries,
            ).run()
        try:
            result = _convert(
                partial_file.path, f"{name}{_CHECKPOINT_SUFFIX}", folder, name, sha256 or published.sha256
            )
        except ParametersError as error:
            partial_file.remove()
            reason = f"{error.reason}; the download was removed"
            raise ParametersError(reason, url or published.url) from None
        partial_file.remove()
    return result


def _convert(path: Path, source: str, folder: Path, name: str, sha256: str | None) -> AllAtomParameters:
    """Check and convert a checkpoint; see `import_parameters`."""
    from model.checkpoints.openfold3 import convert_checkpoint, sha256_of  # imports torch

    found = sha256_of(path)
    published = PUBLISHED.get(name) if source == f"{name}{_CHECKPOINT_SUFFIX}" else None
    expected = sha256 or (published.sha256 if published is not None else None)
    if expected is not None and found != expected.lower():
        origin = "given" if sha256 and not (published and published.sha256 == sha256) else "published"
        raise ParametersError(f"its SHA-256 is {found}; the one {origin} is {expected}", path)
    target = folder / f"{name}{_SUFFIX}"
    config = convert_checkpoint(path, target)
    variant = "openbind" if config.diffusion.shared_pair_norm else "p2"
    checked = "" if expected is None else "SHA-256 given" if sha256 else "SHA-256 published"
    result = AllAtomParameters(name, variant, target, source, found, checked)
    content = {"format": _FORMAT, "format_version": _FORMAT_VERSION} | asdict(result) | {"file": target.name}
    with atomic_write(folder / f"{name}.json") as stream:
        stream.write(json.dumps(content, indent=1) + "\n")
    return result


def openfold3_folder() -> Path:
    """Return the folder of imported parameters next to those of AlphaFold2."""
    return default_folder() / "openfold3"


def is_all_atom(path: Path) -> bool:
    """Return True for a checkpoint or safetensors of an all-atom network, and for a folder of imported ones.

    Raises:
        ParametersError: a manifest is damaged.
    """
    if path.is_dir():
        return bool(installed_parameters(path))
    return path.suffix in (_SUFFIX, _CHECKPOINT_SUFFIX) and path.is_file()


def find_parameters(path: Path, name: str | None = None) -> AllAtomParameters:
    """Return the parameters in a file, or in a folder of imported ones.

    Args:
        path: a checkpoint, safetensors, or a folder that `import_parameters` wrote to.
        name: which of several in the folder; None for the default, or for the only one.

    Raises:
        MissingError: there is no such file, or the folder has none or several others.
        ParametersError: a manifest is damaged.
    """
    if path.is_file():
        return AllAtomParameters(path.name.rpartition(".")[0] or path.name, "", path)
    if not path.is_dir():
        raise MissingError(f"no parameters of an all-atom network: {path} does not exist", _REMEDY)
    found = {each.name: each for each in installed_parameters(path)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    wanted = name or DEFAULT_NAME
    if wanted in found:
        return found[wanted]
    present = f"only {', '.join(found)}" if found else "none"
    raise MissingError(f"no parameters {wanted} in {path}: {present}", _REMEDY)


def installed_parameters(folder: Path) -> list[AllAtomParameters]:
    """Return the imported parameters in a folder, by name.

    Raises:
        ParametersError: a manifest is damaged, or its safetensors are missing.
    """
    result = []
    for path in sorted(folder.glob("*.json")):
        manifest = _read_manifest(path)
        if manifest is not None:
            result.append(manifest)
    return result


def _read_manifest(path: Path) -> AllAtomParameters | None:
    """Return the parameters that a manifest describes; None for other JSON files."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        return None
    if (version := content.pop("format_version", None)) != _FORMAT_VERSION:
        raise ParametersError(f"format version {version!r}; this foldcli reads {_FORMAT_VERSION}", path)
    fields = ("name", "variant", "file", "source", "source_sha256", "checked")
    if set(content) != set(fields) or not all(isinstance(content[key], str) for key in fields):
        raise ParametersError("damaged manifest", path)
    if "/" in content["file"] or not (file := path.with_name(content["file"])).is_file():
        raise ParametersError(f"its file {content['file']:.100} is missing", path)
    return AllAtomParameters(**(content | {"file": file}))
