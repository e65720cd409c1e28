"""Tests of the checks: reference coordinates pass, and each deformation fails the check meant for it."""

import numpy as np
import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from features.assembly.job import Ligand, MoleculeJob
from features.chemistry.conformers import ConformerGenerator
from foldcli.outputs.all_atom.restraints import build_restraints
from model.all_atom.checks import CHECKS, Checks, _is_near_in_bonds, _plane_distance, check_structure
from model.all_atom.neighbours import close_pairs
from tests.molecules import GLYCAN, MIXTURE, molecules, reference_positions


def ligand(code: str) -> str:
    return f">L|ccd\n{code}\n"


def check(fasta: str, positions: np.ndarray) -> Checks:
    atoms, structure = molecules(fasta)
    return check_structure(structure, positions, build_restraints(atoms, structure))


def ideal(fasta: str) -> np.ndarray:
    return reference_positions(molecules(fasta)[0])


def index(fasta: str, *names: str) -> list[int]:
    all_names = molecules(fasta)[1].atom_name.tolist()
    return [all_names.index(name) for name in names]


@pytest.mark.parametrize("code", ["ATP", "STI", "CLR", "RET", "NAG", "TA1", "GOL"])
def test_ideal_coordinates_pass(code: str) -> None:
    result = check(ligand(code), ideal(ligand(code)))
    assert result.summary == "passed" and not result.failures


def test_mirrored_molecules_fail_in_chirality_alone() -> None:
    fasta = ligand("CLR")
    result = check(fasta, ideal(fasta) * [1, 1, -1])
    assert result.failed == {"chirality": 8}
    assert result.summary == "chirality 8"
    assert {failure.atoms[0] for failure in result.failures} == {
        f"L:CLR {name}" for name in ("C3", "C8", "C9", "C10", "C13", "C14", "C17", "C20")
    }


def test_handedness_of_smiles_is_that_of_the_string() -> None:
    generator = ConformerGenerator(3)
    for letters in ("@", "@@"):
        fasta = f">L|smiles\nC[C{letters}H](O)c1ccccc1\n"
        (molecule,) = molecules(fasta)[0].molecules
        positions = generator.generate_all([(molecule.component, False)])[0].positions
        assert check(fasta, positions).summary == "passed"
        assert check(fasta, positions * [1, -1, 1]).failed == {"chirality": 1}


def test_centres_that_the_string_leaves_open_and_phosphates_have_no_handedness() -> None:
    assert "chirality" not in check(fasta := ">L|smiles\nCC(O)c1ccccc1\n", ideal(fasta)).chains[0].counts
    # ribose alone: the oxygens of a phosphate differ only as they are drawn
    assert check(ligand("ATP"), ideal(ligand("ATP"))).chains[0].counts["chirality"] == (4, 0)


def test_amino_acids_and_nucleotides_have_handedness() -> None:
    fasta = ">A|protein\nTAG\n>B|rna\nG\n"
    structure = molecules(fasta)[1]
    positions = ideal(fasta)
    before = check(fasta, positions)
    assert [chain.counts["chirality"] for chain in before.chains] == [(3, 0), (4, 0)]
    alanine = np.flatnonzero(structure.atom_residue == 1)
    centre = positions[alanine].mean(axis=0)
    positions[alanine] = centre + (positions[alanine] - centre) * [-1, 1, 1]
    result = check(fasta, positions)
    assert result.failed["chirality"] == 1
    assert [f.atoms[0] for f in result.failures if f.check == "chirality"] == ["A:ALA 2 CA"]


def test_turned_double_bonds_fail() -> None:
    fasta = ligand("OLA")  # oleic acid, cis
    positions = ideal(fasta)
    first, second, tail = index(fasta, "C9", "C10", "C11")
    names = molecules(fasta)[1].atom_name.tolist()
    moved = [names.index(f"C{number}") for number in range(11, 19)]
    axis = positions[second] - positions[first]
    axis /= np.linalg.norm(axis)
    offsets = positions[moved] - positions[second]
    positions[moved] = positions[second] + 2 * np.outer(offsets @ axis, axis) - offsets  # half a turn
    result = check(fasta, positions)
    assert result.failed["double_bond_stereo"] == 1
    assert f"L:OLA {names[tail]}" in result.failures[0].atoms or "L:OLA C8" in result.failures[0].atoms


