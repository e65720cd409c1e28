"""Tests of `foldcli templates`."""

import json
from pathlib import Path

import gemmi

from tests.command_process import run_foldcli

LYSOZYME = "examples/lysozyme.fasta"


def test_table_has_the_columns_of_searches(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "templates.m8"
    result = run_foldcli(["templates", root / LYSOZYME, "-o", out])
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert len(rows) == 4 and all(len(row) == 12 for row in rows)
    for query, _, identity, columns, mismatches, gaps, start, end, first, last, evalue, bits in rows:
        assert query == "LYSC_CHICK" and float(evalue) <= 0.01 and int(bits) > 20
        aligned = 2 * int(columns) - (int(end) - int(start) + 1) - (int(last) - int(first) + 1)
        pairs = int(columns) - aligned
        assert round(float(identity) * int(columns)) == pairs - int(mismatches)
        assert (int(gaps) > 0) == (aligned > 0)
    assert "exists" in run_foldcli(["templates", root / LYSOZYME, "-o", out]).stderr


def test_entries_of_alphafold3_pair_residues_of_their_structures(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "templates.json"
    complex_file = tmp_path / "complex.fasta"
    sequence = "".join((root / LYSOZYME).read_text().splitlines()[1:])
    complex_file.write_text(
        f">pair\n{sequence}:{sequence}:MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE\n"
    )
    result = run_foldcli(["templates", complex_file, "-o", out, "--format", "af3"])
    assert result.returncode == 0, result.stderr
    assert "pair_A: templates without release date get 1900-01-01: " in result.stderr
    entries = json.loads(out.read_text())
    assert list(entries) == ["pair_A", "pair_C"] and len(entries["pair_A"]) == 4
    best = entries["pair_A"][0]
    block = gemmi.cif.read_string(best["mmcif"]).sole_block()
    chain = gemmi.make_structure_from_block(block)[0][0]
    letters = gemmi.one_letter_code([residue.name for residue in chain])
    assert [sequence[k] for k in best["queryIndices"]] == [letters[k] for k in best["templateIndices"]]
    assert block.find_value("_entity_poly.type") == "polypeptide(L)"


def test_options_that_leave_nothing_to_search(root: Path, tmp_path: Path) -> None:
    result = run_foldcli(["templates", root / LYSOZYME, "-o", tmp_path / "x", "--no-templates"])
    assert result.returncode == 2 and "nothing to search" in result.stderr
