"""Mistakes in jobs: one line that names the file and the line, when read or when the inputs are made."""

import json
from pathlib import Path
from typing import Any

import pytest

from features.alphafold3.inputs import InputSettings, build_sample
from foldcli.errors import ExitCode, exit_code_of
from foldcli.inputs.failures import Failures
from foldcli.inputs.molecules.read import read_jobs
from foldcli.inputs.shard import Shard
from msa.base.errors import InputError

PROTEIN: dict[str, Any] = {"id": "A", "sequence": "MKVSC"}
SUGAR = {"ligand": {"id": "B", "ccdCodes": ["NAG"]}}
LINK = [["A", 5, "SG"], ["B", 1, "C1"]]


def ligand(**content: Any) -> dict[str, Any]:
    return {"sequences": [{"protein": PROTEIN}, {"ligand": {"id": "B", **content}}]}


def protein(**content: Any) -> dict[str, Any]:
    return {"sequences": [{"protein": PROTEIN | content}]}


def bonds(*pairs: Any) -> dict[str, Any]:
    return {"sequences": [{"protein": PROTEIN}, SUGAR], "bondedAtomPairs": pairs}


def component(*, code: str = "MYL", oxygen: str = "O", bonds: str = "C1 O1 DOUB\n") -> str:
    """Return a component in mmCIF."""
    atoms = f"loop_\n_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\nC1 C\nO1 {oxygen}\n"
    columns = "".join(f"_chem_comp_bond.{name}\n" for name in ("atom_id_1", "atom_id_2", "value_order"))
    table = f"loop_\n{columns}{bonds}" if bonds else ""
    return f"data_{code}_\n_chem_comp.id {code}\n_chem_comp.type non-polymer\n{atoms}{table}"


CASES = {
    "unknown component": (ligand(ccdCodes=["NO1CODE"]), '"ligand"', "unknown component 'NO1CODE'"),
    "SMILES that cannot be read": (ligand(smiles="C1CC"), '"ligand"', "'C1CC'"),
    "half of a SMILES string": (ligand(smiles="C/C=C\nCC"), '"ligand"', "has a blank or a line end"),
    "two SMILES strings": (ligand(smiles="CCO CN"), '"ligand"', "has a blank or a line end"),
    "nothing but hydrogens": (ligand(ccdCodes=["D8U"]), '"ligand"', "no atoms besides hydrogens"),
    "two ids in one text": (protein(id="A,B"), '"id"', "'A,B' has a comma"),
    "order of a bond": (
        {"userCCD": component(bonds="C1 O1 AROM\n")} | protein(), "userCCD", "value_order is AROM",
    ),
    "bond to no atom": ({"userCCD": component(bonds="C1 O2 SING\n")} | protein(), "userCCD", "bond to O2"),
    "component without bonds": ({"userCCD": component(bonds="")} | protein(), "userCCD", "no bonds"),
    "no element": ({"userCCD": component(oxygen="Ox")} | protein(), "userCCD", "OX, which is no element"),
    "two components of one code": (
        {"userCCD": component() + component(code="myl").replace("data_", "data_2")} | protein(), "userCCD",
        "'myl': is defined twice",
    ),
    "no conformer": (ligand(smiles="C1=C=C=1"), '"ligand"', "finds no conformer"),
    "bond to a missing atom": (bonds([["A", 5, "XG"], ["B", 1, "C1"]]), "bondedAtom", "CYS has no atom 'XG'"),
    "bond to a missing residue": (bonds([["A", 9, "SG"], ["B", 1, "C1"]]), "bondedAtom", "5 residues"),
    "two bonds of two atoms": (bonds(LINK, LINK[::-1]), "bondedAtom", "two bonds between"),
    "missing alignment": (protein(unpairedMsaPath="none.a3m"), "none.a3m", "not found: none.a3m"),
    "alignment of another chain": (protein(unpairedMsa=">q\nMKV\n"), '"sequence"', "differs"),
    "two chains of one id": ({"sequences": [{"protein": PROTEIN}] * 2}, '"id"', "'A'"),
    "modification outside": (
        protein(modifications=[{"ptmType": "SEP", "ptmPosition": 9}]), "protein", "5 residues",
    ),
    "components that are none": ({"userCCD": "data_x\nfoo bar"} | protein(), "userCCD", "userCCD: 2: "),
    "paired alignments of other depths": (
        {"sequences": [
            {"protein": PROTEIN | {"pairedMsa": ">q\nMKVSC\n"}},
            {"protein": {"id": "B", "sequence": "MKW", "pairedMsa": ">q\nMKW\n>r\nM-W\n"}},
        ]}, "{", "1 and 2 rows",
    ),
    "seed that is too large": ({"modelSeeds": [2**32]} | protein(), "modelSeeds", "from 0 to"),
    "negative seed": ({"modelSeeds": [-1]} | protein(), "modelSeeds", "from 0 to"),
    "chain id with a line end": (protein(id="A\nB"), '"id"', "is not a printable word"),
    "too many tokens": (protein(sequence="ACDEFGHIKL" * 1000), "{", "10,000 tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_one_line_with_file_and_line(name: str, tmp_path: Path) -> None:
    content, place, reason = CASES[name]
    text = json.dumps({"name": "x", "dialect": "alphafold3", "version": 4} | content, indent=1)
    path = tmp_path / "job.json"
    path.write_text(text)
    failures = Failures(tmp_path, Shard())
    jobs = read_jobs([str(path)], failures)
    errors = [error for _, error in failures.failed]
    for _, job in jobs:
        with pytest.raises(InputError) as caught:
            build_sample(job, InputSettings(max_tokens=5000))
        errors.append(caught.value)
    (error,) = errors
    rows = [number for number, row in enumerate(text.splitlines(), 1) if place in row]
    message = str(error)
    assert reason in message and "\n" not in message and exit_code_of(error) == ExitCode.BAD_INPUT
    file, line, _ = message.split(":", 2)
    assert file == str(path) and int(line) in rows, message


def test_rows_of_an_alignment_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.a3m").write_text(">q\nMKVSC\n>r\nMKVS\n")
    (tmp_path / "job.json").write_text(json.dumps({"name": "x"} | protein(unpairedMsaPath="bad.a3m")))
    failures = Failures(tmp_path, Shard())
    assert not read_jobs([str(tmp_path / "job.json")], failures)
    ((_, error),) = failures.failed
    assert str(error).startswith(f"{tmp_path}/bad.a3m:3: row 2 (r) has 4 columns")
