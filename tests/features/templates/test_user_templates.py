"""Templates that users select: folders of structures, and hit files with a PDB mirror."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from features.templates.library.library import StructureLibrary
from features.templates.user_templates import (
    find_entry,
    hits_of_query,
    open_or_build_library,
    read_hit_file,
    select_from_mirror,
)
from msa.base.errors import InputError


def test_folder_of_structures_becomes_a_library_once(structures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(structures / "1a7g.cif.gz", folder / "relative of my protein.cif.gz")
    library = open_or_build_library(folder, tmp_path / "cache")
    assert [library.database.id(0), len(library)] == ["relative_of_my_protein_E", 1]
    again = open_or_build_library(folder, tmp_path / "cache")
    assert again.path == library.path
    shutil.copy(structures / "1gbt.cif.gz", folder)
    assert len(open_or_build_library(folder, tmp_path / "cache")) == 2


def test_several_runs_build_the_same_library_at_once(structures: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        path, cache = structures / "1a7g.cif.gz", tmp_path / "cache"
        libraries = list(pool.map(lambda _: open_or_build_library(path, cache), range(3)))
    assert [len(library) for library in libraries] == [1, 1, 1]
    # those that came too late have left nothing
    assert [path.name for path in (cache / "templates").iterdir()] == [libraries[0].path.name]


def test_library_is_opened_as_it_is(library: StructureLibrary, tmp_path: Path) -> None:
    assert open_or_build_library(library.path, tmp_path / "cache").path == library.path
    assert not (tmp_path / "cache").exists()


def test_damaged_cached_library_is_built_again(structures: Path, tmp_path: Path) -> None:
    library = open_or_build_library(structures / "1a7g.cif.gz", tmp_path / "cache")
    (library.path / "coordinates.bin").write_bytes(b"")
    assert len(open_or_build_library(structures / "1a7g.cif.gz", tmp_path / "cache")) == 1


@pytest.mark.parametrize(
    "location",
    [
        "1a7g.cif.gz",
        "a7/1a7g.cif.gz",
        "divided/a7/1a7g.cif.gz",
        "obsolete/a7/1A7G.cif.gz",
        "a7/pdb1a7g.ent.gz",
    ],
)
def test_entry_is_found_in_mirrors_of_several_layouts(tmp_path: Path, location: str) -> None:
    path = tmp_path / location
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert find_entry(tmp_path, "1A7G") == path
    assert find_entry(tmp_path, "2xyz") is None


def test_hits_of_another_search_are_read_from_a_mirror(structures: Path, tmp_path: Path) -> None:
    path = tmp_path / "pdb70.m8"
    path.write_text(
        "101\t4zhl_U\t0.4\n101\t4zhl_Q\t0.4\n101\t9xyz_A\t0.3\n101\t1A7G_E\t0.3\n101\t4zhl_U\t0.2\n"
    )
    hits = hits_of_query(read_hit_file(path), "my protein")
    assert hits == ["4zhl_U", "4zhl_Q", "9xyz_A", "1A7G_E"]
    selected = select_from_mirror(hits, structures, tmp_path / "lib")
    assert selected.library is not None
    assert {selected.library.database.id(k) for k in range(2)} == {"4zhl_U", "1a7g_E"}
    assert [name for name, _ in selected.unusable] == ["4zhl_Q", "9xyz_A"]
    assert selected.unusable[0][1].endswith("no protein chain Q, only U, P")
    assert selected.unusable[1][1].endswith("no structure file of entry 9xyz")


def test_mirror_without_the_hits_gives_no_library(structures: Path, tmp_path: Path) -> None:
    selected = select_from_mirror(["9xyz_A"], structures, tmp_path / "lib")
    assert selected.library is None
    assert len(selected.unusable) == 1
    with pytest.raises(InputError, match="no such folder"):
        select_from_mirror(["9xyz_A"], tmp_path / "none", tmp_path / "lib")


def test_hits_belong_to_queries(tmp_path: Path) -> None:
    hits = {"101": ["1abc_A"], "102": ["2abc_A"], "named": ["3abc_A"]}
    assert hits_of_query(hits, "x", 1) == ["2abc_A"]
    assert hits_of_query(hits, "named") == ["3abc_A"]
    assert hits_of_query(hits, "x", 5) == []
    assert hits_of_query({"any": ["1abc_A"]}, "x", 5) == ["1abc_A"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "no template hits"), ("101\n", ":1: expected a query"), ("a\tb\n", ":1: expected")],
)
def test_malformed_hit_file_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "hits.m8"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(reason)):
        read_hit_file(path)
