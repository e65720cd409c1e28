"""Tests of the relaxation of short peptides, intact and damaged ones."""

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest

pytest.importorskip("openmm")
pytest.importorskip("pdbfixer")
from model.errors import RelaxError
from model.relax.amber import RelaxSettings, _add_missing_atoms, _cpu_platform, _one_line, relax
from model.relax.segments import read_segments

SETTINGS = RelaxSettings(device="cpu", max_iterations=200)


@pytest.fixture
def peptide(root: Path) -> gemmi.Structure:
    """Return residues 20 to 32 of trypsin with pLDDT-like B-factors."""
    structure = gemmi.read_structure(str(root / "tests/features/templates/data/1gbt.cif.gz"))
    structure.setup_entities()
    chain = gemmi.Chain("A")
    for number, residue in enumerate(list(structure[0][0].get_polymer())[20:32], 1):
        copy = residue.clone()
        copy.seqid = gemmi.SeqId(number, " ")
        for atom in copy:
            atom.b_iso = 50 + number
        chain.add_residue(copy)
    result = gemmi.Structure()
    result.add_model(gemmi.Model(1))
    result[0].add_chain(chain)
    return result


def heavy_atoms(structure: gemmi.Structure) -> dict[tuple[str, str], np.ndarray]:
    return {
        (str(residue.seqid), atom.name): np.array(atom.pos.tolist())
        for residue in structure[0]["A"]
        for atom in residue
        if not atom.is_hydrogen()
    }


def test_energy_falls_and_atoms_stay_near(peptide: gemmi.Structure) -> None:
    result = relax(peptide, SETTINGS)
    assert result.energy_after < result.energy_before
    assert 0 < result.rmsd < 0.5
    before, after = heavy_atoms(peptide), heavy_atoms(result.structure)
    assert before.keys() | {("12", "OXT")} == after.keys() | {("12", "OXT")}
    assert max(np.linalg.norm(after[key] - before[key]) for key in before) < 1.5
    chain = result.structure[0]["A"]
    assert [residue.name for residue in chain] == [residue.name for residue in peptide[0]["A"]]
    assert [residue[0].b_iso for residue in chain] == [50 + k for k in range(1, 13)]
    assert any(atom.is_hydrogen() for atom in chain[3])
    assert result.rounds == 1
    assert result.after.total == 0
    assert result.changes == ()
    assert result.worse == []
    assert "backbone: 0 twisted peptides" in result.describe()
    assert result.summary()["geometry_before"]["stretched_peptides"] == 0


def test_worse_backbone_is_named(peptide: gemmi.Structure) -> None:
    result = relax(peptide, SETTINGS)
    worse = replace(result, geometry_after=replace(result.geometry_before, twisted=5))
    assert worse.worse == ["twisted peptides 0 to 5"]
    assert worse.summary()["worse"] == worse.worse


def test_result_is_the_same_in_every_run(peptide: gemmi.Structure) -> None:
    first, second = (relax(peptide, SETTINGS) for _ in range(2))
    assert first.energy_after == second.energy_after
    for one, other in zip(first.structure[0]["A"], second.structure[0]["A"], strict=True):
        assert [atom.pos.tolist() for atom in one] == [atom.pos.tolist() for atom in other]


def test_many_missing_atoms_are_placed_the_same_in_every_run(peptide: gemmi.Structure) -> None:
    for residue in peptide[0]["A"]:
        for k in reversed(range(len(residue))):
            if residue[k].name not in ("N", "CA", "C"):
                del residue[k]
    first, second = (read_segments(peptide)[0] for _ in range(2))
    placed = [_add_missing_atoms(each, _cpu_platform(1))[0].positions for each in (first, second)]
    assert placed[0] == placed[1]


def test_clash_is_resolved_by_releasing_the_residues(peptide: gemmi.Structure) -> None:
    chain = peptide[0]["A"]
    side_chain = next(r for r in chain if r.find_atom("CG", "*") is not None)
    other = next(r for r in chain if abs(r.seqid.num - side_chain.seqid.num) > 3)
    position = np.array(other.find_atom("CA", "*").pos.tolist())
    side_chain.find_atom("CG", "*").pos = gemmi.Position(*(position + 0.9))
    result = relax(peptide, RelaxSettings(device="cpu"))
    assert result.before.clashes > 0
    assert result.energy_after < result.energy_before
    assert result.after.total < result.before.total


def test_missing_side_chain_atoms_are_added(peptide: gemmi.Structure) -> None:
    residue = next(r for r in peptide[0]["A"] if r.find_atom("CG", "*") is not None)
    residue.remove_atom("CG", "\0", gemmi.Element("C"))
    result = relax(peptide, SETTINGS)
    assert any("added" in change and "missing heavy atoms" in change for change in result.changes)
    assert result.structure[0]["A"][residue.seqid.num - 1].find_atom("CG", "*") is not None


