"""Every input of the network against OpenFold3's featuriser (make_goldens.py)."""

import json

import numpy as np
import pytest
import rdkit

from features.alphafold3.alignments import AlignmentLimits
from features.alphafold3.inputs import InputSettings, Sample, build_sample
from features.alphafold3.templates import TokenTemplates, template_features
from features.assembly.atoms import build_atoms
from features.assembly.job import MoleculeJob, Polymer
from features.assembly.tokens import build_tokens
from features.chemistry.residue_classes import MoleculeKind, component_code, residue_class
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError
from msa.base.network_inputs import ALL_ATOM
from tests.features.alphafold3.goldens import golden
from tests.features.alphafold3.query_jobs import FOLDER, read_jobs

NAMES = [content["name"] for content in json.loads((FOLDER / "jobs.json").read_text())]
SEED = 7
# one value of the arc tangent may differ in the last bit
ROUNDED = {"deletion_value"}


def superposed_rms(first: np.ndarray, second: np.ndarray) -> float:
    """Return the root mean square distance in Å after the best rotation without reflection."""
    first, second = (array - array.mean(0) for array in (first.astype(float), second.astype(float)))
    left, _, right = np.linalg.svd(first.T @ second)
    sign = np.diag([1, 1, np.sign(np.linalg.det(left @ right))])
    return float(np.sqrt(((first @ left @ sign @ right - second) ** 2).sum(-1).mean()))


@pytest.fixture(scope="module")
def sample() -> dict[str, Sample]:
    """Return the samples by job, each made once."""
    return {}


def build(name: str, made: dict[str, Sample]) -> Sample:
    if name not in made:
        made[name] = build_sample(read_jobs()[name], InputSettings(seed=SEED, chiral_residues=False))
    return made[name]


@pytest.mark.parametrize("name", NAMES)
def test_features_equal_those_of_openfold3(name: str, sample: dict[str, Sample]) -> None:
    made, expected = build(name, sample), golden(name)
    for key in ALL_ATOM.keys() - {"ref_pos"}:
        assert made.features[key].shape == expected[key].shape, key
        if key in ROUNDED:
            np.testing.assert_allclose(made.features[key], expected[key], rtol=2e-7, atol=0, err_msg=key)
        else:
            np.testing.assert_array_equal(made.features[key], expected[key], err_msg=key)
    assert made.atoms.name.tolist() == [text.decode() for text in expected["atom_name"]]
    assert made.atoms.code.tolist() == [text.decode() for text in expected["res_name"]]


@pytest.mark.parametrize("name", NAMES)
def test_conformers_equal_those_of_openfold3_up_to_rotation(name: str, sample: dict[str, Sample]) -> None:
    if not rdkit.__version__.startswith("2025.09"):
        pytest.skip("the goldens were made with RDKit 2025.9, and others give other conformers")
    made, expected = build(name, sample).features, golden(name)
    for molecule in np.unique(made["ref_space_uid"]):
        rows = made["ref_space_uid"] == molecule
        assert superposed_rms(made["ref_pos"][rows], expected["ref_pos"][rows]) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_arrays_have_the_types_and_axes_of_the_schema(name: str, sample: dict[str, Sample]) -> None:
    made = build(name, sample)
    sizes = {"N": len(made.tokens), "A": len(made.atoms), "S": len(made.features["msa"]), "T": 4}
    assert list(made.features) == list(ALL_ATOM)
    for key, array in ALL_ATOM.items():
        assert made.features[key].dtype == array.dtype, key
        assert made.features[key].shape == array.shape(sizes), key


