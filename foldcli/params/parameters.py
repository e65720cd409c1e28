"""Parameter files: facts about DeepMind's archives, and the files that predictions find.

This module imports nothing heavy, because the help of the `params` command shows these facts.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foldcli.logs import logger
from foldcli.params.manifest import read_manifest
from foldcli.paths import cache_dir
from model.alphafold2.modules.config import ModelConfig, model_config
from model.checkpoints.network_folder import COMPACT, NetworkManifest, folder_of, has_compact_network
from model.checkpoints.network_folder import MANIFEST_FILE as NETWORK_MANIFEST
from model.checkpoints.network_folder import read_manifest as read_network_manifest
from msa.base.errors import MissingError

# published in December 2022; ColabFold uses the same files
ARCHIVE_URL = "https://storage.googleapis.com/alphafold/alphafold_params_2022-12-06.tar"
LICENCE_FILE = "LICENSE"
NOTICE = """\
AlphaFold2's parameters are (c) DeepMind Technologies Limited, under the Creative Commons Attribution 4.0
International licence (CC BY 4.0), https://creativecommons.org/licenses/by/4.0/legalcode, without warranty.
Cite: Jumper et al., Highly accurate protein structure prediction with AlphaFold, Nature 596, 583 (2021).
"""
# older versions of AlphaFold-Multimer, from AlphaFold's README, by the value of `params fetch --which`
_OLD_ARCHIVES = {
    "multimer_v2": "https://storage.googleapis.com/alphafold/alphafold_params_2022-03-02.tar",
    "multimer_v1": "https://storage.googleapis.com/alphafold/alphafold_params_2022-01-19.tar",
}
# suffixes of the names of multimer networks, by ColabFold's names of the versions
_MULTIMER_SUFFIXES = {
    "alphafold2_multimer_v3": "_multimer_v3",
    "alphafold2_multimer_v2": "_multimer_v2",
    "alphafold2_multimer_v1": "_multimer",
}
OLD_MULTIMER_TYPES = ("alphafold2_multimer_v2", "alphafold2_multimer_v1")
_LATEST_MULTIMER = _MULTIMER_SUFFIXES["alphafold2_multimer_v3"]
# suffixes of network names, by the value of `params fetch --which`
SUFFIXES_BY_WHICH: dict[str, tuple[str, ...]] = {
    "ptm": ("_ptm",),
    "monomer": ("",),
    "multimer": (_LATEST_MULTIMER,),
    "multimer_v2": ("_multimer_v2",),
    "multimer_v1": ("_multimer",),
    "all": ("_ptm", "", _LATEST_MULTIMER),
}

# value of --params and name of the network for models that are copied from templates
TEMPLATE = "template"
# value of --params for DeepMind's parameters in `default_folder()`, where `params fetch` stores them
ALPHAFOLD2 = "alphafold2"
UNTRAINED = "UNTRAINED network: coordinates and confidences mean nothing."
ModelType = Literal[
    "auto",
    "alphafold2_ptm",
    "alphafold2",
    "alphafold2_multimer_v3",
    "alphafold2_multimer_v2",
    "alphafold2_multimer_v1",
]
# multimer networks predict complexes; they also predict single chains if they are requested
FamilyName = Literal["monomer", "multimer"]
# suffixes of the names of monomer networks by --model-type, in order of preference
_MONOMER_SUFFIXES = {"auto": ("_ptm", ""), "alphafold2_ptm": ("_ptm",), "alphafold2": ("",)}


@dataclass(frozen=True)
class ParameterSource:
    """The parameter file of one model.

    Args:
        config_name: network name such as "model_3_ptm" or "model_1_multimer_v3", or "template" for copies of
            templates; name and version of a network with a folder of its own.
        file: npz file with a name and keys like DeepMind's, or None for all other sources.
        folder: folder of a network with a manifest, such as the compact network, or None.
        manifest: its manifest, or None.
        architecture: architecture of `file`, if it is not that of the published network of this name.
    """

    number: int
    config_name: str
    file: Path | None
    folder: Path | None = None
    manifest: NetworkManifest | None = None
    architecture: ModelConfig | None = None

    @property
    def label(self) -> str:
        """The model's name in file names.

        As in ColabFold: alphafold2_ptm_model_3, alphafold2_model_3 or alphafold2_multimer_v3_model_3; or
        template_copy; or the name of a network with a folder of its own.
        """
        if self.copies_template:
            return "template_copy"
        if self.manifest is not None:
            return self.manifest.name
        if self.is_multimer:
            types = {suffix: name for name, suffix in _MULTIMER_SUFFIXES.items()}
            return f"{types[self._suffix]}_model_{self.number}"
        return f"{'alphafold2_ptm' if self._suffix == '_ptm' else 'alphafold2'}_model_{self.number}"

    @property
    def family(self) -> str:
        """The name of the family of networks (`foldcli.families`)."""
        if self.copies_template:
            return TEMPLATE
        if self.manifest is not None:
            return "native"
        return "multimer" if self.is_multimer else "monomer"

    def tags(self, seed: int) -> tuple[str, ...]:
        """Return the tag of the only model of a job, such as alphafold2_ptm_model_3_seed_000.

        Copies of templates, which have no seed, have the tag template_copy.
        """
        return (self.label if self.copies_template else f"{self.label}_seed_{seed:03d}",)

    @property
    def is_multimer(self) -> bool:
        """True for AlphaFold-Multimer's networks, which predict complexes."""
        return self.manifest is None and "_multimer" in self.config_name

    @property
    def config(self) -> ModelConfig:
        """The architecture of the network."""
        if self.manifest is not None:
            return self.manifest.config
        return self.architecture or model_config(self.config_name)

    @property
    def which(self) -> str:
        """The value of `params fetch --which` that fetches the file."""
        return _which(self._suffix)

    @property
    def _suffix(self) -> str:
        """The network's name without the model's number."""
        return self.config_name.removeprefix(f"model_{self.number}")

    @property
    def is_untrained(self) -> bool:
        """True if the network's parameters are random."""
        return not self.copies_template and not self.config.trained

    @property
    def copies_template(self) -> bool:
        """True if there is no network, and the best template is copied."""
        return self.config_name == TEMPLATE