def test_stretched_bonds_and_bent_angles_fail_beyond_a_quarter() -> None:
    fasta = ligand("GOL")
    positions = ideal(fasta)
    oxygen, carbon = index(fasta, "O1", "C1")
    bond = positions[oxygen] - positions[carbon]
    for factor, fails in ((1.2, False), (1.3, True), (0.72, True)):
        stretched = positions.copy()
        stretched[oxygen] = positions[carbon] + factor * bond
        assert ("bond_lengths" in check(fasta, stretched).failed) == fails
    folded = positions.copy()
    (neighbour,) = index(fasta, "C2")
    direction = positions[neighbour] - positions[carbon]
    turned = 0.25 * bond / np.linalg.norm(bond) + direction / np.linalg.norm(direction)
    folded[oxygen] = positions[carbon] + np.linalg.norm(bond) * turned / np.linalg.norm(turned)
    assert "bond_angles" in check(fasta, folded).failed


def test_bonds_between_residues_are_checked() -> None:
    broken = check(">A|protein\nAG\n", ideal(">A|protein\nAG\n"))
    assert broken.failed == {"bond_lengths": 1}
    assert broken.failures[0].atoms == ("A:ALA 1 C", "A:GLY 2 N")
    assert broken.failures[0].limit == pytest.approx(1.33 * 1.25)
    atoms, structure = molecules(GLYCAN)
    result = check_structure(structure, reference_positions(atoms), build_restraints(atoms, structure))
    assert ("A:ASN 2 ND2", "B:NAG 1 C1") in [failure.atoms for failure in result.failures]
    # sugars that are one molecule have its geometry
    assert result.chains[1].counts["bond_lengths"][1] == 1


def test_flatness_of_rings_and_double_bonds() -> None:
    fasta = ligand("STI")
    positions = ideal(fasta)
    assert check(fasta, positions).chains[0].counts["aromatic_flatness"][0] == 4
    atoms, structure = molecules(fasta)
    ring = build_restraints(atoms, structure).aromatic_rings[0]
    normal = np.linalg.svd(positions[ring] - positions[ring].mean(axis=0))[2][-1]
    for sign in (1, -1):
        bent = positions.copy()
        bent[ring[0]] += sign * 0.6 * normal
        assert "aromatic_flatness" in check(fasta, bent).failed


def test_distances_from_a_plane_count_on_both_sides() -> None:
    angle = np.arange(6) * np.pi / 3
    positions = np.column_stack([np.cos(angle), np.sin(angle), [0.0, 0, 0, 0, 0.1, -0.9]])
    centred = positions - positions.mean(axis=0)
    largest = np.abs(centred @ np.linalg.svd(centred)[2][-1]).max()
    for mirrored in (positions, -positions):
        assert _plane_distance(mirrored) == pytest.approx(largest)


def test_saturated_rings_must_not_be_flat() -> None:
    fasta = ">L|smiles\nC1CCCCC1\n"
    positions = ideal(fasta)
    assert check(fasta, positions).summary == "passed"
    positions[:, 2] = 0
    angle = np.arange(6) * np.pi / 3
    positions[:, :2] = 1.54 * np.column_stack([np.cos(angle), np.sin(angle)])
    assert "ring_pucker" in check(fasta, positions).failed


def test_flat_double_bonds() -> None:
    fasta = ">L|smiles\nCC(C)=C(C)C\n"
    positions = ideal(fasta)
    assert check(fasta, positions).chains[0].counts["double_bond_flatness"] == (1, 0)
    first, second = index(fasta, "C2", "C4")
    axis = positions[second] - positions[first]
    axis /= np.linalg.norm(axis)
    for name in ("C5", "C6"):
        (atom,) = index(fasta, name)
        offset = positions[atom] - positions[second]
        along = (offset @ axis) * axis
        positions[atom] = positions[second] + along + np.cross(axis, offset - along)  # a quarter turn
    assert "double_bond_flatness" in check(fasta, positions).failed


def test_clashes_within_and_between_molecules() -> None:
    fasta = ligand("CLR")
    positions = ideal(fasta)
    first, last = index(fasta, "C1", "C27")
    positions[last] = positions[first] + [0, 0, 0.8]
    assert "internal_clashes" in check(fasta, positions).failed
    pair = ">A|protein\nG\n>L|ccd\nGOL\n"
    positions = ideal(pair)
    carbon, oxygen = index(pair, "CA", "O1")
    ligand_rows = molecules(pair)[1].atom_chain == 1
    for distance, fails in ((2.5, False), (2.3, True)):  # 0.75 × (1.7 + 1.55)
        moved = positions.copy()
        # the glycerol hangs on its oxygen, away from the glycine
        moved[ligand_rows] = positions[ligand_rows] - positions[oxygen]
        direction = moved[ligand_rows].mean(axis=0)
        direction /= np.linalg.norm(direction)
        outward = positions[carbon] - positions[~ligand_rows].mean(axis=0)
        outward /= np.linalg.norm(outward)
        rotation = _rotation(direction, outward)
        moved[ligand_rows] = moved[ligand_rows] @ rotation.T + positions[carbon] + distance * outward
        failures = [f.atoms for f in check(pair, moved).failures if f.check == "clashes"]
        assert (("A:GLY 1 CA", "L:GOL O1") in failures) == fails


