"""Reports of complexes: chains, interfaces and contacts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldcli.report import ReportSettings
from foldcli.report.data.alignment import read_alignment_summary
from foldcli.report.data.interfaces import read_interfaces
from foldcli.report.data.model_atoms import read_model_atoms
from foldcli.report.data.result import read_result
from foldcli.report.make import make_report
from msa.base.errors import InputError
from tests.foldcli.report.outline import Outline
from tests.foldcli.report.results import COMPLEX_TAG as TAG
from tests.foldcli.report.results import target_files, write_complex

CHAINS = (("A", 12), ("B", 12), ("C", 7))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_complex(tmp_path)


def test_page_shows_chains_interfaces_and_contacts(folder: Path) -> None:
    make_report(target_files(folder), {}, ReportSettings(page=True, plots=False))
    outline = Outline((folder / "target.html").read_text())
    data = outline.data()
    assert data["chains"] == [list(chain) for chain in CHAINS]
    assert data["models"][0]["pae"]["side"] == 31
    text = " ".join(outline.text.split())
    assert "chains 3" in " ".join(text.replace("3 chains", "chains 3").split())
    for shown in ("ipTM, best model", "alphafold2_multimer_v3_model_1, seed 0",
                  "All pairs of chains of the best model",
                  "A and B 2 3.1 Å", "All pairs of residues, lowest PAE first",
                  "A:A4 and B:L3 6.1 Å 1.2 and 2.0 Å"):  # fmt: skip
        assert shown in text, shown
    # the contact with the lower PAE comes first
    assert text.index("A:A4 and B:L3") < text.index("A:L3 and B:L3")
    assert f"target_contacts_rank_001_{TAG}.tsv" in text


def test_pdb_and_mmcif_give_the_same_atoms(folder: Path) -> None:
    files = target_files(folder)
    pdb = read_model_atoms(files.model_path("pdb", 1, TAG), 31)
    cif = read_model_atoms(files.model_path("cif", 1, TAG), 31)
    assert pdb.chains == cif.chains == CHAINS
    assert pdb.chain_starts == [0, 12, 24]
    # the last residue of B has no atoms
    assert pdb.components == cif.components and pdb.components[23] == "" and "" not in pdb.components[:23]
    assert (pdb.positions == cif.positions).all() and (pdb.residues == cif.residues).all()
    assert (pdb.names == cif.names).all()


def test_complex_without_pdb_is_read_from_mmcif(folder: Path) -> None:
    files = target_files(folder)
    files.model_path("pdb", 1, TAG).unlink()
    result = read_result(files, {})
    assert result.chains == CHAINS
    assert [link.rpartition(".")[2] for link in result.models[0].files] == ["cif", "json", "tsv"]


def test_missing_residues_of_several_chains_need_their_lengths(folder: Path) -> None:
    path = target_files(folder).model_path("pdb", 1, TAG)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("SEQRES")))
    with pytest.raises(InputError, match="30 residues of several chains, but its scores have 31"):
        read_model_atoms(path, 31)


def test_results_without_contacts_and_extra_scores_are_shown(folder: Path) -> None:
    files = target_files(folder)
    files.model_path("contacts", 1, TAG).unlink()
    path = files.model_path("scores", 1, TAG)
    scores = json.loads(path.read_text())
    # as ColabFold writes without --calc-extra-ptm
    path.write_text(json.dumps({key: scores[key] for key in ("plddt", "pae", "max_pae", "ptm", "iptm")}))
    make_report(files, {}, ReportSettings(page=True, plots=False))
    outline = Outline((folder / "target.html").read_text())
    assert "interfaces" not in outline.ids and "ipTM, best model" in outline.text


def test_coverage_of_a_complex_has_paired_and_unpaired_rows(folder: Path) -> None:
    files = target_files(folder)
    chains = read_result(files, {}).chain_sequences
    # the file has the unknown residue of B, which the structure lacks
    a, c = chains[0], chains[2]
    chains[1] = f"{a[:-1]}X"
    gaps = "-" * 12
    rows = [
        f"#12,12,7\t1,1,1\n>101\t102\t103\n{a}{chains[1]}{c}", f"x\ty\tz\n{a[:6]}{gaps}------{c}",
        f"101\n{a}{gaps}-------", f"h\n{a[:4]}acd{a[4:]}{gaps}-------", f"103\n{gaps}{gaps}{c}",
        f"g\n{gaps}{gaps}---{c[3:]}",
    ]  # fmt: skip
    path = files.path("alignment")
    path.write_text("\n>".join(rows) + "\n")
    coverage = read_alignment_summary(path, None, chains).coverage
    # the query, a pair, and one row of A and of C that are not their queries
    assert coverage.depth == 4
    assert coverage.covered.tolist() == [3] * 6 + [2] * 6 + [1] * 12 + [2] * 3 + [3] * 4
    make_report(files, {}, ReportSettings(page=True, plots=False))
    assert "rows of the alignment of a complex are not listed" in (folder / "target.html").read_text()
    path.write_text(path.read_text().replace("#12,12,7\t1,1,1", "#12,19\t1,1"))
    with pytest.raises(InputError, match="an alignment of other chains than the target's"):
        read_alignment_summary(path, None, chains)
    path.write_text(f">q\n{''.join(chains)}\n")
    (m8 := folder / "target.m8").write_text("target_A\tx\n")
    with pytest.raises(InputError, match="no lengths of the complex's chains"):
        read_alignment_summary(path, m8, chains)


def test_best_hits_of_all_chains_are_listed_with_their_alignments(tmp_path: Path) -> None:
    header = "{}\t90\t0.750\t{}\t0\t3\t4\t1\t4\t9"
    rows = [
        "#4,5\t1,2\n>101\t102\tchains=2,1,2\nMKVLGHTKD", "p\tDUMMY\nM-VL-----", "101\nMKVL-----",
        header.format("a", "1E-03") + "\nMKVaL-----", "102\n----GHTKD",
        header.format("b", "2E-09") + "\n-----HcTKK",
    ]  # fmt: skip
    path, m8 = tmp_path / "x.a3m", tmp_path / "x.m8"
    path.write_text("\n>".join(rows) + "\n")
    line = "x_{}\t{}\t0.750\t5\t1\t0\t1\t4\t2\t5\t{}\t90\n"
    m8.write_text(line.format("A", "b", "2.000E-09") + "".join(
        line.format("B", name, evalue) for name, evalue in (("a", "1.000E-03"), ("filtered", "1.000E-02"))
    ))  # fmt: skip
    # the last residue of the first chain is unknown in the structure
    summary = read_alignment_summary(path, m8, ["GHTKX", "MKVL", "GHTKX"])
    assert [(hit.name, hit.aligned) for hit in summary.hits] == [
        ("A: b", ("H-TKD", "HCTKK")),
        ("B: a", ("MKV-L", "MKVAL")),
        ("B: filtered", None),
    ]
    assert summary.hit_count == 3


def test_copies_share_the_rows_of_their_chain(tmp_path: Path) -> None:
    path = tmp_path / "x.a3m"
    path.write_text("#4\t2\n>101\nMKVL\n>h\n-KVL\n")
    summary = read_alignment_summary(path, None, ["MKVL", "MKXL"])
    assert summary.coverage.covered.tolist() == [1, 2, 2, 2] * 2
    assert summary.hits == ()


def test_interfaces_are_sorted_and_directions_joined(folder: Path, tmp_path: Path) -> None:
    scores: dict[str, Any] = {
        "pairwise_iptm": {"A-B": 0.1, "A-C": 0.9, "B-C": 0.5},
        "ipsae": {"A-B": 0.2, "B-A": 0.3, "C-A": 0.8, "A-C": 0.7},
    }
    found = read_interfaces(scores, target_files(folder).model_path("contacts", 1, TAG))
    assert [interface.chains for interface in found] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert found[0].scores == {"pairwise_iptm": 0.1, "ipsae": 0.3}
    assert found[1].scores["ipsae"] == 0.8 and found[1].contacts == ()
    assert found[0].contacts is not None and len(found[0].contacts) == 2
    assert read_interfaces({}, tmp_path / "missing.tsv") == ()


@pytest.mark.parametrize(
    ("text", "line"),
    # the csv module has read three lines when it meets the field that is too long
    [("A\t1\tM\n", 4), ("A\t1\tM\tx\tB\t1\tM\t1\t1\t1\t1\n", 4), ("A" * 200_000, 3)],
)
def test_damaged_table_of_contacts_is_reported_with_its_line(folder: Path, text: str, line: int) -> None:
    path = target_files(folder).model_path("contacts", 1, TAG)
    path.write_text(path.read_text() + text)
    with pytest.raises(InputError, match=rf"\.tsv:{line}: not a table of contacts"):
        read_interfaces({}, path)


def test_plots_mark_the_borders_of_chains(folder: Path) -> None:
    from matplotlib.image import imread

    make_report(target_files(folder), {}, ReportSettings(page=False, plots=True))
    pae = imread(folder / "target_pae.png")[..., :3]
    dark = (np.abs(pae - np.array([0x1B, 0x21, 0x28]) / 255) < 0.02).all(-1)
    # one line through the whole map at each of two borders, in both directions
    rows, columns = dark.sum(1), dark.sum(0)
    longest = max(rows.max(), columns.max())
    assert longest > 200
    assert _runs(rows > 0.9 * longest) == _runs(columns > 0.9 * longest) == 2


def _runs(selected: np.ndarray) -> int:
    """Return the number of runs of True."""
    return int(np.count_nonzero(np.diff(selected.astype(int)) == 1))
