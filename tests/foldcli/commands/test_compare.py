"""Tests of `foldcli compare`."""

import json
from pathlib import Path

import gemmi
import numpy as np
import pytest

from tests.command_process import run_foldcli

# lDDT, lDDT of CA, RMSD and RMSD of CA by biotite, TM-score by tmtools, mean DockQ by DockQ
PEERS = {
    "1a7g": (0.7597, 0.7563, 1.2088, 1.1790, 0.8893, None),
    "1a8o": (0.7573, 0.7733, 1.2102, 1.1212, 0.8823, None),
    "1gbt": (0.7544, 0.7520, 1.2156, 1.2058, 0.9558, None),
    "2ofg": (0.7610, 0.7778, 1.2057, 1.1403, 0.9206, None),
    "2xhe": (0.7518, 0.7554, 1.3072, 1.3004, 0.9821, 0.791),
    "4cup": (0.7527, 0.7532, 1.2371, 1.1825, 0.9214, None),
    "4zhl": (0.7373, 0.7417, 1.3701, 1.3249, 0.9547, 0.653),
}
COLUMNS = ("lddt", "lddt_ca", "rmsd", "rmsd_ca", "tm_score", "dockq")


def perturbed(root: Path, folder: Path) -> None:
    """Write NAME_ref.pdb and NAME_mod.pdb, with the random shifts for which the peers gave PEERS."""
    rng = np.random.default_rng(0)
    for path in sorted((root / "tests/features/templates/data").glob("*.cif.gz")):
        structure = gemmi.read_structure(str(path))
        structure.setup_entities()
        structure.remove_alternative_conformations()
        structure.remove_hydrogens()
        structure.remove_ligands_and_waters()
        while len(structure) > 1:
            del structure[1]
        structure.write_pdb(str(folder / f"{path.name[:4]}_ref.pdb"))
        for chain in structure[0]:
            shift = rng.normal(0, 1.2, 3)
            for residue in chain:
                for atom in residue:
                    moved = np.array(atom.pos.tolist()) + rng.normal(0, 0.7, 3) + shift
                    atom.pos = gemmi.Position(*moved)
        structure.write_pdb(str(folder / f"{path.name[:4]}_mod.pdb"))


def compared(*args: str | Path) -> list[dict]:
    result = run_foldcli(["compare", "--json", *args])
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_scores_equal_those_of_peers(root: Path, tmp_path: Path) -> None:
    perturbed(root, tmp_path)
    for name, peer in PEERS.items():
        (row,) = compared(tmp_path / f"{name}_mod.pdb", "--reference", tmp_path / f"{name}_ref.pdb")
        ours = [row[column] for column in COLUMNS]
        assert (ours[-1] is None) == (peer[-1] is None)
        # biotite does not rename equivalent atoms
        assert ours[:5] == pytest.approx(peer[:5], abs=6e-4), name
        if peer[-1] is not None:
            assert ours[-1] == pytest.approx(peer[-1], abs=6e-4)


def test_chains_are_found_whatever_their_names_and_numbers(root: Path, tmp_path: Path) -> None:
    perturbed(root, tmp_path)
    model = gemmi.read_structure(str(tmp_path / "2xhe_ref.pdb"))
    model.rename_chain("A", "Z")
    model.rename_chain("B", "A")
    for residue in model[0]["Z"]:
        residue.seqid.num += 1000
    del model[0]["Z"][:10]
    model.write_pdb(str(tmp_path / "model.pdb"))
    (row,) = compared(tmp_path / "model.pdb", "--reference", tmp_path / "2xhe_ref.pdb")
    assert row["chains"] == {"A": "Z", "B": "A"}
    assert row["aligned"] == row["residues"] - 10
    assert row["rmsd"] == pytest.approx(0, abs=1e-3) and row["tm_score"] == pytest.approx(
        row["aligned"] / row["residues"], abs=1e-3
    )
    assert row["lddt"] < 1  # missing residues count


def test_bad_input_is_named(root: Path, tmp_path: Path) -> None:
    perturbed(root, tmp_path)
    reference = tmp_path / "1a8o_ref.pdb"
    text = tmp_path / "text.pdb"
    text.write_text("nothing\n")
    result = run_foldcli(["compare", text, "--reference", reference])
    assert result.returncode == 3 and "neither an mmCIF nor a PDB file" in result.stderr
    result = run_foldcli(["compare", tmp_path / "1gbt_mod.pdb", "--reference", reference])
    assert result.returncode == 3 and "no chain has the sequence" in result.stderr
    result = run_foldcli(["compare", text, reference, "--reference", reference])
    assert result.returncode == 5 and len(result.stdout.splitlines()) == 2
