"""`foldcli relax` in subprocesses."""

import json
import subprocess
import sys
from pathlib import Path

import gemmi
import pytest

from foldcli.commands.relax import output_name


def relax(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foldcli", "relax", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" not in result.stderr
    return result


@pytest.mark.parametrize(
    ("name", "relaxed"),
    [
        ("x_unrelaxed_rank_001.pdb", "x_relaxed_rank_001.pdb"),
        ("model.cif.gz", "model_relaxed.cif"),
        ("model", "model_relaxed.pdb"),
    ],
)
def test_output_names(name: str, relaxed: str) -> None:
    assert output_name(name) == relaxed


@pytest.fixture
def peptide(root: Path, tmp_path: Path) -> Path:
    structure = gemmi.read_structure(str(root / "tests/features/templates/data/1gbt.cif.gz"))
    structure.setup_entities()
    chain = structure[0][0]
    while len(chain) > 8:
        del chain[len(chain) - 1]
    path = tmp_path / "p_unrelaxed.pdb"
    structure.write_pdb(str(path))
    return path


def test_good_files_are_relaxed_and_bad_ones_reported(peptide: Path, tmp_path: Path) -> None:
    pytest.importorskip("openmm")
    pytest.importorskip("pdbfixer")
    broken = tmp_path / "broken.pdb"
    broken.write_text("nothing\n")
    out = tmp_path / "out"
    result = relax(peptide, broken, "-o", out, "--json", "--device", "cpu")
    assert result.returncode == 5
    assert "broken.pdb: neither an mmCIF nor a PDB file" in result.stderr
    (line,) = result.stdout.splitlines()
    record = json.loads(line)
    assert record["energy_after"] < record["energy_before"]
    assert [path.name for path in out.iterdir()] == ["p_relaxed.pdb"]
    assert gemmi.read_structure(str(out / "p_relaxed.pdb"))[0][0][0].name == "ILE"
    again = relax(peptide, "-o", out)
    assert again.returncode == 3
    assert "already exists" in again.stderr


def test_missing_openmm_names_the_extra_to_install(peptide: Path, tmp_path: Path) -> None:
    blocker = tmp_path / "block"
    blocker.mkdir()
    (blocker / "openmm.py").write_text("raise ImportError('no openmm')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(blocker)!r}); import foldcli.__main__ as m; sys.exit(m.main())"
    )
    command = [sys.executable, "-c", code, "relax", peptide, "-o", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 4, result.stderr
    assert "pip install 'foldcli[relax]'" in result.stderr
