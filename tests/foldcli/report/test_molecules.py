"""Pages of proteins with ligands, ions and DNA: their content, and in Chromium their drawing."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from foldcli.outputs.layout import TargetFiles
from foldcli.report import ReportSettings
from foldcli.report.data.molecules import read_molecules
from foldcli.report.make import make_report
from msa.base.errors import InputError
from tests.foldcli.report.molecules import TAG, write_molecules
from tests.foldcli.report.results import write_result


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TargetFiles:
    target = write_molecules(tmp_path_factory.mktemp("run") / "complex")
    make_report(target, {}, ReportSettings(plots=False))
    return target


@pytest.fixture(scope="module")
def page(files: TargetFiles) -> str:
    return files.path("report").read_text()


def page_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_has_every_chain_check_interface_and_contact(files: TargetFiles, page: str) -> None:
    scores = json.loads(files.model_path("scores", 1, TAG.format(1)).read_text())
    for kind in ("protein", "ligand", "DNA", "ion"):
        assert f"<td>{kind}</td>" in page
    # what failed is in the list of models, and part by part below
    assert f'<td class="checks status-failed">{scores["checks"]["summary"]}</td>' in page
    failed, checked = (scores["checks"]["chains"][3]["counts"]["bond_lengths"][i] for i in (1, 0))
    assert f'<td class="number status-failed">{failed} of {checked} failed</td>' in page
    assert "B – E" in page and "ligand and ion" in page
    assert scores["ligand_contacts"]
    for ligand, atom, residue, other, distance in scores["ligand_contacts"][:5]:
        row = (
            f'<th scope="row">{ligand}</th><td>{atom}</td><td>{residue}</td><td>{other}</td>'
            f'<td class="number">{distance:.2f} Å</td>'
        )
        assert row.replace("'", "&#39;") in page


def test_tokens_are_named_by_residue_or_atom(files: TargetFiles, page: str) -> None:
    data = page_data(page)
    assert data["chains"] == [["A", 22], ["B", 43], ["C", 13], ["D", 8], ["E", 1]]
    labels = data["sequence"]
    assert labels[0] == "MET " and labels[22].startswith("HEM CHA of 1, token")
    assert labels[-1] == "ZN ZN of 1, token "
    atoms = read_molecules(files, {}).atoms
    assert len(data["before"]) == len(atoms.name)
    assert atoms.header.count("_chem_comp_bond.comp_id") == 1


def test_results_of_proteins_have_the_page_that_they_had(tmp_path: Path) -> None:
    write_result(tmp_path / "target")
    target = TargetFiles("target", tmp_path)
    assert not target.has_molecules
    make_report(target, {}, ReportSettings(plots=False))
    assert "molecules" not in target.path("report").read_text().lower()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    target = write_molecules(tmp_path / "complex", models=1)
    structure = target.model_path("cif", 1, TAG.format(1))
    text = structure.read_text()
    structure.write_text("data_x\n_entry.id x\n")
    with pytest.raises(InputError, match=r"unrelaxed_rank_001.*\.cif: no table of atoms"):
        read_molecules(target, {})
    structure.write_text(text[: text.rindex("HETATM")])
    with pytest.raises(InputError, match=r"\.cif: 397 atoms, but its scores have 398"):
        read_molecules(target, {})
    structure.unlink()
    with pytest.raises(InputError, match="is missing"):
        read_molecules(target, {})


@pytest.mark.browser
def test_molecules_are_drawn_and_shown_by_name(files: TargetFiles, open_page: Callable[..., Any]) -> None:
    page = open_page(files.path("report"))
    viewer = page.locator("#viewer")
    assert viewer.get_attribute("data-drawn") == "molecules"
    assert page.inner_text("#structure-problem") == ""
    parts = page.evaluate("() => document.getElementById('viewer').structure.parts.length")
    assert parts >= 3  # polymers, ligands and the ion
    page.click('[data-focus="B"]')
    page.check("#model-2")
    page.settle()
    assert page.locator("[data-model='1']").is_visible() and not page.locator("[data-model='0']").is_visible()
    box = page.locator("#pae-canvas").bounding_box()
    page.mouse.move(box["x"] + 53, box["y"] + 9)
    page.settle()
    assert re.fullmatch(r"PAE \d+\.\d Å at A:MET 1 when aligned on A:MET 1", page.inner_text("#pae-readout"))
    assert page.inner_text("#structure-readout").startswith("A:MET 1, pLDDT ")
    page.mouse.move(box["x"] + box["width"] - 19, box["y"] + 9)
    page.settle()
    assert "at E:ZN ZN of 1, token 1 when aligned on A:MET 1" in page.inner_text("#pae-readout")


@pytest.mark.browser
def test_a_page_alone_has_a_simple_drawing(
    files: TargetFiles, tmp_path: Path, open_page: Callable[..., Any]
) -> None:
    alone = Path(shutil.copy(files.path("report"), tmp_path))
    page = open_page(alone, viewport={"width": 390, "height": 800})
    assert page.locator("#viewer").get_attribute("data-drawn") == "sketch"
    assert "A simple drawing is shown instead" in page.inner_text("#structure-problem")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    painted = page.evaluate(
        "() => { const c = document.querySelector('#tube canvas'), d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return d.filter((v, i) => i % 4 === 3 && v).length }"
    )
    assert painted > 1000


def test_ligands_are_compared_with_a_reference(tmp_path: Path) -> None:
    target = write_molecules(tmp_path / "run/complex")
    references = tmp_path / "references"
    references.mkdir()
    shutil.copy(target.model_path("cif", 2, TAG.format(2)), references / "complex.cif")
    make_report(target, {}, ReportSettings(plots=False, references=references))
    rows = json.loads(target.path("comparison").read_text())
    assert rows[0]["ligand_rmsd"] > 0.01 and rows[1]["ligand_rmsd"] < 0.002
    assert rows[1]["lddt_pli"] == 1 and rows[1]["chains"] == {"A": "A", "D": "D"}
    assert "ligand RMSD, Å" in target.path("report").read_text()