# the source of runs that copy templates instead of running a network
TEMPLATE_COPY = ParameterSource(1, TEMPLATE, None)


def needed_families(model_type: ModelType, single_chains: bool, complexes: bool) -> tuple[FamilyName, ...]:
    """Return the names of the families that a run needs."""
    if model_type != "auto":
        return ("multimer",) if model_type in _MULTIMER_SUFFIXES else ("monomer",)
    monomer: tuple[FamilyName, ...] = ("monomer",) if single_chains or not complexes else ()
    return (*monomer, "multimer") if complexes else monomer


def network_folder(params: str | None) -> tuple[Path, NetworkManifest] | None:
    """Return the folder and the manifest of the network that `--params` names; None for other values.

    Raises:
        MissingError: the package has no compact network.
        ParametersError: the manifest is damaged.
    """
    if params == COMPACT and not has_compact_network():
        raise MissingError(
            "this installation does not contain the compact network",
            "Use --params template, or get AlphaFold2's parameters with `foldcli params fetch`.",
        )
    if params is None or params == ALPHAFOLD2:
        return None
    folder = folder_of(params).absolute()
    if not (folder / NETWORK_MANIFEST).is_file():
        return None
    return folder, read_network_manifest(folder)


def find_parameters(
    params: str | None,
    numbers: tuple[int, ...],
    model_type: ModelType,
    families: Sequence[FamilyName] = ("monomer",),
) -> list[ParameterSource]:
    """Return the parameters to use for each model number, grouped by family.

    Of a list of single chains and complexes, the single chains are predicted without multimer networks too.

    Args:
        params: a folder, "compact", or "alphafold2" or None for `default_folder()`.
        numbers: requested model numbers, in order.
        model_type: "auto" prefers params_model_N_ptm.npz to params_model_N.npz.
        families: result of `needed_families`.

    Raises:
        MissingError: a file is missing; the remedy says how to get DeepMind's.
    """
    if (found := network_folder(params)) is not None:
        return [ParameterSource(1, found[1].title, None, *found)]
    folder = default_folder() if params in (None, ALPHAFOLD2) else Path(params)
    if params == "demo" and not folder.exists():
        raise MissingError(
            "--params demo, an untrained network, is no longer part of foldcli",
            f"Use --params {COMPACT}, a small trained network for single chains.",
        )
    if folder.suffix in (".bin", ".zst", ".pt", ".safetensors") and not folder.exists():
        raise MissingError(
            f"no network parameters: {folder} does not exist", "Give --params an existing file."
        )
    if not folder.is_dir():
        remedy = download_instructions(folder, _suffixes(families[-1], model_type)[0])
        raise MissingError(f"no network parameters: {folder} is not a folder", remedy)
    sources: list[ParameterSource] = []
    for family in families:
        try:
            sources += [_find(folder, number, _suffixes(family, model_type)) for number in numbers]
        except MissingError as error:
            if not sources:
                raise
            logger.warning("%s; complexes are not predicted", error.reason)
    return sources


