"""A folder of complexes ready for training, and the samples that are drawn from it.

Features, reference conformers and coordinates are made once, ahead of time. A sample depends on the folder,
the seed and its number alone, so a run can go on at any sample, and processes can share the work.
"""

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np

from features.alphafold3.inputs import InputSettings, Sample, build_sample, check_tokens
from features.alphafold3.samples import read_sample, sample_key, sample_path, write_sample
from features.assembly.tokens import build_tokens
from features.cache.entry import corrupt_entry_errors
from features.training.crops import CropWeights, TokenCentres, choose_tokens, crop_features
from features.training.experiment import ExperimentalComplex
from features.training.labels import MoleculeTable, molecule_table
from features.training.weights import ChainContacts, ChainOrInterface, sample_probabilities
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import read_json, write_json

FORMAT, VERSION = "foldcli.complexes", 2
_INDEX, _COORDINATES = "complexes", "coordinates"
_PART = re.compile(rf"{_INDEX}\.(\d+)-of-(\d+)\.json")
# complexes that a process keeps in memory
_KEPT = 64


@dataclass(frozen=True, eq=False)
class LabelledComplex:
    """A complex with features and labels.

    Attributes:
        positions: float32 [A, 3], Å.
        resolved: bool [A].
    """

    sample: Sample
    positions: np.ndarray = field(repr=False)
    resolved: np.ndarray = field(repr=False)
    molecules: MoleculeTable = field(repr=False)


@dataclass(frozen=True, eq=False)
class TrainingSample:
    """A crop of a complex, drawn for one of its chains or interfaces."""

    name: str
    drawn_for: ChainOrInterface
    features: dict[str, np.ndarray] = field(repr=False)
    crop: MoleculeTable = field(repr=False)
    whole: LabelledComplex = field(repr=False)


@dataclass(frozen=True)
class ComplexEntry:
    """A complex in the list of a folder."""

    name: str
    sample: str
    coordinates: str
    contacts: ChainContacts


@dataclass(frozen=True)
class _Index:
    """A list of complexes, and the clusters of their protein sequences."""

    complexes: list[ComplexEntry]
    clusters: dict[str, str]
    format: str = FORMAT
    version: int = VERSION


def write_complex(
    known: ExperimentalComplex, name: str, folder: Path, settings: InputSettings
) -> ComplexEntry:
    """Write a complex to a folder unless the folder contains it; return its entry for `write_index`.

    Raises:
        InputError: the complex has too many tokens.
    """
    check_tokens(known.job, len(build_tokens(known.atoms)), settings)
    sample, coordinates = _write_arrays(known, folder, settings)
    contacts = ChainContacts.of(known.atoms, known.positions, known.resolved)
    return ComplexEntry(name, sample, coordinates, contacts)


def write_index(
    folder: Path, entries: Sequence[ComplexEntry], clusters: Mapping[str, str] | None = None, part: str = ""
) -> int:
    """Write the list of the complexes in a folder, and their protein sequences as FASTA.

    Args:
        folder: the folder.
        entries: results of `write_complex`.
        clusters: clusters of protein sequences; see `ChainContacts.chains_and_interfaces`.
        part: ".I-of-N" for one of N lists that belong together.

    Returns:
        The number of complexes in the earlier list that are not in the new one.
    """
    sequences = sorted({sequence for entry in entries for sequence in entry.contacts.proteins})
    clusters = clusters or {}
    known = {sequence: clusters[sequence] for sequence in sequences if sequence in clusters}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"proteins{part}.fasta", "w") as stream:
        stream.writelines(f">{protein_name(sequence)}\n{sequence}\n" for sequence in sequences)
    path, earlier = folder / f"{_INDEX}{part}.json", set()
    with contextlib.suppress(FileNotFoundError, ValueError):  # the list of another version is replaced
        earlier = {entry.coordinates for entry in read_json(path, _Index).complexes}
    write_json(path, asdict(_Index(list(entries), known)), indent=1)
    return len(earlier - {entry.coordinates for entry in entries})


def protein_name(sequence: str) -> str:
    """Return the name of a protein sequence in the FASTA files of a folder, which is the same in all."""
    return hashlib.sha256(sequence.encode()).hexdigest()[:16]


