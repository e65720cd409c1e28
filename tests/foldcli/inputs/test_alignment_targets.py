"""Alignment targets found in files and folders, and their names."""

from pathlib import Path

import pytest

from foldcli.inputs.alignment_targets import (
    common_target_name,
    find_alignment_targets,
    find_alphafold_files,
    target_name,
)
from msa.errors import InputError

ALIGNMENT = ">q\nMKVLGA\n"


def write(path: Path, text: str = ALIGNMENT) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("x/one.a3m", "one"),
        ("x/one.fasta.gz", "one"),
        ("sp|P1|A.sto.zst", "sp_P1_A"),
        ("x/T1/uniref90_hits.sto", "T1"),
        ("x/T1/msas/mgnify_hits.a3m.gz", "T1"),
        ("x/T1/pdb_hits.sto", "pdb_hits"),
        ("-", "stdin"),
    ],
)
def test_target_name(path: str, name: str) -> None:
    assert target_name(path) == name


def test_common_target_name() -> None:
    assert common_target_name(["a/T1/uniref90_hits.a3m", "a/T1/mgnify_hits.a3m"]) == "T1"
    assert common_target_name(["a/T1/uniref90_hits.a3m", "a/T2/mgnify_hits.a3m"]) is None
    assert common_target_name([]) is common_target_name([None]) is common_target_name(["-"]) is None


def test_alphafold_files_are_returned_in_alphafolds_order(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "T1" / name)
        for name in ("uniref90_hits.sto.gz", "bfd_uniref_hits.a3m", "mgnify_hits.sto")
    ]
    for other in ("uniprot_hits.sto", "pdb_hits.sto", "uniref90_hits.log", "features.pkl"):
        write(tmp_path / "T1" / other)
    assert find_alphafold_files(tmp_path / "T1") == tuple(files)
    assert find_alphafold_files(tmp_path) == ()


def test_folder_may_contain_files_and_target_folders(tmp_path: Path) -> None:
    alphafold_files = [
        write(tmp_path / "b" / "msas" / name) for name in ("uniref90_hits.a3m", "mgnify_hits.a3m")
    ]
    small = write(tmp_path / "c" / "small_bfd_hits.sto")
    plain = write(tmp_path / "a.a3m.gz")
    write(tmp_path / "notes" / "x.a3m")
    found = {target.name: target.files for target in find_alignment_targets([str(tmp_path)])}
    assert found == {"a": (plain,), "b": tuple(alphafold_files), "c": (small,)}
    for folder in (tmp_path / "b", tmp_path / "b" / "msas"):
        (target,) = find_alignment_targets([str(folder)])
        assert (target.name, target.files) == ("b", tuple(alphafold_files))


def test_two_alignments_of_the_same_database_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "bfd_uniclust_hits.a3m")
    second = write(tmp_path / "bfd_uniref_hits.a3m")
    with pytest.raises(InputError, match=r"bfd_uniclust_hits\.a3m") as caught:
        find_alignment_targets([str(tmp_path)])
    assert str(caught.value).startswith(second)


def test_two_targets_with_the_same_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two targets have the name 'x'"):
        find_alignment_targets([write(tmp_path / "1" / "x.a3m"), write(tmp_path / "2" / "x.sto")])


def test_folder_without_alignments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file ending in \.a3m"):
        find_alignment_targets([str(tmp_path)])
    write(tmp_path / "ab" / "abcd.safetensors")
    with pytest.raises(InputError, match="a feature cache"):
        find_alignment_targets([str(tmp_path)])
