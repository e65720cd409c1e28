"""Alignment targets found in files and folders, and their names."""

import json
import shutil
from pathlib import Path

import pytest

from features.alphafold2.deterministic import make_features
from features.complexes.features import complex_features, features_of_rows
from foldcli.inputs.alignment_targets import (
    common_target_name,
    find_alignment_targets,
    find_alphafold_files,
    starts_as_complex,
    target_name,
)
from foldcli.inputs.cached_targets import find_all_cached_targets
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.pipeline.prepare.cached_features import CacheTask
from foldcli.pipeline.targets.settings import FeatureSettings
from msa.alignments.files import read_alignment
from msa.base.errors import InputError

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


A, B = "MKVLAAGI", "GHTKDL"


def write_multimer_folder(folder: Path, sequences: dict[str, str]) -> Path:
    """Write a folder of AlphaFold-Multimer, with alignments of the first chain of each sequence."""
    chains = {name: {"description": name, "sequence": sequence} for name, sequence in sequences.items()}
    msas = folder / "msas"
    msas.mkdir(parents=True)
    (msas / "chain_id_map.json").write_text(json.dumps(chains))
    for sequence, name in {sequence: name for name, sequence in reversed(sequences.items())}.items():
        rows = {"uniref90_hits.sto": "-" + sequence[1:], "mgnify_hits.a3m": f"{sequence[:-1]}W"}
        rows["uniprot_hits.sto"] = f"W{sequence[1:]}"
        for file, row in rows.items():
            label = "sp|P00001|X_HUMAN" if "uniprot" in file else "x"
            (msas / name).mkdir(exist_ok=True)
            text = f">q\n{sequence}\n>{label}\n{row}\n"
            if file.endswith(".sto"):
                text = f"# STOCKHOLM 1.0\n\nq {sequence}\n{label} {row}\n//\n"
            (msas / name / file).write_text(text)
    return msas


def test_folder_of_alphafold_multimer_is_one_complex(tmp_path: Path) -> None:
    msas = write_multimer_folder(tmp_path / "ab", {"A": A, "B": B, "C": A})
    features = []
    for path in (tmp_path, msas.parent, msas, msas / "chain_id_map.json"):
        (target,) = find_alignment_targets([str(path)])
        assert target.is_complex and starts_as_complex(target) and len(target.files) == 7
        rows = target.parse_complex(target.read_contents())
        assert rows is not None and rows.chains == [A, B, A] and rows.is_complete
        features.append(features_of_rows(rows, min_rows=1))
    chains = {}
    for name, sequence in (("A", A), ("B", B)):
        own, pairing = (
            make_features([read_alignment(msas / name / file) for file in files])
            for files in (("uniref90_hits.sto", "mgnify_hits.a3m"), ("uniprot_hits.sto",))
        )
        chains[sequence] = own, pairing
    own, pairing = zip(*(chains[sequence] for sequence in (A, B, A)), strict=True)
    expected = complex_features(own, min_rows=1, pairing=pairing)
    assert expected["num_alignments"] == 6
    for each in features:
        for name, value in expected.items():
            assert (each[name] == value).all(), name
    # the entry of a feature cache is named after the folder
    task = CacheTask(target, FeatureSettings(tmp_path / "cache"))
    assert [task.add().was_cached for _ in range(2)] == [False, True]
    (entry,) = find_all_cached_targets(tmp_path / "cache", Failures(tmp_path, Shard()))
    assert (entry.name, entry.is_complex) == (target.name, True)
    content = entry.path.read_bytes()
    entry.path.write_bytes(content[:-1])
    assert entry.load_complex_rows().chains == [A, B, A] and entry.path.read_bytes() == content


def test_damaged_folders_of_alphafold_multimer_are_refused(tmp_path: Path) -> None:
    def reason(folder: Path) -> str:
        with pytest.raises(InputError) as caught:
            (target,) = find_alignment_targets([str(folder)])
            target.parse_complex(target.read_contents())
        return str(caught.value).removeprefix(f"{tmp_path}/")

    chains = {"A": A, "B": B}
    msas = write_multimer_folder(tmp_path / "1", chains)
    (msas / "B/uniprot_hits.sto").unlink()
    assert reason(msas) == "1/msas/chain_id_map.json: chain B has no uniprot_hits, which other chains have"
    shutil.rmtree(msas / "B")
    assert reason(msas).startswith("1/msas/chain_id_map.json: chain B has no alignments in ")
    (msas / "chain_id_map.json").write_text('{\n"../A": {"sequence": "MK"}}')
    assert reason(msas) == "1/msas/chain_id_map.json:2: '../A' is not the id of a chain"
    (msas / "chain_id_map.json").write_text(json.dumps({"A" * 5000: {"sequence": "MK"}}))
    assert reason(msas).endswith(" is not the id of a chain")
    (msas / "chain_id_map.json").write_text('{"A": {"sequence": ["MK"]}}')
    assert reason(msas) == "1/msas/chain_id_map.json:1: chain A has no sequence of letters"
    msas = write_multimer_folder(tmp_path / "2", chains)
    (msas / "B/mgnify_hits.a3m").write_text(f">q\n{A}\n")
    assert reason(msas) == "2/msas/B/mgnify_hits.a3m: its query is not chain B of chain_id_map.json"
