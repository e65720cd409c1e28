"""A folder of complexes ready for training, and the samples that are drawn from it.

Features, reference conformers and coordinates are made once, ahead of time. A sample depends on the folder,
the seed and its number alone, so a run can go on at any sample, and processes can share the work.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from features.alphafold3.inputs import Sample, Settings, build_sample
from features.alphafold3.samples import read_sample, sample_key, sample_path, write_sample
from features.chemistry.residue_classes import MoleculeKind
from features.training.crops import CropWeights, TokenPlaces, choose_tokens, crop_features
from features.training.experiment import ExperimentalComplex, read_complex
from features.training.labels import MoleculeTable, molecule_table
from features.training.weights import ChainContacts, Place, sample_probabilities
from msa.base.atomic import atomic_write
from msa.base.errors import InputError

FORMAT, VERSION = "foldcli.complexes", 1
_INDEX, _COORDINATES = "complexes.json", "coordinates"
# complexes that a process keeps in memory
_KEPT = 64


@dataclass(frozen=True, eq=False)
class KnownComplex:
    """A complex with features and labels.

    Attributes:
        sample: its inputs.
        positions: float32 [A, 3], Å.
        resolved: bool [A].
        molecules: its molecules.
    """

    sample: Sample
    positions: np.ndarray = field(repr=False)
    resolved: np.ndarray = field(repr=False)
    molecules: MoleculeTable = field(repr=False)


@dataclass(frozen=True, eq=False)
class TrainingSample:
    """A crop of a complex.

    Attributes:
        name: name of the complex.
        place: the chain or interface that it was drawn for.
        features: inputs of the network.
        crop: molecules of the crop.
        whole: the complex.
    """

    name: str
    place: Place
    features: dict[str, np.ndarray] = field(repr=False)
    crop: MoleculeTable = field(repr=False)
    whole: KnownComplex = field(repr=False)


def write_complexes(
    paths: Iterable[Path], folder: Path, settings: Settings, latest: str | None = None
) -> dict[str, str]:
    """Write the complexes of structure files to a folder; those that it contains already are kept.

    Args:
        paths: mmCIF or PDB files.
        folder: the folder.
        settings: settings of the inputs.
        latest: last release date of the complexes, YYYY-MM-DD; None for all.

    Returns:
        The reason for each file that was left out, by its path.

    Raises:
        InputError: no file can be used.
        OSError: the folder cannot be written.
    """
    left_out: dict[str, str] = {}
    entries = []
    for path in paths:
        try:
            known = read_complex(path)
            if latest is not None and (known.release_date or "9999") > latest:
                left_out[str(path)] = f"released {known.release_date or 'at an unknown date'}"
                continue
            sample, coordinates = _write_complex(known, folder, settings)
            contacts = ChainContacts.of(known.atoms, known.positions, known.resolved)
            entries.append(
                {
                    "name": path.name,
                    "sample": sample,
                    "coordinates": coordinates,
                    "contacts": asdict(contacts),
                }
            )
        except InputError as error:
            left_out[str(path)] = error.reason
    if not entries:
        raise InputError("no structure that can be used", folder)
    with atomic_write(folder / _INDEX, "w") as stream:
        json.dump({"format": FORMAT, "version": VERSION, "complexes": entries}, stream, indent=1)
    return left_out


def _write_complex(known: ExperimentalComplex, folder: Path, settings: Settings) -> tuple[str, str]:
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


def _contacts(stored: Mapping[str, list]) -> ChainContacts:
    """Return the chains of a complex from the index."""
    return ChainContacts(
        tuple(stored["chains"]),
        tuple(MoleculeKind(kind) for kind in stored["kinds"]),
        tuple(stored["molecules"]),
        tuple((first, second) for first, second in stored["contacts"]),
    )


class ComplexSet:
    """The complexes of a folder.

    Args:
        folder: a folder that `write_complexes` wrote.
        clusters: clusters of protein sequences; see `features.training.weights.ChainContacts.places`.

    Raises:
        InputError: the folder contains no complexes, or is of another version.
    """

    def __init__(self, folder: Path, clusters: Mapping[str, str] | None = None) -> None:
        try:
            index = json.loads((folder / _INDEX).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"no complexes for training: {error}", folder) from None
        if (index.get("format"), index.get("version")) != (FORMAT, VERSION):
            raise InputError("complexes for training of another version", folder / _INDEX)
        self._folder = folder
        self.names = [entry["name"] for entry in index["complexes"]]
        self._keys = [(entry["sample"], entry["coordinates"]) for entry in index["complexes"]]
        self._read = lru_cache(maxsize=_KEPT)(self._read_complex)
        self.places: Sequence[Place] = [
            place
            for number, entry in enumerate(index["complexes"])
            for place in _contacts(entry["contacts"]).places(number, clusters or {})
        ]
        self.probabilities = sample_probabilities(self.places)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> KnownComplex:
        """Return a complex."""
        return self._read(number)

    def _read_complex(self, number: int) -> KnownComplex:
        key, coordinates = self._keys[number]
        sample = read_sample(sample_path(self._folder, key), key)
        with np.load(_coordinate_path(self._folder, coordinates)) as arrays:
            positions, resolved = arrays["positions"], arrays["resolved"]
        return KnownComplex(sample, positions, resolved, molecule_table(sample.atoms, sample.tokens))

    def draw(self, seed: int, number: int, size: int, weights: CropWeights) -> TrainingSample:
        """Return a sample, which depends on the arguments alone.

        Args:
            seed: seed of the run.
            number: number of the sample.
            size: largest number of tokens.
            weights: shares of the kinds of crops.
        """
        generator = np.random.default_rng([seed, number])
        place = self.places[generator.choice(len(self.places), p=self.probabilities)]
        whole = self[place.entry]
        tokens, table = whole.sample.tokens, whole.molecules
        chain = whole.sample.atoms.chain[tokens.start]
        places = TokenPlaces(chain, whole.positions[table.centre], whole.resolved[table.centre])
        kind = weights.draw(generator)
        chosen = choose_tokens(places, size, kind, generator, place.chains)
        features = crop_features(whole.sample.features, chosen)
        return TrainingSample(self.names[place.entry], place, features, table.crop(chosen), whole)
