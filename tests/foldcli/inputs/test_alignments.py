"""Which targets a user's files and folders are, and under which names."""

from pathlib import Path

import pytest

from foldcli.inputs.alignments import alignment_targets, merged_files, name_of_files, target_name
from msa.errors import InputError

ONE = ">q\nMKVLGA\n"


def written(path: Path, text: str = ONE) -> str:
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
def test_names(path: str, name: str) -> None:
    assert target_name(path) == name


def test_files_of_one_target_name_it_together() -> None:
    assert name_of_files(["a/T1/uniref90_hits.a3m", "a/T1/mgnify_hits.a3m"]) == "T1"
    assert name_of_files(["a/T1/uniref90_hits.a3m", "a/T2/mgnify_hits.a3m"]) is None
    assert name_of_files([]) is name_of_files([None]) is name_of_files(["-"]) is None


def test_alignments_are_joined_in_alphafolds_order(tmp_path: Path) -> None:
    made = [
        written(tmp_path / "T1" / name)
        for name in ("uniref90_hits.sto.gz", "bfd_uniref_hits.a3m", "mgnify_hits.sto")
    ]
    for other in ("uniprot_hits.sto", "pdb_hits.sto", "uniref90_hits.log", "features.pkl"):
        written(tmp_path / "T1" / other)
    assert merged_files(tmp_path / "T1") == tuple(made)
    assert merged_files(tmp_path) == ()


def test_one_folder_may_hold_files_and_targets_folders(tmp_path: Path) -> None:
    joined = [written(tmp_path / "b" / "msas" / name) for name in ("uniref90_hits.a3m", "mgnify_hits.a3m")]
    small = written(tmp_path / "c" / "small_bfd_hits.sto")
    plain = written(tmp_path / "a.a3m.gz")
    written(tmp_path / "notes" / "x.a3m")
    found = {target.name: target.files for target in alignment_targets([str(tmp_path)])}
    assert found == {"a": (plain,), "b": tuple(joined), "c": (small,)}
    for own in (tmp_path / "b", tmp_path / "b" / "msas"):
        (target,) = alignment_targets([str(own)])
        assert (target.name, target.files) == ("b", tuple(joined))


def test_two_alignments_of_one_database_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "bfd_uniclust_hits.a3m")
    second = written(tmp_path / "bfd_uniref_hits.a3m")
    with pytest.raises(InputError, match=r"bfd_uniclust_hits\.a3m") as caught:
        alignment_targets([str(tmp_path)])
    assert str(caught.value).startswith(second)


def test_two_targets_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two targets have the name 'x'"):
        alignment_targets([written(tmp_path / "1" / "x.a3m"), written(tmp_path / "2" / "x.sto")])


def test_a_folder_without_alignments_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file ending in \.a3m"):
        alignment_targets([str(tmp_path)])
    written(tmp_path / "ab" / "abcd.safetensors")
    with pytest.raises(InputError, match="a feature cache"):
        alignment_targets([str(tmp_path)])
