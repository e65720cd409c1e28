"""`foldcli library` and `foldcli createdb --structures` in subprocesses."""

import json
import shutil
from pathlib import Path

import pytest

from features.templates.library.library import EMBEDDED, StructureLibrary
from tests.command_process import foldcli


@pytest.fixture(scope="module")
def structures(root: Path) -> Path:
    return root / "tests/features/templates/data"


@pytest.fixture(scope="module")
def built(structures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a library from one good and one unusable file."""
    folder = tmp_path_factory.mktemp("structures")
    shutil.copy(structures / "4zhl.cif.gz", folder)
    (folder / "broken.pdb").write_text("not a structure\n")
    out = folder / "new/library"
    result = foldcli("createdb", "--structures", folder, "-o", out)
    assert result.returncode == 0, result.stderr
    assert "broken.pdb: neither an mmCIF nor a PDB file; not used" in result.stderr
    assert "2 chains, 257 residues from 1 of 2 files" in result.stderr
    return out


def test_info_describes_the_library(built: Path) -> None:
    result = foldcli("library", "info", built)
    assert result.returncode == 0
    rows = {line[:15].strip(): line[16:] for line in result.stdout.splitlines()}
    assert rows["chains"] == "2"
    assert rows["atoms"] == "all heavy atoms, on a grid of 0.01 Å"
    assert rows["not used"].endswith("broken.pdb: neither an mmCIF nor a PDB file")
    content = json.loads(foldcli("library", "info", built, "--json").stdout)
    assert content["residues"] == 257


def test_ls_lists_the_chains(built: Path) -> None:
    result = foldcli("library", "ls", built)
    assert result.stdout.splitlines() == ["4zhl_P\t10\t-\t4zhl.cif.gz", "4zhl_U\t247\t-\t4zhl.cif.gz"]


def test_verify_finds_a_damaged_part(built: Path, tmp_path: Path) -> None:
    assert foldcli("library", "verify", built).returncode == 0
    copy = shutil.copytree(built, tmp_path / "copy")
    data = bytearray((copy / "sequences/residues.u8").read_bytes())
    data[5] ^= 1
    (copy / "sequences/residues.u8").write_bytes(data)
    result = foldcli("library", "verify", copy)
    assert result.returncode == 3
    assert "residues.u8: damaged" in result.stderr


def test_embedded_library_is_complete_and_small() -> None:
    library = StructureLibrary.open(EMBEDDED)
    library.verify()
    assert len(library) > 6000
    size = sum(path.stat().st_size for path in EMBEDDED.rglob("*") if path.is_file())
    assert size < 14_000_000
    result = foldcli("library", "info")
    assert result.returncode == 0
    assert f"{len(library):,}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["library", "info", "missing"], 4, "missing: no such structure library"),
        (["createdb", "--structures", "missing", "-o", "out"], 3, "missing: no such file or folder"),
        (["createdb", "--structures", "-o", "out"], 2, "no structure file given"),
        (["createdb", "a.fasta", "--backbone", "-o", "out"], 2, "need --structures"),
        (["createdb", "--structures", "a.cif", "--no-mask", "-o", "out"], 2, "cannot be combined"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the folder in which tests are started may have `out`, from the README's first command
    monkeypatch.chdir(tmp_path)
    result = foldcli(*arguments)
    assert result.returncode == code
    assert message in result.stderr
