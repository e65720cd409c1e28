"""Exported jobs are read by the readers of the programs themselves.

Each program needs libraries of its own releases, so that it has an environment of its own, whose Python is
named by an environment variable, such as FOLDCLI_PYTHON_BOLTZ; without, the test is skipped.
"""

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.foldcli.exports.conftest import GB1, UBIQUITIN, Family

READERS = Path(__file__).parent / "readers"
Export = Callable[..., Path]


def read(program: str, *arguments: object) -> Any:
    """Return what a program's reader prints of its jobs."""
    variable = f"FOLDCLI_PYTHON_{program.upper()}"
    if (python := os.environ.get(variable)) is None:
        pytest.skip(f"{variable} does not name a Python that has {program}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, str(READERS / f"read_{program}.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)


def decode(rows: Sequence[Sequence[int]], query: str) -> list[str]:
    """Return rows of residue numbers as letters, given the first row, which is the query."""
    letters = dict(zip(rows[0], query, strict=True))
    assert len(set(letters.values())) == len(letters)
    return ["".join(letters.get(number, "?") for number in row) for row in rows]


def pairs_of(rows: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Return the paired rows of the chains A and C after the queries."""
    first, second = rows["A"], rows["C"]
    assert (first[0], second[0]) == (UBIQUITIN, GB1) and len(first) == len(second)
    return set(zip(first[1:], second[1:], strict=True))


@pytest.mark.parametrize("options", [(), ("--msa-files",)])
def test_alphafold3_reads_alignments_and_pairs(
    export: Export, family: Family, options: tuple[str, ...]
) -> None:
    path = export("af3", "complex.json", *options)
    text = path.read_text().replace('"project": "unknown field",', "")
    path.write_text(text.replace('"laboratory": {"note": 1.50, "empty": []},', ""))
    (job,) = read("alphafold3", path)
    assert job["seeds"] == [7, 11] and job["chains"] == ["A", "B", "R", "C", "D", "L", "M"]
    assert job["bonds"] == [[["A", 48, "NZ"], ["B", 76, "C"]]]
    assert job["depths"] == {"A": 7, "B": 7, "C": 7}
    both = [a + c for a, c in zip(job["paired"]["A"], job["paired"]["C"], strict=True)]
    rows = decode(both, UBIQUITIN + GB1)
    length = len(UBIQUITIN)
    assert rows[0] == UBIQUITIN + GB1
    assert {(row[:length], row[length:]) for row in rows[1:]} == family.pairs
    assert job["paired"]["A"] == job["paired"]["B"]


def test_alphafold3_reads_templates(export: Export, structures: Path) -> None:
    path = export("af3", "complex.json", "--templates", str(structures))
    text = path.read_text().replace('"project": "unknown field",', "")
    path.write_text(text.replace('"laboratory": {"note": 1.50, "empty": []},', ""))
    (job,) = read("alphafold3", path)
    ((sequence, atoms),) = job["templates"]["A"]
    # the last three residues have no coordinates
    assert sequence == UBIQUITIN[:73] + "---" and atoms == 73 * 4 - sequence.count("G") + 73
    assert job["templates"]["B"] == job["templates"]["A"]


def test_boltz_reads_alignments_and_pairs(export: Export, family: Family, tmp_path: Path) -> None:
    path = export("boltz", "complex.yaml", without="laboratory")
    components = tmp_path / "components.pickle"
    write_components(components)
    (job,) = read("boltz", components, path)
    assert job["chains"] == ["A", "B", "C", "R", "L", "M"] and job["bonds"] == 1
    tables = job["tables"]
    assert set(tables) == {"A", "B", "C"} and tables["A"] == tables["B"]
    first = {key: row for key, row in zip(tables["A"]["keys"], tables["A"]["rows"], strict=True) if key >= 0}
    second = {key: row for key, row in zip(tables["C"]["keys"], tables["C"]["rows"], strict=True) if key >= 0}
    rows = decode([first[key] + second[key] for key in sorted(first)], UBIQUITIN + GB1)
    assert first.keys() == second.keys()
    length = len(UBIQUITIN)
    assert {(row[:length], row[length:]) for row in rows[1:]} == family.pairs


def write_components(path: Path) -> None:
    """Write the components of the job as Boltz has them: molecules with named atoms and coordinates."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    from features.chemistry.components import read_component
    from features.chemistry.molecules import build_molecule
    from features.chemistry.residues import RESTYPE_NAMES

    Chem.SetDefaultPickleProperties(Chem.PropertyPickleOptions.AllProps)
    molecules = {}
    for code in [*RESTYPE_NAMES, "SEP", "A", "C", "G", "U", "ATP"]:
        component = read_component(code)
        molecule = build_molecule(component)
        AllChem.EmbedMolecule(molecule, randomSeed=1)
        Chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
        ranks = Chem.CanonicalRankAtoms(molecule)
        for atom, name, leaving in zip(molecule.GetAtoms(), component.names, component.leaving, strict=True):
            atom.SetProp("name", name)
            atom.SetProp("leaving_atom", str(int(leaving)))
            atom.SetProp("_CIPRank", str(ranks[atom.GetIdx()]))
        molecules[code] = molecule
    path.write_bytes(pickle.dumps(molecules))


def test_openfold3_reads_alignments_and_pairs(export: Export, family: Family) -> None:
    queries = read("openfold3", export("openfold3", "queries.json"))
    assert queries["seeds"] == [3, 5] and set(queries) == {"seeds", "complex", "alone"}
    assert queries["complex"]["chains"] == [["A", "B"], ["C"], ["R"], ["L"], ["M"]]
    assert queries["complex"]["bonds"] == [[["A", 48, 0], ["B", 76, 0]]]
    assert pairs_of(queries["complex"]["paired"]) == family.pairs
    assert queries["alone"]["main"] == {"A": 7}


def test_protenix_reads_alignments_and_pairs(export: Export, family: Family) -> None:
    complex_job, alone = read("protenix", export("protenix", "jobs.json"))
    assert not complex_job["needs_search"] and not alone["needs_search"]
    assert alone["unpaired"] == 7
    length = len(UBIQUITIN)
    rows = decode(
        [row[:length] + row[2 * length : 2 * length + len(GB1)] for row in complex_job["paired"]],
        UBIQUITIN + GB1,
    )
    assert {(row[:length], row[length:]) for row in rows[1:]} == family.pairs


def test_chai_reads_alignments_and_pairs(export: Export, family: Family) -> None:
    pytest.importorskip("pyarrow")
    path = export("chai", "complex.fasta")
    job = read("chai", path, path.with_suffix(".msa"))
    # the parent of SEP is S
    assert job["sequences"] == [UBIQUITIN, GB1[:15] + "S" + GB1[16:]]
    assert job["entities"] == ["ubiquitin", "domain", "hairpin", "acetate", "magnesium"]
    assert job["depths"] == [7, 7] and job["pairs"] == 7
    rows = decode(job["paired"], "".join(job["sequences"]))
    length = len(UBIQUITIN)
    assert {(row[:length], row[length:]) for row in rows[1:]} == family.pairs
