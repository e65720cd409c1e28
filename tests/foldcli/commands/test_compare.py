"""Tests of `foldcli compare`."""

import json
from pathlib import Path
from typing import Any

import gemmi
import pytest

from tests.command_process import run_foldcli
from tests.model.comparison.cases import write_cases


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Return the structure of a protein with DNA."""
    list(write_cases(tmp_path, ["1lcd_noisy"]))
    return tmp_path / "1lcd_noisy_ref.pdb"


def compared(*args: str | Path) -> tuple[list[dict[str, Any]], str]:
    result = run_foldcli(["compare", "--json", *args])
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), result.stderr


def test_chains_are_found_whatever_their_names_and_numbers(reference: Path, tmp_path: Path) -> None:
    model = gemmi.read_structure(str(reference))
    for name, new in (("A", "Z"), ("B", "A"), ("C", "B")):
        model.rename_chain(name, new)
    for residue in model[0]["Z"]:
        residue.seqid.num += 1000
    del model[0]["Z"][:10]
    model.write_pdb(str(tmp_path / "model.pdb"))
    (row,), warnings = compared(tmp_path / "model.pdb", "--reference", reference)
    assert row["chains"] == {"B": "A", "C": "B", "A": "Z"}
    assert (row["aligned"], row["residues"]) == (63, 73)
    assert row["rmsd"] == 0 and row["tm_score"] == pytest.approx(63 / 73, abs=1e-3)
    assert row["lddt"] < 1 and row["residues_lddt"]["A"][0] == 0  # missing residues count
    assert "residues of the reference that the model lacks: 10 in A" in warnings


def test_a_missing_chain_counts_as_wrong(reference: Path, tmp_path: Path) -> None:
    model = gemmi.read_structure(str(reference))
    model[0].remove_chain("B")
    model.write_pdb(str(tmp_path / "model.pdb"))
    (row,), warnings = compared(tmp_path / "model.pdb", "--reference", reference)
    assert {name: scores["dockq"] for name, scores in row["interfaces"].items()} == {
        "B-C": 0, "B-A": 0, "C-A": 1
    }  # fmt: skip
    assert row["dockq"] == pytest.approx(1 / 3, abs=1e-4)
    assert row["gdt_ts"] == pytest.approx(62 / 73, abs=1e-4)
    assert "chains of the reference without a partner, which count as wrong" in warnings


def test_ligands_with_the_number_of_a_residue_and_of_each_other_are_compared(
    reference: Path, tmp_path: Path
) -> None:
    lines = [line for line in reference.read_text().splitlines() if line.startswith("ATOM")]
    first = next(line for line in lines if line[21] == "A")
    x, y, z = (float(first[k : k + 8]) for k in (30, 38, 46))
    for shift in (3.0, -3.0):
        lines.append("TER")
        for k, name in enumerate(("C1", "C2", "O3")):
            xyz = f"{x + shift:8.3f}{y + 1.4 * k:8.3f}{z + k * k:8.3f}"
            lines.append(f"HETATM 9999  {name}  LIG A{first[22:26]}    {xyz}  1.00  9.00           {name[0]}")
    both = tmp_path / "both.pdb"
    both.write_text("\n".join([*lines, "END", ""]))
    (row,), _ = compared(both, "--reference", both)
    name = f"A:LIG{first[22:26].strip()}"
    assert {key: values["rmsd"] for key, values in row["ligands"].items()} == {name: 0, f"{name}.2": 0}


def test_bad_input_is_named(reference: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.pdb"
    text.write_text("nothing\n")
    result = run_foldcli(["compare", text, "--reference", reference])
    assert result.returncode == 3 and "neither an mmCIF nor a PDB file" in result.stderr
    list(write_cases(tmp_path, ["1as5_noisy"]))
    result = run_foldcli(["compare", tmp_path / "1as5_noisy_mod.pdb", "--reference", reference])
    assert result.returncode == 3 and "no chain has the sequence" in result.stderr
    missing = tmp_path / "missing.pdb"
    result = run_foldcli(["compare", text, missing, reference, "--reference", reference])
    assert result.returncode == 5 and len(result.stdout.splitlines()) == 2
    assert f"error: {missing}: no such file or directory\n" in result.stderr
    out = tmp_path / "scores.tsv"
    for code in (0, 2):
        result = run_foldcli(["compare", reference, "--reference", reference, "-o", out])
        assert result.returncode == code, result.stderr
    assert len(out.read_text().splitlines()) == 2
    result = run_foldcli(["compare", reference, "--reference", reference, "-o", "/dev/stdout"])
    assert result.returncode == 0 and result.stdout == out.read_text()
