"""Folders that hold one network: a manifest with its architecture and origin, and its weights.

`foldcli train --package` writes them. The compact network that ships with foldcli is such a folder. This
module does not import torch; `model.checkpoints.alphafold2.load_folder` reads the weights.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from model.alphafold2.modules.config import ModelConfig
from model.dataclass_mapping import from_mapping
from model.errors import ConfigError, ParametersError, ParametersMissing
from msa.base.atomic import replaced_file

MANIFEST_FILE, WEIGHTS_FILE = "network.json", "weights.safetensors"
FORMAT = "foldcli network"
FORMAT_VERSION = 1
COMPACT = "compact"
"""Name of the compact network that ships with foldcli, where others are named by their folders."""
COMPACT_FOLDER = Path(__file__).parents[1] / "compact"
"""Its folder, which does not exist in installations without it."""
MAX_EVALUE, MIN_COVERAGE = 1e-3, 0.7
"""Limits of templates; weaker ones, or ones aligned to less of the chain, are a kind of their own."""
# standard deviations between the mean and the 90th percentile of a normal distribution, and half the width
# of a 95 % interval
_DEVIATIONS_TO_PERCENTILE, _DEVIATIONS_TO_BOUND = 1.2816, 1.96
# names become part of file names, between a rank and a seed
_NAME = re.compile(r"(?!.*rank_\d)[A-Za-z0-9_]{1,40}")


@dataclass(frozen=True)
class InputSizes:
    """The inputs of each pass that a network was trained with.

    Args:
        msa_rows: rows of the MSA representation, template slots included.
        extra_rows: rows of the extra MSA.
        templates: template slots.
        masked_fraction: fraction of the sampled rows' positions that are masked.
        template_side_chains: whether templates had side chains beyond CB; those of others are left out.
        resample: whether each pass samples rows and masks anew, instead of using those of the first pass.
        num_recycles: largest number of passes after the first.
        residues: residues of the largest crop.
    """

    msa_rows: int
    extra_rows: int
    templates: int
    template_side_chains: bool
    masked_fraction: float
    resample: bool
    num_recycles: int
    residues: int


@dataclass(frozen=True)
class HeldOutCase:
    """The accuracy on held-out chains of one kind, lDDT-CA from 0 to 1.

    Args:
        with_template: whether the network had templates.
        lower: smallest identity of the best template (0 to 1), or number of effective sequences without.
        upper: the end of this range, exclusive; None if there is none.
        chains: number of chains.
        lddt: mean lDDT-CA.
        low, high: the 95 % bootstrap interval of this mean.
        baseline: mean lDDT-CA of copying the best template, or of a helix without templates.
        plddt_error: mean absolute difference of the mean pLDDT / 100 of a chain and its lDDT-CA.
        weak_template: whether all templates were weak: E > MAX_EVALUE, or aligned to less than MIN_COVERAGE.
        percentile_10, percentile_90: percentiles of the lDDT-CA of single chains; None if they were not
            recorded, see `single_chains`.
        shortest, longest: residues of the shortest and the longest chain; by default, of training chains.
    """

    with_template: bool
    lower: float
    upper: float | None
    chains: int
    lddt: float
    low: float
    high: float
    baseline: float
    plddt_error: float
    weak_template: bool = False
    percentile_10: float | None = None
    percentile_90: float | None = None
    shortest: int = 40
    longest: int = 512

    @property
    def single_chains(self) -> tuple[float, float]:
        """The 10th and 90th percentiles of the lDDT-CA of single chains.

        If they were not recorded, those of a normal distribution with the standard deviation that the
        interval of the mean implies.
        """
        if self.percentile_10 is not None and self.percentile_90 is not None:
            return self.percentile_10, self.percentile_90
        deviation = (self.high - self.low) / (2 * _DEVIATIONS_TO_BOUND) * math.sqrt(self.chains)
        spread = _DEVIATIONS_TO_PERCENTILE * deviation
        return max(0.0, self.lddt - spread), min(1.0, self.lddt + spread)

    def contains(self, identity: float | None, effective: float, weak_template: bool = False) -> bool:
        """Return whether a prediction is of this kind.

        Its best template has an identity, 0 to 1, or None without templates, and may be weak; its alignment
        has a number of effective sequences.
        """
        value = effective if identity is None else identity
        upper = math.inf if self.upper is None else self.upper
        is_same_kind = (self.with_template, self.weak_template) == (identity is not None, weak_template)
        return is_same_kind and self.lower <= value < upper

    @property
    def label(self) -> str:
        """The kind of the predictions in words."""
        if self.weak_template:
            return f"weak templates (E > {MAX_EVALUE:g}, or under {100 * MIN_COVERAGE:.0f} % covered)"
        if self.with_template:
            name, unit, scale = "best template of", " % identity", 100
        else:
            name, unit, scale = "no template and", " effective sequences", 1
        values = scale * self.lower, scale * (self.upper or 0)
        if self.upper is None:
            return f"{name} at least {values[0]:.0f}{unit}"
        if self.lower == 0:
            return f"{name} {'less' if self.with_template else 'fewer'} than {values[1]:.0f}{unit}"
        return f"{name} {values[0]:.0f} to {values[1]:.0f}{unit}"


@dataclass(frozen=True)
class NetworkManifest:
    """The description of a network.

    Args:
        name: name of the network.
        version: date and training steps.
        licence: licence of the weights.
        training_data: the data in words.
        samples: number of training samples.
        steps: number of training steps.
        sha256: SHA-256 of the file of the weights, hex.
        config: the architecture, with the heads that are trained.
        inputs: sizes of the inputs.
        side_chains: whether side chains were trained; their positions mean nothing otherwise.
        held_out: accuracy on held-out chains; empty if it was not measured.
        regular_bonds: share of the bonds between residues of held-out chains that are as in crystal
            structures, with their angles, within 12 standard deviations; None if it was not measured.
        plddt_shift: number that is added to the log odds of pLDDT / 100; a network is more confident on its
            training chains than on others.
    """

    name: str
    version: str
    licence: str
    training_data: str
    samples: int
    steps: int
    sha256: str
    config: ModelConfig
    inputs: InputSizes
    side_chains: bool
    held_out: tuple[HeldOutCase, ...] = ()
    regular_bonds: float | None = None
    plddt_shift: float = 0.0

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    def expected_accuracy(
        self, identity: float | None, effective: float, weak_template: bool = False
    ) -> HeldOutCase | None:
        """Return the held-out chains of a prediction's kind, or None; see `HeldOutCase.contains`."""
        cases = (case for case in self.held_out if case.contains(identity, effective, weak_template))
        return next(cases, None)


