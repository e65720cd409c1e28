"""Split databases: content of the parts, checks when they are opened, and cleanup after failures."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from msa.base.errors import InputError
from msa.database import split
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.manifest import CLUSTER_FILES, FILES, PART_FILES, SAMPLE_LENGTHS, SPLIT, split_folders

COUNT, SPLIT_COUNT = 23, 4


def write_records(folder: Path, count: int = COUNT) -> tuple[Path, Path]:
    """Write sequences, some of them with repeats, and a table of clusters of three; return both files."""
    rng = np.random.default_rng(count)
    records = []
    for k in range(count):
        sequence = "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWYX"), rng.integers(1, 90)))
        records.append(f">s{k} of {count}\n{sequence}{'QAN' * int(rng.integers(0, 12))}\n")
    fasta, table = folder / "t.fasta", folder / "t.tsv"
    fasta.write_text("".join(records))
    table.write_text("".join(f"s{k - k % 3}\ts{k}\n" for k in range(count)))
    return fasta, table


def build(
    folder: Path, clustered: bool = False, parts: int | None = SPLIT_COUNT, overwrite: bool = False
) -> Path:
    fasta, table = write_records(folder)
    out = folder / ("whole" if parts is None else "split")
    settings = BuildSettings(
        clusters=table if clustered else None, parts=parts, threads=1, overwrite=overwrite
    )
    build_database([fasta], out, settings)
    return out


@pytest.mark.parametrize("clustered", [False, True])
def test_parts_contain_each_sequence_once_in_the_order_of_the_whole(tmp_path: Path, clustered: bool) -> None:
    whole = TargetDatabase.open(build(tmp_path, clustered, parts=None))
    folders = split_folders(build(tmp_path, clustered))
    assert [folder.name for folder in folders] == ["1-of-4", "2-of-4", "3-of-4", "4-of-4"]
    found: list[int] = []
    for number, folder in enumerate(folders, start=1):
        part = TargetDatabase.open(folder)
        part.verify()
        indices = part.whole_indices(np.arange(len(part)))
        found += indices.tolist()
        for own, index in enumerate(indices.tolist()):
            assert part.header(own) == whole.header(index)
            assert part.arrays.codes(own).tolist() == whole.arrays.codes(index).tolist()
        representatives = indices[: part.representatives]
        assert representatives.tolist() == list(range(number - 1, whole.representatives, SPLIT_COUNT))
        owners = part.whole_indices(part.cluster_representatives(np.arange(len(part))))
        assert owners.tolist() == whole.cluster_representatives(indices).tolist()
        # the other way round, as searches use it
        members = part.members(np.arange(part.representatives))
        expected = whole.members(representatives)
        assert part.whole_indices(members).tolist() == expected.tolist()
        assert part.manifest.whole is not None
        assert part.manifest.whole.checksums == whole.manifest.checksums
        assert part.total_residues == whole.total_residues > part.manifest.residues
        assert part.length_sample.residues.tolist() == whole.length_sample.residues.tolist()
    assert sorted(found) == list(range(len(whole)))


def test_part_equals_a_database_of_its_sequences(tmp_path: Path) -> None:
    for folder in split_folders(build(tmp_path)):
        part = TargetDatabase.open(folder)
        fasta = tmp_path / f"{folder.name}.fasta"
        fasta.write_text("".join(f">{part.header(k)}\n{part.sequence(k)}\n" for k in range(len(part))))
        alone = build_database([fasta], tmp_path / f"db{folder.name}", BuildSettings(threads=1))
        assert {name: alone.files[name] for name in FILES} == {
            name: part.manifest.files[name] for name in FILES
        }
        for name in ("sequences", "residues", "masked_residues", "length_quantiles"):
            assert getattr(alone, name) == getattr(part.manifest, name)
    assert alone.masked_residues > 0


def test_chunks_do_not_change_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [TargetDatabase.open(folder).manifest for folder in split_folders(build(tmp_path))]
    monkeypatch.setattr(split, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(split, "_CHUNK_HEADERS", 3)
    after = [
        TargetDatabase.open(folder).manifest for folder in split_folders(build(tmp_path, overwrite=True))
    ]
    assert before == after


@pytest.mark.parametrize("name", FILES + CLUSTER_FILES + PART_FILES)
def test_damage_of_each_file_is_found(tmp_path: Path, name: str) -> None:
    path = build(tmp_path, clustered=True) / "2-of-4" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=name):
        TargetDatabase.open(path.parent)
    path.write_bytes(content[:-1])
    with pytest.raises(InputError, match=name):
        TargetDatabase.open(path.parent)


def test_inconsistent_numbers_are_refused(tmp_path: Path) -> None:
    part = build(tmp_path) / "2-of-4"
    manifest = json.loads((part / "manifest.json").read_text())
    # earlier versions had no checksum
    del manifest["manifest_sha256"]
    for name, value in (("sequences", 3), ("part", 5), ("part", 0), ("residues", "many"), ("checksums", [])):
        changed = manifest | {"whole": manifest["whole"] | {name: value}}
        (part / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match="damaged"):
            TargetDatabase.open(part)


def test_file_that_does_not_hold_whole_numbers_is_refused(tmp_path: Path) -> None:
    part = build(tmp_path) / "2-of-4"
    (part / SAMPLE_LENGTHS).write_bytes(bytes(7))
    # the manifest agrees with the file, as somebody may write it
    manifest = json.loads((part / "manifest.json").read_text())
    del manifest["manifest_sha256"]
    manifest["parts"][SAMPLE_LENGTHS] = {"bytes": 7, "sha256": hashlib.sha256(bytes(7)).hexdigest()}
    (part / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        InputError, match=r"sample_lengths\.i32: damaged database: 7 bytes, which are not whole"
    ):
        TargetDatabase.open(part)


def test_interrupted_split_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupt(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(split, "write_manifest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"t.fasta", "t.tsv"}


def test_split_database_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    out = build(tmp_path)
    with pytest.raises(InputError, match="--overwrite"):
        build(tmp_path)
    build_database([tmp_path / "t.fasta"], out, BuildSettings(parts=2, threads=1, overwrite=True))
    assert {path.name for path in out.iterdir()} == {"1-of-2", "2-of-2", SPLIT}


def test_split_database_is_not_opened_as_one(tmp_path: Path) -> None:
    out = build(tmp_path)
    with pytest.raises(InputError, match="merge-hits"):
        TargetDatabase.open(out)
    (out / SPLIT).write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        split_folders(out)


def test_more_parts_than_clusters_are_refused(tmp_path: Path) -> None:
    fasta, table = write_records(tmp_path)
    settings = BuildSettings(clusters=table, parts=9, threads=1)
    with pytest.raises(InputError, match="9 parts need at least 9 clusters; there are 8"):
        build_database([fasta], tmp_path / "split", settings)
    assert not (tmp_path / "split").exists()
