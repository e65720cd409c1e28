"""Tests of the feature cache: round trips, keys, damaged entries, entries of earlier versions."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.cache import cache as cache_module
from features.cache.cache import FeatureCache, cache_key
from features.cache.entry import CorruptEntryError, entry_keys, read_entry, read_entry_metadata
from foldcli.pipeline.prepare.cached_features import load_or_make_features
from foldcli.pipeline.targets.settings import FeatureSettings
from msa.alignments.files import Alignment, parse_alignment, read_alignment
from tests.msa.alignments.alignment_builders import single_sequence

A3M = b">q\nMKVLGA\n>a\nMK-aaLGA\n>b\nM--L-A\n"


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        assert value.shape == theirs[name].shape, name
        assert value.tobytes() == theirs[name].tobytes(), name


def family(data_dir: Path) -> list[Alignment]:
    return [read_alignment(data_dir / "family.sto"), read_alignment(data_dir / "family.a3m")]


def test_stored_features_round_trip(data_dir: Path, tmp_path: Path) -> None:
    for alignments in (family(data_dir), [single_sequence("x", "G")], [parse_alignment(A3M)]):
        features = make_features(alignments)
        cache, key = FeatureCache(tmp_path / "c"), cache_key(alignments)
        path = cache.store(key, features)
        assert path == tmp_path / "c" / key[:2] / f"{key}.safetensors"
        assert_same(cache.load(key), features)
        assert_same(read_entry(path), features)
    assert len(list(entry_keys(cache.root))) == 3


def test_sampling_from_the_cache_equals_sampling_from_the_alignment(data_dir: Path, tmp_path: Path) -> None:
    alignments = family(data_dir)
    cache = FeatureCache(tmp_path)
    computed, hit = cache.load_or_make(alignments)
    loaded, hit_again = cache.load_or_make(alignments)
    assert (hit, hit_again) == (False, True)
    sampling = SamplingSettings(12, 9, template_slots=4)
    assert_same(sample_features(loaded, sampling, 2, seed=5), sample_features(computed, sampling, 2, seed=5))


@pytest.mark.parametrize(
    "file", ["6KWC_1.a3m", "3u8v_A.a3m", "3u8v_A.uniref90.sto", "2QKE_E.colabfold.a3m.gz"]
)
def test_sampling_from_the_cache_with_real_alignments(shared_dir: Path, tmp_path: Path, file: str) -> None:
    alignments = [read_alignment(shared_dir / "data" / "msas" / file)]
    # one count that does not fit into two bytes
    deletions = alignments[0].deletions.astype(np.uint32)
    deletions[-1, -1] = 70_000
    alignments.append(replace(alignments[0], deletions=deletions, letters=alignments[0].letters[:, :].copy()))
    alignments[1].letters[-1, -1] = ord("W")
    cache = FeatureCache(tmp_path)
    computed, _ = cache.load_or_make(alignments)
    loaded, hit = cache.load_or_make(alignments)
    assert hit and loaded["deletion_matrix"].max() == 70_000
    assert_same(loaded, computed)
    for slots in (0, 4):
        sampling = SamplingSettings(template_slots=slots)
        assert_same(sample_features(loaded, sampling, 2, 11), sample_features(computed, sampling, 2, 11))


def test_entry_of_a_deep_alignment_is_about_half_of_its_gzipped_file(
    shared_dir: Path, tmp_path: Path
) -> None:
    source = shared_dir / "data" / "msas" / "2QKE_E.colabfold.a3m.gz"
    alignments = [read_alignment(source)]
    cache = FeatureCache(tmp_path)
    cache.load_or_make(alignments)
    assert 1.9 * cache.path(cache_key(alignments)).stat().st_size <= source.stat().st_size


def test_existing_entries_are_kept_and_overwriting_gives_the_same_bytes(
    data_dir: Path, tmp_path: Path
) -> None:
    alignments = family(data_dir)
    cache = FeatureCache(tmp_path)
    cache.load_or_make(alignments)
    path = cache.path(cache_key(alignments))
    content, inode = path.read_bytes(), path.stat().st_ino
    cache.load_or_make(alignments)
    assert path.stat().st_ino == inode
    cache.load_or_make(alignments, overwrite=True)
    assert path.stat().st_ino != inode
    assert path.read_bytes() == content
    assert list(tmp_path.rglob("*.tmp")) == []
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 1


def test_damaged_entry_is_an_error_and_can_be_overwritten(data_dir: Path, tmp_path: Path) -> None:
    alignments = family(data_dir)
    cache = FeatureCache(tmp_path)
    features, _ = cache.load_or_make(alignments)
    path = cache.path(cache_key(alignments))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptEntryError, match=str(path)):
        cache.load_or_make(alignments)
    again, hit = cache.load_or_make(alignments, overwrite=True)
    assert not hit
    assert_same(again, features)
    assert_same(cache.load(cache_key(alignments)), features)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_entry_of_an_earlier_version_is_replaced_with_a_warning(
    data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    alignments = [replace(read_alignment(data_dir / "family.a3m"), source=None)]
    path = FeatureCache(tmp_path).path(cache_key(alignments))
    path.parent.mkdir()
    shutil.copy(data_dir / f"family.version_{version}.safetensors", path)
    with caplog.at_level("WARNING"):
        features, hit = load_or_make_features("family", alignments, FeatureSettings(tmp_path))
    assert not hit
    assert caplog.messages == [
        f"family: {path}: cache entry of format version {version}; this program reads 5; computed again"
    ]
    assert_same(features, make_features(alignments))
    assert load_or_make_features("family", alignments, FeatureSettings(tmp_path))[1]
    assert_same(read_entry(path), features)


def test_key_depends_on_content_and_not_on_file_format() -> None:
    key = cache_key([parse_alignment(A3M)])
    rewrapped = A3M.replace(b"MKVLGA\n", b"MKV\r\nLGA\r\n").replace(b">a", b">another name")
    assert cache_key([parse_alignment(rewrapped, "elsewhere.a3m")]) == key
    other = [
        A3M.replace(b">q", b">p"),
        A3M.replace(b"aaL", b"aL"),
        A3M.replace(b"-aaL", b"aa-L"),
        A3M.replace(b"M--L", b"MK-L"),
        A3M + b">c\nMKVLGA\n",
        A3M.replace(b">a", b">a OX=9606"),
        A3M.replace(b">a", b">a OX=10090"),
        A3M.replace(b">b", b">b OX=9606"),
    ]
    keys = {cache_key([parse_alignment(text)]) for text in other}
    assert len(keys | {key}) == len(other) + 1
    assert cache_key([parse_alignment(A3M)] * 2) != key


def test_key_depends_on_the_schema_version(monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache_key([parse_alignment(A3M)])
    monkeypatch.setattr(cache_module, "SCHEMA_VERSION", 2)
    assert cache_key([parse_alignment(A3M)]) != key


def test_entry_records_its_sources(tmp_path: Path, data_dir: Path) -> None:
    alignments = [*family(data_dir), replace(family(data_dir)[0], source=None)]
    cache = FeatureCache(tmp_path)
    cache.load_or_make(alignments)
    metadata = read_entry_metadata(cache.path(cache_key(alignments)))
    assert metadata["key"] == cache_key(alignments)
    assert metadata["version"] == 5
    assert metadata["name"] == family(data_dir)[0].names[0]
    assert metadata["sources"] == [str(data_dir / "family.sto"), str(data_dir / "family.a3m"), None]