def test_ligands_and_broken_backbones_are_left_out(peptide: gemmi.Structure) -> None:
    chain = peptide[0]["A"]
    chain[5].remove_atom("C", "\0", gemmi.Element("C"))
    ligand = gemmi.Residue()
    ligand.name, ligand.seqid = "HEM", gemmi.SeqId(99, " ")
    iron = gemmi.Atom()
    iron.name, iron.element = "FE", gemmi.Element("Fe")
    ligand.add_atom(iron)
    chain.add_residue(ligand)
    result = relax(peptide, SETTINGS)
    numbers = [residue.seqid.num for residue in result.structure[0]["A"]]
    assert numbers == [*range(1, 6), *range(7, 13)]
    assert "A6" in result.changes[0]
    assert "HEM A99" in result.changes[0]


def test_chain_break_is_not_pulled_together(peptide: gemmi.Structure) -> None:
    for residue in list(peptide[0]["A"])[6:]:
        for atom in residue:
            atom.pos = gemmi.Position(atom.pos.x + 30, atom.pos.y, atom.pos.z)
    result = relax(peptide, SETTINGS)
    chain = result.structure[0]["A"]
    gap = chain[5].find_atom("C", "*").pos.dist(chain[6].find_atom("N", "*").pos)
    assert gap > 25
    assert result.rmsd < 0.5


def test_unusable_structures_are_errors(peptide: gemmi.Structure) -> None:
    with pytest.raises(RelaxError, match="no coordinates"):
        relax(gemmi.Structure(), SETTINGS)
    single = peptide.clone()
    while len(single[0]["A"]) > 1:
        del single[0]["A"][1]
    with pytest.raises(RelaxError, match="at least 2 residues"):
        relax(single, SETTINGS)
    invalid = peptide.clone()
    invalid[0]["A"][3][1].pos = gemmi.Position(float("nan"), 0, 0)
    with pytest.raises(RelaxError, match="invalid coordinates"):
        relax(invalid, SETTINGS)


def test_time_limit_ends_a_relaxation(peptide: gemmi.Structure) -> None:
    with pytest.raises(RelaxError, match=r"not finished after 0\.01 s"):
        relax(peptide, RelaxSettings(device="cpu", max_seconds=0.01))


def test_atoms_at_the_same_place_give_a_result_or_a_one_line_error(peptide: gemmi.Structure) -> None:
    chain = peptide[0]["A"]
    for atom, other in zip(chain[2], chain[8], strict=False):
        atom.pos = other.pos
    try:
        result = relax(peptide, SETTINGS)
    except RelaxError as error:
        assert "\n" not in str(error)
    else:
        assert result.energy_after <= result.energy_before


def test_chains_are_capped_numbered_and_not_bonded(peptide: gemmi.Structure) -> None:
    residues = list(peptide[0]["A"])
    # two chains that continue each other, 2.5 Å farther apart than a peptide bond
    c, n = (np.array(residue.find_atom(name, "*").pos.tolist()) for residue, name in
            ((residues[5], "C"), (residues[6], "N")))  # fmt: skip
    shift = 2.5 * (n - c) / np.linalg.norm(n - c)
    structure = gemmi.Structure()
    structure.add_model(gemmi.Model(1))
    for name, part in (("A", residues[:6]), ("B", residues[6:])):
        chain = gemmi.Chain(name)
        for number, residue in enumerate(part, 1):
            copy = residue.clone()
            copy.seqid = gemmi.SeqId(number, " ")
            for atom in copy:
                position = np.array(atom.pos.tolist()) + (shift if name == "B" else 0)
                atom.pos = gemmi.Position(*position)
            chain.add_residue(copy)
        structure[0].add_chain(chain)
    structure.setup_entities()
    names = [residue.name for residue in structure[0]["A"]]
    # as in the files of predictions, the sequence has residues without atoms
    structure.get_entity_of(structure[0]["A"].get_polymer()).full_sequence = [*names, "UNK"]
    text = structure.make_pdb_string(gemmi.PdbWriteOptions(seqres_records=True))
    result = relax(gemmi.read_pdb_string(text), SETTINGS)
    chains = {chain.name: list(chain) for chain in result.structure[0]}
    assert {name: [residue.seqid.num for residue in chain] for name, chain in chains.items()} == {
        "A": [*range(1, 7)], "B": [*range(1, 7)],
    }  # fmt: skip
    for chain in chains.values():
        has_oxt = [residue.find_atom("OXT", "*") is not None for residue in chain]
        assert has_oxt == [False] * 5 + [True]
        # the free amino group
        hydrogens = [sum(atom.name in ("H", "H2", "H3") for atom in residue) for residue in chain]
        assert hydrogens[0] == 3 and max(hydrogens[1:]) <= 1
    gap = chains["A"][-1].find_atom("C", "*").pos.dist(chains["B"][0].find_atom("N", "*").pos)
    assert gap > 2.5
    assert chains["B"][0][0].b_iso == 57
    lines = result.pdb().splitlines()
    assert [line[21] for line in lines if line.startswith("TER")] == ["A", "B"]
    assert next(line.split()[2:5] for line in lines if line.startswith("SEQRES")) == ["A", "7", names[0]]


def test_messages_name_the_residue_in_the_file(peptide: gemmi.Structure) -> None:
    segments, _ = read_segments(peptide)
    residue = segments[0].residues[2]
    message = _one_line(ValueError("No template found for residue 2 (TYR).  Atoms are missing."), segments)
    assert message == f"No template found for {residue.name} A{residue.seqid}. Atoms are missing"