def folder_of(network: str) -> Path:
    """Return the folder of a network, given the folder or COMPACT."""
    return COMPACT_FOLDER if network == COMPACT else Path(network)


def has_compact_network() -> bool:
    """Return whether this installation contains the compact network."""
    return (COMPACT_FOLDER / MANIFEST_FILE).is_file()


def read_manifest(folder: Path) -> NetworkManifest:
    """Read the manifest of a network's folder.

    Raises:
        ParametersMissing: the folder has no manifest.
        ParametersError: the manifest is damaged or of another version.
    """
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ParametersMissing(f"{path}: no such file", "foldcli train --package writes one") from error
    except ValueError as error:
        raise ParametersError(f"not the manifest of a network ({error})", path) from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ParametersError("not the manifest of a network", path)
    version = content.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise ParametersError(f"format version {version!r}; this foldcli reads {FORMAT_VERSION}", path)
    try:
        manifest = from_mapping(NetworkManifest, content)
    except ConfigError as error:
        raise ParametersError(f"damaged manifest: {error}", path) from error
    if not _NAME.fullmatch(manifest.name) or manifest.config.multimer is not None:
        raise ParametersError("damaged manifest: its name or configuration cannot be used", path)
    return manifest


def write_manifest(folder: Path, manifest: NetworkManifest) -> None:
    """Write the manifest of a network's folder, atomically."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION} | asdict(manifest)
    with replaced_file(folder / MANIFEST_FILE) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")


def read_weights_file(folder: Path, manifest: NetworkManifest) -> bytes:
    """Return the content of the file of the weights, after a comparison of its checksum.

    Raises:
        ParametersMissing: the file does not exist.
        ParametersError: its SHA-256 is not that of the manifest.
    """
    path = folder / WEIGHTS_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ParametersMissing(f"{path}: no such file", "foldcli train --package writes one") from error
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ParametersError(f"damaged: its SHA-256 differs from the one in {MANIFEST_FILE}", path)
    return content


@dataclass(frozen=True)
class HeldOutScores:
    """The results of `benchmarks/compact.py --json` that become part of a manifest.

    Args:
        cases: see `held_out` of `NetworkManifest`.
        regular_bonds: see there; that of the first file.
        inputs: inputs that were scored, of the first file; None if it does not state them.
        plddt_shift: see `NetworkManifest`; that of the first file that has one.
    """

    cases: tuple[HeldOutCase, ...]
    regular_bonds: float | None
    inputs: InputSizes | None = None
    plddt_shift: float = 0.0


def read_held_out(paths: Sequence[Path]) -> HeldOutScores:
    """Read the results on held-out chains from one or more files.

    Raises:
        ParametersError: a file does not hold such results.
    """
    cases: list[HeldOutCase] = []
    regular_bonds, inputs, shift = None, None, 0.0
    for path in paths:
        try:
            content = json.loads(path.read_text())
            cases += [from_mapping(HeldOutCase, case) for case in content["cases"]]
            regular_bonds = content["regular_bonds"] if regular_bonds is None else regular_bonds
            if inputs is None and "inputs" in content:
                inputs = from_mapping(InputSizes, content["inputs"])
            shift = shift or float(content.get("plddt_shift", 0.0))
        except (ValueError, KeyError, TypeError) as error:
            raise ParametersError(f"not the results of benchmarks/compact.py ({error})", path) from error
    return HeldOutScores(tuple(cases), regular_bonds, inputs, shift)