def _rotation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the rotation that takes one unit vector to another."""
    axis, cosine = np.cross(first, second), float(first @ second)
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cosine)


def test_ions_are_judged_by_covalent_radii() -> None:
    fasta = ">A|protein\nH\n>Z|ccd\nZN\n"
    positions = ideal(fasta)
    nitrogen, zinc = index(fasta, "NE2", "ZN")
    for distance, fails in ((2.0, False), (1.2, True)):
        outward = positions[nitrogen] - positions[:-1].mean(axis=0)
        positions[zinc] = positions[nitrogen] + distance * outward / np.linalg.norm(outward)
        assert ("clashes" in check(fasta, positions).failed) == fails


@pytest.mark.parametrize("code", ["HEM", "SF4", "B12", "CLA"])
def test_coordination_has_no_fixed_angles(code: str) -> None:
    assert check(ligand(code), ideal(ligand(code))).summary == "passed"


def test_atoms_around_a_metal_do_not_clash() -> None:
    restraints = build_restraints(*molecules(ligand("FES")))
    assert len(restraints.bonds) == 4
    assert len(restraints.angles) == len(restraints.pairs) == 0


def test_molecules_that_rdkit_refuses_are_named() -> None:
    atoms = "\n".join(f"BAD {name} {name[0]} 0" for name in ("C1", "F1", "F2", "F3", "F4", "F5"))
    bonds = "\n".join(f"BAD C1 F{number} SING" for number in range(1, 6))
    text = (
        "data_BAD\n_chem_comp.id BAD\n_chem_comp.type NON-POLYMER\nloop_\n_chem_comp_atom.comp_id\n"
        "_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"
        f"{atoms}\nloop_\n_chem_comp_bond.comp_id\n_chem_comp_bond.atom_id_1\n"
        f"_chem_comp_bond.atom_id_2\n_chem_comp_bond.value_order\n{bonds}\n"
    )
    job = MoleculeJob("bad", (Ligand(("L",), ("BAD",)), Ligand(("M",), ("GOL",))), components=text)
    atoms_of_job, structure = molecules(job)
    positions = np.random.default_rng(0).normal(0, 40, (len(structure.atom_name), 3))
    result = check_structure(structure, positions, build_restraints(atoms_of_job, structure))
    assert result.chains[0].unchecked == "BAD: RDKit does not accept its valences"
    assert not result.chains[0].counts and result.chains[1].counts["bond_lengths"] == (5, 5)
    assert result.summary.endswith("L not checked")


def test_results_as_json_name_every_chain_and_check() -> None:
    result = check(MIXTURE, ideal(MIXTURE)).as_dict()
    assert [chain["chain"] for chain in result["chains"]] == list("ABCDEF")
    assert {key for chain in result["chains"] for key in chain["counts"]} <= CHECKS.keys()
    assert result["failed"]["bond_lengths"] == 5  # the residues stand apart


def test_close_pairs_are_those_of_a_full_search() -> None:
    positions = np.random.default_rng(0).uniform(-20, 20, (400, 3))
    distances = np.linalg.norm(positions[:, None] - positions, axis=-1)
    expected = np.argwhere(np.triu(distances <= 4.0, 1))
    part = np.arange(400)
    assert close_pairs(positions, 4.0, part).tolist() == expected.tolist()
    different = expected[(expected % 3)[:, 0] != (expected % 3)[:, 1]]
    assert close_pairs(positions, 4.0, part % 3).tolist() == different.tolist()
    assert close_pairs(positions[:1], 4.0, part[:1]).shape == (0, 2)


def test_atoms_within_three_bonds_are_those_of_a_full_search() -> None:
    _, structure = molecules(">A|protein\nGCPW\n>L|ccd\nNAG\n>Z|ccd\nZN\n")
    count = len(structure.atom_name)
    bonded = np.zeros((count, count), bool)
    bonded[structure.bonds[:, 0], structure.bonds[:, 1]] = True
    step = bonded | bonded.T | np.eye(count, dtype=bool)
    pairs = np.argwhere(~np.eye(count, dtype=bool))
    expected = np.linalg.matrix_power(step.astype(np.int64), 3) > 0
    assert (_is_near_in_bonds(structure, pairs) == expected[tuple(pairs.T)]).all()