def _suffixes(family: FamilyName, model_type: ModelType) -> tuple[str, ...]:
    """Return the suffixes of the names of suitable networks, in order of preference."""
    if family == "multimer":
        return (_MULTIMER_SUFFIXES.get(model_type, _LATEST_MULTIMER),)
    return _MONOMER_SUFFIXES[model_type]


def default_method() -> str:
    """Return the value of --params for runs that name no parameters, if none are installed.

    It is "compact", or "template" in installations without the compact network.
    """
    return COMPACT if has_compact_network() else TEMPLATE


def default_folder() -> Path:
    """Return `$FOLDCLI_PARAMS`, for example a folder shared by a site, else `$FOLDCLI_CACHE/params`."""
    folder = os.environ.get("FOLDCLI_PARAMS")
    return Path(folder) if folder else cache_dir() / "params"


def installed_parameters(folder: Path) -> list[ParameterSource]:
    """Return the parameter files in a folder: with a PAE head, without one, then for complexes."""
    suffixes = ("_ptm", "", *_MULTIMER_SUFFIXES.values())
    names = [(number, f"model_{number}{suffix}") for suffix in suffixes for number in range(1, 6)]
    sources = [_find_source(folder, number, name) for number, name in names]
    return [source for source in sources if source is not None]


def download_instructions(folder: Path, suffix: str = "_ptm") -> str:
    """Return instructions for a user whose folder lacks parameters of networks with a suffix."""
    needed = _which(suffix)
    which = f"--which {needed} " if needed != "ptm" else ""
    without = f"\nWithout them: --params {COMPACT}, a small network in the package for single chains."
    return (
        "Get DeepMind's parameters (CC BY 4.0, a download of several GB) with\n"
        f"  foldcli params fetch {which}--dest {folder}{without if suffix in ('', '_ptm') else ''}"
    )


def _which(suffix: str) -> str:
    """Return the value of `params fetch --which` that fetches networks with a suffix."""
    return next(which for which, suffixes in SUFFIXES_BY_WHICH.items() if suffix in suffixes)


def _find(folder: Path, number: int, suffixes: tuple[str, ...]) -> ParameterSource:
    names = [f"model_{number}{suffix}" for suffix in suffixes]
    for name in names:
        if source := _find_source(folder, number, name):
            return source
    expected = " or ".join(f"params_{name}.npz" for name in names)
    raise MissingError(
        f"no network parameters: {folder} has no {expected}", download_instructions(folder, suffixes[0])
    )


def _find_source(folder: Path, number: int, name: str) -> ParameterSource | None:
    """Return a network in a folder or in its subfolder `params`, where other programs store files."""
    for parent in (folder, folder / "params"):
        if (file := parent / f"params_{name}.npz").is_file():
            architecture = read_manifest(parent).architectures.get(file.name)
            return ParameterSource(number, name, file, architecture=architecture)
    return None


def networks_by_file(which: str, numbers: Sequence[int]) -> dict[str, str]:
    """Return network names by the names of their files in the archive.

    Args:
        which: "ptm" for monomer networks with a head for the predicted aligned error, "monomer" for those
            without it; "multimer", "multimer_v2" or "multimer_v1" for networks for complexes; "all" for ptm,
            monomer and multimer.
        numbers: model numbers, 1 to 5.
    """
    names = [f"model_{number}{suffix}" for suffix in SUFFIXES_BY_WHICH[which] for number in numbers]
    return {f"params_{name}.npz": name for name in names}


def archive_url(which: str) -> str:
    """Return the address of DeepMind's archive that has the networks of `params fetch --which`."""
    return _OLD_ARCHIVES.get(which, ARCHIVE_URL)
