"""Ligands of a screen: tables, lists of SMILES strings, SDF files, and their jobs."""

from pathlib import Path

import pytest
from rdkit import Chem
from rdkit.Chem import rdDistGeom

from features.assembly.job import MoleculeJob, Polymer
from features.chemistry.conformers import interrupts_kept
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.failures import Failures
from foldcli.inputs.molecules.ligands import read_ligands, screen_jobs

ALANINE = "C[C@H](N)C(=O)O"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.tsv", "name\tnote\tsmiles\nethanol\tx\tCCO\nbad\tx\tC1CC\nacid\tx\tCC(=O)O\nacid\ty\tCCC(=O)O\n"),
        ("l.csv", 'smiles,id\nCCO,ethanol\nC1CC,bad\n"CC(=O)O",acid\nCCC(=O)O,acid\n'),
        ("l.smi", "CCO ethanol\nC1CC bad\nCC(=O)O\tacid\nCCC(=O)O acid\n"),
        ("l.txt", "smiles id\nCCO ethanol\nC1CC bad\nCC(=O)O acid\nCCC(=O)O acid\n"),
    ],
)
def test_tables_give_ligands_and_bad_rows_one_line_each(
    name: str, text: str, tmp_path: Path, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    found = read_ligands(path, failures)
    assert [(identifier, ligand.smiles) for identifier, ligand in found] == [
        ("ethanol", "CCO"), ("acid", "CC(=O)O"), ("acid_2", "CCC(=O)O"),
    ]  # fmt: skip
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "C1CC" in row)
    ((_, error),) = failures.failed
    assert str(error) == f"{path}:{line}: RDKit cannot read the SMILES string 'C1CC'"
    assert "1 ligand renamed, because an earlier ligand has the same id: acid → acid_2" in caplog.messages


def test_codes_are_checked(tmp_path: Path, failures: Failures) -> None:
    (tmp_path / "l.csv").write_text("id,ccd\na,ATP\nb,NOTACODE\n,hem\n")
    found = read_ligands(tmp_path / "l.csv", failures)
    assert [(identifier, ligand.codes) for identifier, ligand in found] == [
        ("a", ("ATP",)),
        ("ligand_3", ("HEM",)),
    ]
    ((_, error),) = failures.failed
    assert str(error).startswith(f"{tmp_path}/l.csv:3: unknown component 'NOTACODE'")


def test_records_of_sdf_files_keep_their_handedness(tmp_path: Path, failures: Failures) -> None:
    molecule = Chem.AddHs(Chem.MolFromSmiles(ALANINE))
    with interrupts_kept():
        rdDistGeom.EmbedMolecule(molecule, randomSeed=1)
    block = Chem.MolToMolBlock(molecule)
    records = [
        "alanine" + block, block + "> <ID>\nsecond\n\n", block, "broken\n\n\n  x  y\n", "",
    ]  # fmt: skip
    path = tmp_path / "l.sdf"
    path.write_text("$$$$\n".join(records))
    found = read_ligands(path, failures)
    assert [identifier for identifier, _ in found] == ["alanine", "second", "ligand_3"]
    assert {ligand.smiles for _, ligand in found} == {Chem.CanonSmiles(ALANINE)}
    ((_, error),) = failures.failed
    line = path.read_text().splitlines().index("broken") + 1
    assert str(error).startswith(f"{path}:{line}: RDKit cannot read")


def test_a_screen_pairs_each_protein_with_each_ligand(tmp_path: Path, failures: Failures) -> None:
    proteins = [
        (name, MoleculeJob(name, (Polymer(MoleculeKind.PROTEIN, "MKV", ("A", "B")),))) for name in ("p", "q")
    ]
    (tmp_path / "l.smi").write_text("CCO x/1\nC y\n")
    jobs = screen_jobs(proteins, read_ligands(tmp_path / "l.smi", failures))
    assert [name for name, _ in jobs] == ["p_and_x_1", "p_and_y", "q_and_x_1", "q_and_y"]
    ligand = jobs[2][1].entities[1]
    assert (ligand.chains, ligand.line, jobs[2][1].location_of(ligand)) == (
        ("C",),
        1,
        (str(tmp_path / "l.smi"), 1),
    )