def _write_arrays(known: ExperimentalComplex, folder: Path, settings: InputSettings) -> tuple[str, str]:
    """Write a complex unless the folder contains it; return the keys of its inputs and coordinates."""
    key = sample_key(known.job, settings)
    if not sample_path(folder, key).exists():
        write_sample(folder, key, known.job, build_sample(known.job, settings))
    # structures of the same molecules share their inputs
    digest = hashlib.sha256(key.encode() + known.positions.tobytes() + known.resolved.tobytes()).hexdigest()
    path = _coordinate_path(folder, digest)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, "wb") as stream:
            np.savez(stream, positions=known.positions, resolved=known.resolved)
    return key, digest


def _coordinate_path(folder: Path, key: str) -> Path:
    return folder / _COORDINATES / f"{key}.npz"


def _read_lists(folder: Path) -> tuple[list[ComplexEntry], dict[str, str]]:
    """Return the complexes of all lists of a folder, and the clusters of their sequences."""
    paths = sorted(folder.glob(f"{_INDEX}*.json"))
    parts = [match for path in paths if (match := _PART.fullmatch(path.name))]
    if parts:
        expected = {f"{_INDEX}.{part}-of-{parts[0][2]}.json" for part in range(1, int(parts[0][2]) + 1)}
        if different := sorted(expected ^ {path.name for path in paths}):
            state = "is missing" if different[0] in expected else "is of another division"
            raise InputError(f"incomplete complexes for training: {different[0]} {state}", folder)
    entries: list[ComplexEntry] = []
    clusters: dict[str, str] = {}
    for path in paths:
        try:
            index = read_json(path, _Index)
        except ValueError as error:
            raise InputError(f"no complexes for training: {error}", path) from None
        if (index.format, index.version) != (FORMAT, VERSION):
            raise InputError("complexes for training of another version", path)
        entries += index.complexes
        clusters |= index.clusters
    if not entries:
        raise InputError("no complexes for training", folder)
    # the order does not depend on the division
    return sorted(entries, key=lambda entry: (entry.name, entry.sample, entry.coordinates)), clusters


class ComplexSet:
    """The complexes of a folder.

    Raises:
        InputError: the folder contains no complexes, lacks one of the lists, or is of another version.
    """

    def __init__(self, folder: Path) -> None:
        entries, clusters = _read_lists(folder)
        self._folder = folder
        self.names = [entry.name for entry in entries]
        self._keys = [(entry.sample, entry.coordinates) for entry in entries]
        self._read = lru_cache(maxsize=_KEPT)(self._read_complex)
        self.chains_and_interfaces: Sequence[ChainOrInterface] = [
            item
            for number, entry in enumerate(entries)
            for item in entry.contacts.chains_and_interfaces(number, clusters)
        ]
        self.probabilities = sample_probabilities(self.chains_and_interfaces)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> LabelledComplex:
        """Return a complex."""
        return self._read(number)

    def _read_complex(self, number: int) -> LabelledComplex:
        key, coordinates = self._keys[number]
        sample = read_sample(sample_path(self._folder, key), key)
        path = _coordinate_path(self._folder, coordinates)
        content = BytesIO(path.read_bytes())
        with corrupt_entry_errors(path), np.load(content) as arrays:
            positions, resolved = arrays["positions"], arrays["resolved"]
        return LabelledComplex(sample, positions, resolved, molecule_table(sample.atoms, sample.tokens))

    def draw(self, seed: int, number: int, size: int, weights: CropWeights) -> TrainingSample:
        """Return a sample, which depends on the arguments alone.

        Args:
            seed: seed of the run.
            number: number of the sample.
            size: largest number of tokens.
            weights: shares of the kinds of crops.
        """
        generator = np.random.default_rng([seed, number])
        drawn = self.chains_and_interfaces[generator.choice(len(self.probabilities), p=self.probabilities)]
        whole = self[drawn.entry]
        tokens, table = whole.sample.tokens, whole.molecules
        chain = whole.sample.atoms.chain[tokens.start]
        centres = TokenCentres(chain, whole.positions[table.centre], whole.resolved[table.centre])
        kind = weights.draw(generator)
        chosen = choose_tokens(centres, size, kind, generator, drawn.chains)
        features = crop_features(whole.sample.features, chosen)
        return TrainingSample(self.names[drawn.entry], drawn, features, table.crop(chosen), whole)