def test_template_features_equal_those_of_openfold3() -> None:
    with np.load(FOLDER / "data" / "templates.npz") as file:
        expected = dict(file)
    job = MoleculeJob(
        "two chains", (Polymer(MoleculeKind.PROTEIN, "GGGG", ("A",)), Polymer(MoleculeKind.DNA, "AC", ("B",)))
    )
    tokens = build_tokens(build_atoms(job))
    assert tokens.chain.tolist() == expected["chain"].tolist()
    rows = TokenTemplates(np.zeros((2, 6), int), expected["pseudo_beta"], expected["frames"])
    made = template_features(tokens, rows, 2)
    np.testing.assert_array_equal(made["template_distogram"], expected["template_distogram"])
    np.testing.assert_allclose(made["template_unit_vector"], expected["template_unit_vector"], atol=3e-6)


def test_same_seed_gives_same_bytes_and_another_seed_others() -> None:
    job = read_jobs()["paired_dimer"]
    first, again, other = (build_sample(job, InputSettings(seed=seed)).features for seed in (1, 1, 2))
    assert all(first[key].tobytes() == again[key].tobytes() for key in ALL_ATOM)
    assert first["ref_pos"].tobytes() != other["ref_pos"].tobytes()


def test_amino_acids_have_the_handedness_of_the_dictionary() -> None:
    job = MoleculeJob(
        "handed", (read_jobs()["d_amino_acids"].entities[0], Polymer(MoleculeKind.PROTEIN, "AVKF", ("B",)))
    )
    made = build_sample(job, InputSettings(seed=3))
    signs: dict[str, set[float]] = {}
    for molecule in np.unique(made.atoms.molecule):
        rows = made.atoms.molecule == molecule
        place = dict(zip(made.atoms.name[rows], made.features["ref_pos"][rows].astype(float), strict=True))
        if "CB" in place:
            vectors = [place[name] - place["CA"] for name in ("N", "C", "CB")]
            signs.setdefault(str(made.atoms.code[rows][0]), set()).add(np.sign(np.linalg.det(vectors)))
    assert {code: found for code, found in signs.items() if found == {-1.0}}.keys() == {"DAL", "DVA", "DPN"}
    assert {code for code, found in signs.items() if found == {1.0}} == {"ALA", "VAL", "LYS", "PHE"}


def test_too_many_tokens_are_refused() -> None:
    with pytest.raises(InputError, match="50 tokens; at most 49 are allowed"):
        build_sample(read_jobs()["small"], InputSettings(max_tokens=49))


def test_alignment_of_another_sequence_is_refused() -> None:
    polymer = Polymer(MoleculeKind.PROTEIN, "GAS", ("A",), alignment=parse_alignment(b">q\nGAST\n"))
    with pytest.raises(InputError, match=r"chain A: the first row .* \(4 residues instead of 3\)"):
        build_sample(MoleculeJob("x", (polymer,)), InputSettings())


def test_paired_alignments_of_different_depth_are_refused() -> None:
    polymers = [
        Polymer(MoleculeKind.PROTEIN, "GAS", (chain,), paired=parse_alignment(text))
        for chain, text in (("A", b">q\nGAS\n"), ("B", b">q\nGAS\n>r\nGAS\n"))
    ]
    with pytest.raises(InputError, match="paired alignments of different chains have 1 and 2 rows"):
        build_sample(MoleculeJob("x", tuple(polymers)), InputSettings())


def test_profile_has_the_rows_within_the_limits_and_the_query_alone_with_paired_rows() -> None:
    alignment, letters = parse_alignment(b">q\nMKV\n>a\nMRV\n>b\nAKV\n>c\nMKA\n"), "MKVAR"
    settings = InputSettings(limits=AlignmentLimits(unpaired_read=2))
    classes = [residue_class(component_code(letter, MoleculeKind.PROTEIN)) for letter in letters]
    for given, expected in (
        ({"alignment": alignment}, [[1, 0, 0, 0, 0], [0, 0.5, 0, 0, 0.5], [0, 0, 1, 0, 0]]),
        ({"paired": alignment}, [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]),
    ):
        polymer = Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), **given)
        profile = build_sample(MoleculeJob("x", (polymer,)), settings).features["profile"]
        assert profile[:, classes].tolist() == expected
