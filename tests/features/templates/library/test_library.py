"""Structure libraries: building, resuming, opening, and damage."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.templates.library import build
from features.templates.library.build import build_library, write_library
from features.templates.library.chains import TemplateChain
from features.templates.library.library import COORDINATES, StructureLibrary
from features.templates.library.settings import LibrarySettings
from features.templates.library.structure_files import read_chains
from msa.base.errors import InputError, MissingError


def test_library_holds_the_chains_of_the_files(library: StructureLibrary, structures: Path) -> None:
    expected = {
        chain.id: chain for path in sorted(structures.glob("*.cif.gz")) for chain in read_chains(path)
    }
    assert len(library) == 11
    for chain in map(library.chain, range(len(library))):
        source = expected[chain.id]
        assert (chain.sequence, chain.release_date, chain.source) == (
            source.sequence,
            source.release_date,
            source.source,
        )
        np.testing.assert_array_equal(chain.positions, source.positions)
        np.testing.assert_array_equal(chain.mask, source.mask)
    assert library.manifest.dated_chains == sum(chain.release_date is not None for chain in expected.values())
    library.verify()


def test_chains_are_found_by_id(library: StructureLibrary) -> None:
    index = library.find("4ZHL_U")
    assert index is not None
    assert library.chain(index).id == "4zhl_U"
    assert library.find("4zhl_u") is None
    assert library.find("9xyz_A") is None


def test_unusable_files_are_listed_and_the_others_used(structures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(structures / "1a7g.cif.gz", folder)
    (folder / "empty.pdb").touch()
    (folder / "cut.cif.gz").write_bytes((structures / "4cup.cif.gz").read_bytes()[:5000])
    manifest = build_library([folder], tmp_path / "lib")
    assert manifest.chains == 1
    assert manifest.files == 3
    reasons = {Path(path).name: reason for path, reason in manifest.unreadable.items()}
    assert reasons.keys() == {"empty.pdb", "cut.cif.gz"}
    assert "truncated gzip" in reasons["cut.cif.gz"]
    assert StructureLibrary.open(tmp_path / "lib").manifest == manifest


def test_without_any_chain_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.pdb").write_text("nothing\n")
    with pytest.raises(InputError, match=re.escape("a.pdb: neither an mmCIF nor a PDB file")):
        build_library([tmp_path / "a.pdb"], tmp_path / "lib")
    assert not (tmp_path / "lib").exists()


def test_interrupted_build_continues_with_the_next_batch(
    structures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_FILES_PER_BATCH", 2)
    read: list[str] = []

    def read_and_count(path: Path, *rest: Any) -> list[TemplateChain]:
        read.append(path.name)
        if len(read) == 4:
            raise KeyboardInterrupt
        return read_chains(path, *rest)

    monkeypatch.setattr(build, "read_chains", read_and_count)
    with pytest.raises(KeyboardInterrupt):
        build_library([structures], tmp_path / "lib")
    assert not (tmp_path / "lib").exists()
    build_library([structures], tmp_path / "lib")
    # the second batch was interrupted and is read again, the first is not
    assert len(read) == 4 + 9 - 2
    assert len(StructureLibrary.open(tmp_path / "lib")) == 11
    assert [path.name for path in tmp_path.iterdir()] == ["lib"]


def test_worker_processes_give_the_same_library(
    structures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_FILES_PER_BATCH", 3)
    one = build_library([structures], tmp_path / "one")
    two = build_library([structures], tmp_path / "two", LibrarySettings(threads=2))
    assert one.parts[COORDINATES] == two.parts[COORDINATES]


def test_backbone_library_is_smaller_and_keeps_backbones(structures: Path, tmp_path: Path) -> None:
    (chain,) = read_chains(structures / "1gbt.cif.gz")
    write_library([chain], tmp_path / "all")
    write_library([chain], tmp_path / "backbone", LibrarySettings(25, backbone_only=True))
    full, backbone = (StructureLibrary.open(tmp_path / name) for name in ("all", "backbone"))
    assert backbone.manifest.parts[COORDINATES].bytes < full.manifest.parts[COORDINATES].bytes / 2
    np.testing.assert_array_equal(backbone.chain(0).mask, chain.backbone().mask)


def test_existing_output_is_kept_without_overwrite(structures: Path, tmp_path: Path) -> None:
    chains = read_chains(structures / "1a7g.cif.gz")
    write_library(chains, tmp_path / "lib")
    with pytest.raises(InputError, match="already exists"):
        write_library(chains, tmp_path / "lib")
    write_library(chains, tmp_path / "lib", LibrarySettings(overwrite=True))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(InputError, match="is not a structure library"):
        write_library(chains, tmp_path / "other", LibrarySettings(overwrite=True))


@pytest.mark.parametrize("removes_batches", [True, False])
def test_another_build_that_ends_first_is_named(
    structures: Path, tmp_path: Path, removes_batches: bool
) -> None:
    def build_another(done: int, total: int | None) -> None:
        if done == total and not (tmp_path / "lib").exists():
            build_library([structures], tmp_path / ("lib" if removes_batches else "other"))
            if not removes_batches:
                (tmp_path / "other").rename(tmp_path / "lib")

    with pytest.raises(InputError, match="lib: created by another build in the meantime"):
        build_library([structures], tmp_path / "lib", progress=build_another)
    assert [path.name for path in tmp_path.iterdir()] == ["lib"]


@pytest.fixture
def copy(library: StructureLibrary, tmp_path: Path) -> Path:
    """Return a copy of the library that a test may damage."""
    return Path(shutil.copytree(library.path, tmp_path / "copy"))


def test_changed_byte_fails_verification_and_names_the_part(copy: Path) -> None:
    data = bytearray((copy / COORDINATES).read_bytes())
    data[100] ^= 1
    (copy / COORDINATES).write_bytes(data)
    with pytest.raises(InputError, match=r"coordinates\.bin: damaged: its SHA-256"):
        StructureLibrary.open(copy).verify()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / COORDINATES).unlink(), "part is missing"),
        (lambda folder: (folder / COORDINATES).write_bytes(b"x"), "1 bytes instead of"),
        (
            lambda folder: (folder / "manifest.json").write_text("{"),
            "data was truncated",
        ),
        (lambda folder: (folder / "manifest.json").unlink(), "not a structure library"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "not the manifest"),
        (lambda folder: edit(folder, format_version=99), "format version 99"),
        (lambda folder: edit(folder, chains=9), "for 9 chains"),
        (lambda folder: edit(folder, units_per_angstrom=0), "units_per_angstrom: expected int >= 1"),
        (lambda folder: shutil.rmtree(folder / "sequences"), "part is missing"),
    ],
)
def test_damaged_library_is_one_line(copy: Path, damage, reason: str) -> None:  # type: ignore[no-untyped-def]
    damage(copy)
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        StructureLibrary.open(copy)
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


def edit(folder: Path, **values: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_damaged_chain_is_named(copy: Path) -> None:
    size = (copy / COORDINATES).stat().st_size
    (copy / COORDINATES).write_bytes(bytes(size))
    with pytest.raises(InputError, match="chain 4zhl_P: damaged coordinates"):
        StructureLibrary.open(copy).chain(0)


def test_missing_library(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no such structure library"):
        StructureLibrary.open(tmp_path / "none")
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b"x"))
    with pytest.raises(InputError, match="not a structure library"):
        StructureLibrary.open(path)
