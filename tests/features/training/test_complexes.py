"""Tests of folders of complexes and of the samples drawn from them."""

import json
import shutil
from collections import Counter
from pathlib import Path

import gemmi
import numpy as np
import pytest

from features.alphafold3.inputs import InputSettings
from features.chemistry.residue_classes import MoleculeKind
from features.training.complexes import ComplexSet, write_complex, write_index
from features.training.crops import CropWeights
from features.training.experiment import read_complex
from features.training.weights import ChainContacts, ChainOrInterface, sample_probabilities
from msa.base.errors import InputError

ENTRIES = Path(__file__).parents[1] / "templates" / "data"
SETTINGS = InputSettings(templates=1)


def write_complexes(paths: list[Path], folder: Path) -> None:
    write_index(folder, [write_complex(read_complex(path), path.name, folder, SETTINGS) for path in paths])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three complexes."""
    result = tmp_path_factory.mktemp("complexes")
    paths = [ENTRIES / f"{name}.cif.gz" for name in ("1lcd", "4cup", "1as5")]
    write_complexes(paths, result)
    return result


def test_samples_depend_on_seed_and_number_alone(folder: Path) -> None:
    first, second = ComplexSet(folder), ComplexSet(folder)
    samples = [first.draw(7, number, 30, CropWeights()) for number in range(12)]
    for number in (11, 3, 8):  # in another order, by another process
        again = second.draw(7, number, 30, CropWeights())
        assert (again.name, again.drawn_for) == (samples[number].name, samples[number].drawn_for)
        for name, array in again.features.items():
            assert np.array_equal(array, samples[number].features[name])
    assert len({(sample.name, sample.drawn_for.chains) for sample in samples}) > 3
    others = [first.draw(8, number, 30, CropWeights()) for number in range(12)]
    assert [x.drawn_for for x in others] != [x.drawn_for for x in samples]


def test_a_sample_has_labels_for_each_of_its_atoms(folder: Path) -> None:
    complexes = ComplexSet(folder)
    for number in range(12):
        sample = complexes.draw(1, number, 25, CropWeights())
        tokens, atoms = len(sample.features["token_mask"]), len(sample.features["atom_mask"])
        assert tokens <= 25
        assert len(sample.crop.entity) == tokens
        assert len(sample.crop.atom_token) == atoms
        assert np.array_equal(sample.crop.atom_token, sample.features["atom_to_token_index"])
        assert len(sample.whole.positions) == len(sample.whole.molecules.atom_token)


def test_chains_and_interfaces_are_drawn_by_their_weights(folder: Path) -> None:
    complexes = ComplexSet(folder)
    assert complexes.probabilities.sum() == pytest.approx(1)
    kinds = {tuple(sorted(item.kinds)) for item in complexes.chains_and_interfaces if len(item.chains) == 2}
    assert (MoleculeKind.PROTEIN, MoleculeKind.DNA) in kinds
    assert (MoleculeKind.DNA, MoleculeKind.DNA) in kinds
    assert (MoleculeKind.PROTEIN, MoleculeKind.LIGAND) in kinds
    drawn = Counter(complexes.draw(2, number, 1, CropWeights()).drawn_for for number in range(1500))
    shares = [drawn[item] / 1500 for item in complexes.chains_and_interfaces]
    assert shares == pytest.approx(complexes.probabilities.tolist(), abs=0.04)


def test_weights_are_those_of_alphafold3() -> None:
    protein, dna, ligand = MoleculeKind.PROTEIN, MoleculeKind.DNA, MoleculeKind.LIGAND
    items = [
        ChainOrInterface(0, (0,), (protein,), (("x", "a"),)),
        ChainOrInterface(1, (0,), (protein,), (("x", "a"),)),
        ChainOrInterface(1, (1,), (ligand,), (("x", "b"),)),
        ChainOrInterface(1, (0, 1), (protein, ligand), (("x", "a"), ("x", "b"))),
        ChainOrInterface(2, (0, 1), (protein, dna), (("x", "a"), ("x", "c"))),
    ]
    weights = np.array([0.5 / 2 * 3, 0.5 / 2 * 3, 0.5, 4, 6])
    assert sample_probabilities(items) == pytest.approx(weights / weights.sum())


def test_clusters_of_chains() -> None:
    protein, dna, ligand = MoleculeKind.PROTEIN, MoleculeKind.DNA, MoleculeKind.LIGAND
    contacts = ChainContacts(
        (0, 1, 2, 4), (protein, protein, dna, ligand), ("GA", "GV", "GA", "ATP"), ((0, 4), (1, 4), (0, 2))
    )
    *chains, first, second, third = contacts.chains_and_interfaces(3, {"GA": "c1", "GV": "c1"})
    assert [item.chains for item in chains] == [(0,), (1,), (2,), (4,)]
    assert len({item.cluster for item in chains}) == 3
    assert first.cluster == second.cluster != third.cluster
    assert (first.entry, first.chains, first.kinds) == (3, (0, 4), (protein, ligand))
    assert len({item.cluster for item in contacts.chains_and_interfaces(3, {})}) == 7


@pytest.mark.slow
def test_a_folder_in_parts_gives_the_same_samples(folder: Path, tmp_path: Path) -> None:
    for number, names in enumerate((("4cup", "1lcd"), ("1as5",)), 1):
        entries = [
            write_complex(read_complex(ENTRIES / f"{name}.cif.gz"), f"{name}.cif.gz", tmp_path, SETTINGS)
            for name in names
        ]
        write_index(tmp_path, entries, part=f".{number}-of-2")
    whole, parts = ComplexSet(folder), ComplexSet(tmp_path)
    assert (parts.names, parts.chains_and_interfaces) == (whole.names, whole.chains_and_interfaces)
    (tmp_path / "complexes.2-of-2.json").unlink()
    with pytest.raises(InputError, match=r"complexes\.2-of-2\.json is missing"):
        ComplexSet(tmp_path)


def test_an_interrupted_folder_goes_on(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    files = {path: path.stat().st_mtime_ns for path in copy.rglob("*.*") if path.parent != copy}
    next(iter(sorted(copy.rglob("*.npz")))).unlink()
    paths = [ENTRIES / f"{name}.cif.gz" for name in ("1lcd", "4cup", "1as5")]
    write_complexes(paths, copy)
    assert {
        path: path.stat().st_mtime_ns for path in files if path.stat().st_mtime_ns != files[path]
    }.keys() <= {path for path in files if path.suffix == ".npz"}
    whole, again = ComplexSet(folder), ComplexSet(copy)
    assert np.array_equal(whole[0].positions, again[0].positions)
    assert whole.chains_and_interfaces == again.chains_and_interfaces


def test_structures_of_the_same_molecules_keep_their_coordinates(tmp_path: Path) -> None:
    first, second = ENTRIES / "1as5.cif.gz", tmp_path / "moved.cif"
    structure = gemmi.read_structure(str(first))
    structure[0].transform_pos_and_adp(gemmi.Transform(gemmi.Mat33(), gemmi.Vec3(5, 0, 0)))
    structure.make_mmcif_document().write_file(str(second))
    write_complexes([first, second], tmp_path / "out")
    complexes = ComplexSet(tmp_path / "out")
    assert len(list((tmp_path / "out" / "samples").rglob("*.safetensors"))) == 1
    moved = complexes[1].positions[complexes[1].resolved] - complexes[0].positions[complexes[0].resolved]
    assert moved == pytest.approx(np.tile([5.0, 0, 0], (len(moved), 1)), abs=1e-3)


def test_other_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no complexes for training"):
        ComplexSet(tmp_path)
    content = {"complexes": [], "clusters": {}, "version": 1}
    (tmp_path / "complexes.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="another version"):
        ComplexSet(tmp_path)
    (tmp_path / "complexes.json").write_text("[]")
    with pytest.raises(InputError, match="no complexes for training: expected object, got array"):
        ComplexSet(tmp_path)


def test_damaged_coordinates_are_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*.npz"):
        path.write_bytes(path.read_bytes()[:99])
    with pytest.raises(InputError, match=r"\.npz: damaged"):
        ComplexSet(copy).draw(0, 0, 8, CropWeights())
