"""Parameters of OpenFold3: where they come from, and the files that runs find.

`foldcli.params.openfold3_import` writes the files. This module imports nothing heavy.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from foldcli.params.parameters import default_folder
from model.alphafold3.config import DEEPMIND, OPENBIND, P2
from model.checkpoints.records import is_record_file
from model.errors import ParametersError
from msa.base.errors import MissingError
from msa.base.json_files import read_json, to_record, write_json

# value of --params for the parameters in `openfold3_folder()`
OPENFOLD3 = "openfold3"
_FORMAT, _FORMAT_VERSION = "foldcli all-atom parameters", 1
SUFFIX, CHECKPOINT_SUFFIX = ".safetensors", ".pt"
_BUCKET = "https://openfold3-data.s3.amazonaws.com/openfold3-parameters"
LICENCE = (
    "OpenFold3's parameters are under the Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0"
)
DEEPMIND_TERMS = (
    "DeepMind's terms of use hold for AlphaFold 3's parameters and for what is made with them, "
    "https://github.com/google-deepmind/alphafold3/blob/main/WEIGHTS_TERMS_OF_USE.md"
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
        return f"{_BUCKET}/{self.name}{CHECKPOINT_SUFFIX}"


PUBLISHED = {
    file.name: file
    for file in (
        PublishedFile(OPENBIND.name, "openbind", None),
        PublishedFile(P2.name, "p2", "af09eac4f29cef856633af07558cb143226fe95ebbef2c20921769d4a5f4bee4"),
    )
}
# by the value of `params fetch --which`
NAMES_BY_WHICH = {OPENFOLD3: OPENBIND.name, "openfold3_p2": P2.name}
DEFAULT_NAME = OPENBIND.name
REMEDY = (
    "Get them (Apache License 2.0, 1.4 GB) with `foldcli params fetch --which openfold3`, or install\n"
    f"{DEFAULT_NAME}{CHECKPOINT_SUFFIX} from https://huggingface.co/OpenFold/OpenFold3 with --from FILE."
)


TRAINED = "foldcli train"
"""The source of networks that `foldcli train --package` has written."""


@dataclass(frozen=True)
class AllAtomParameters:
    """The parameters of an all-atom network in a file.

    Attributes:
        name: name of the parameters, such as of3-p2-155k.
        variant: "openbind", "p2" or "deepmind"; empty for a file without a manifest, whose tensors tell it.
        file: safetensors, checkpoint or DeepMind's file, for `model.checkpoints.openfold3.read_checkpoint`.
        source: name of the checkpoint that was imported, or TRAINED; empty without a manifest.
        source_sha256: its SHA-256, hex; empty without a manifest.
        checked: what its SHA-256 was compared with; empty if with nothing.
        bytes: size of the safetensors; 0 if not recorded.
        sha256: SHA-256 of the safetensors, hex; empty if not recorded, as by earlier versions.
    """

    name: str
    variant: str
    file: Path
    source: str = ""
    source_sha256: str = ""
    checked: str = ""
    bytes: int = 0
    sha256: str = ""


def openfold3_folder() -> Path:
    """Return the folder of imported parameters, next to those of AlphaFold2."""
    return default_folder() / OPENFOLD3


def is_all_atom(path: Path) -> bool:
    """Return True for a checkpoint, safetensors or DeepMind's file, and for a folder of imported ones.

    Raises:
        ParametersError: a manifest is damaged.
    """
    if path.is_dir():
        return bool(installed_parameters(path))
    return path.is_file() and (path.suffix in (SUFFIX, CHECKPOINT_SUFFIX) or is_record_file(path))


def parameters_name(file: Path) -> str:
    """Return the name of the parameters in a file, such as "af3" for af3.bin.zst."""
    name = file.name
    for suffix in (CHECKPOINT_SUFFIX, SUFFIX, ".zst", ".bin"):
        name = name.removesuffix(suffix)
    return name or file.name


def find_parameters(path: Path, name: str | None = None) -> AllAtomParameters:
    """Return the parameters in a file, or in a folder of imported ones.

    Args:
        path: a checkpoint, safetensors, or a folder of imported ones.
        name: which of several in the folder; None for the default, or for the only one.

    Raises:
        MissingError: there is no such file, or the folder has none or several others.
        ParametersError: a manifest is damaged.
    """
    if path.is_file():
        variant = DEEPMIND.variant if is_record_file(path) else ""
        return AllAtomParameters(parameters_name(path), variant, path)
    if not path.is_dir():
        raise MissingError(f"no parameters of an all-atom network: {path} does not exist", REMEDY)
    found = {each.name: each for each in installed_parameters(path)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    wanted = name or DEFAULT_NAME
    if wanted in found:
        return found[wanted]
    present = f"only {', '.join(found)}" if found else "none"
    raise MissingError(f"no parameters {wanted} in {path}: {present}", REMEDY)


def installed_parameters(folder: Path) -> list[AllAtomParameters]:
    """Return the imported parameters in a folder, by name.

    Raises:
        ParametersError: a manifest is damaged, or its safetensors are missing.
    """
    manifests = map(_read_manifest, sorted(folder.glob("*.json")))
    return [manifest for manifest in manifests if manifest is not None]


def write_manifest(parameters: AllAtomParameters) -> None:
    """Write the manifest NAME.json next to a file of parameters."""
    file = {"file": parameters.file.name}
    content = {"format": _FORMAT, "format_version": _FORMAT_VERSION} | asdict(parameters) | file
    write_json(parameters.file.with_name(f"{parameters.name}.json"), content, indent=1)


def _read_manifest(path: Path) -> AllAtomParameters | None:
    """Return the parameters that a manifest describes; None for other JSON files."""
    try:
        content = read_json(path)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        return None
    if (version := content.pop("format_version", None)) != _FORMAT_VERSION:
        raise ParametersError(f"format version {version!r}; this foldcli reads {_FORMAT_VERSION}", path)
    name = content.get("file")
    if not isinstance(name, str) or "/" in name or not (file := path.with_name(name)).is_file():
        raise ParametersError(f"its file {name!s:.100} is missing", path)
    try:
        return to_record(content | {"file": file}, AllAtomParameters)
    except ValueError as error:
        raise ParametersError(f"damaged manifest: {error}", path) from None
