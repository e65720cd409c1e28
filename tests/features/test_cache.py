"""The cache gives back what was stored, or says what is wrong with it; never anything else."""

import multiprocessing
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features import cache as cache_module
from features.cache import CorruptEntryError, FeatureCache, cache_key, entry_metadata, read_entry
from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from foldcli.feature_step import load_or_make
from msa.alignments import Alignment, parse_alignment, read_alignment, single_sequence

A3M = b">q\nMKVLGA\n>a\nMK-aaLGA\n>b\nM--L-A\n"


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        assert value.shape == theirs[name].shape, name
        assert value.tobytes() == theirs[name].tobytes(), name


def family(data_dir: Path) -> list[Alignment]:
    return [read_alignment(data_dir / "family.sto"), read_alignment(data_dir / "family.a3m")]


def test_features_come_back_as_they_went_in(data_dir: Path, tmp_path: Path) -> None:
    for alignments in (family(data_dir), [single_sequence("x", "G")], [parse_alignment(A3M)]):
        features = make_features(alignments)
        cache, key = FeatureCache(tmp_path / "c"), cache_key(alignments)
        path = cache.store(key, features)
        assert path == tmp_path / "c" / key[:2] / f"{key}.safetensors"
        assert_same(cache.load(key), features)
        assert_same(read_entry(path), features)
    assert len(list(cache.keys())) == 3


def test_a_seed_draws_the_same_from_the_cache_as_from_the_alignment(data_dir: Path, tmp_path: Path) -> None:
    alignments = family(data_dir)
    cache = FeatureCache(tmp_path)
    made, hit = cache.load_or_make(alignments)
    loaded, hit_again = cache.load_or_make(alignments)
    assert (hit, hit_again) == (False, True)
    sampling = SamplingSettings(12, 9, template_slots=4)
    assert_same(sample_features(loaded, sampling, 2, seed=5), sample_features(made, sampling, 2, seed=5))


@pytest.mark.parametrize(
    "file", ["6KWC_1.a3m", "3u8v_A.a3m", "3u8v_A.uniref90.sto", "2QKE_E.colabfold.a3m.gz"]
)
def test_a_seed_draws_the_same_from_the_cache_of_real_alignments(
    shared_dir: Path, tmp_path: Path, file: str
) -> None:
    alignments = [read_alignment(shared_dir / "data" / "msas" / file)]
    # one count that does not fit into two bytes
    deletions = alignments[0].deletions.astype(np.uint32)
    deletions[-1, -1] = 70_000
    alignments.append(replace(alignments[0], deletions=deletions, letters=alignments[0].letters[:, :].copy()))
    alignments[1].letters[-1, -1] = ord("W")
    cache = FeatureCache(tmp_path)
    made, _ = cache.load_or_make(alignments)
    loaded, hit = cache.load_or_make(alignments)
    assert hit and loaded["deletion_matrix"].max() == 70_000
    assert_same(loaded, made)
    for slots in (0, 4):
        sampling = SamplingSettings(template_slots=slots)
        assert_same(sample_features(loaded, sampling, 2, 11), sample_features(made, sampling, 2, 11))


def test_the_entry_of_a_deep_alignment_takes_half_of_its_gzipped_file(
    shared_dir: Path, tmp_path: Path
) -> None:
    source = shared_dir / "data" / "msas" / "2QKE_E.colabfold.a3m.gz"
    alignments = [read_alignment(source)]
    cache = FeatureCache(tmp_path)
    cache.load_or_make(alignments)
    assert 2 * cache.path(cache_key(alignments)).stat().st_size <= source.stat().st_size


def test_second_run_writes_nothing_and_overwrite_writes_the_same_bytes(
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


def test_a_damaged_entry_is_raised_by_name_and_overwritten_on_demand(data_dir: Path, tmp_path: Path) -> None:
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


def test_an_entry_of_the_first_version_is_made_anew_and_named(
    data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alignments = [replace(read_alignment(data_dir / "family.a3m"), source=None)]
    path = FeatureCache(tmp_path).path(cache_key(alignments))
    path.parent.mkdir()
    shutil.copy(data_dir / "family.version_1.safetensors", path)
    with caplog.at_level("WARNING"):
        features, hit = load_or_make("family", alignments, tmp_path)
    assert not hit
    assert caplog.messages == [
        f"family: {path}: cache entry of format version 1; this program reads 2; made anew"
    ]
    assert_same(features, make_features(alignments))
    assert load_or_make("family", alignments, tmp_path)[1]
    assert_same(read_entry(path), features)


def test_key_depends_on_content_not_on_its_wrapping() -> None:
    key = cache_key([parse_alignment(A3M)])
    rewrapped = A3M.replace(b"MKVLGA\n", b"MKV\r\nLGA\r\n").replace(b">a", b">another name")
    assert cache_key([parse_alignment(rewrapped, "elsewhere.a3m")]) == key
    other = [
        A3M.replace(b">q", b">p"),
        A3M.replace(b"aaL", b"aL"),
        A3M.replace(b"-aaL", b"aa-L"),
        A3M.replace(b"M--L", b"MK-L"),
        A3M + b">c\nMKVLGA\n",
    ]
    keys = {cache_key([parse_alignment(text)]) for text in other}
    assert len(keys | {key}) == len(other) + 1
    assert cache_key([parse_alignment(A3M)] * 2) != key


def test_key_depends_on_the_schema_version(monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache_key([parse_alignment(A3M)])
    monkeypatch.setattr(cache_module, "SCHEMA_VERSION", 2)
    assert cache_key([parse_alignment(A3M)]) != key


def test_an_entry_says_what_it_was_made_from(tmp_path: Path, data_dir: Path) -> None:
    alignments = [*family(data_dir), replace(family(data_dir)[0], source=None)]
    cache = FeatureCache(tmp_path)
    cache.load_or_make(alignments)
    said = entry_metadata(cache.path(cache_key(alignments)))
    assert said["key"] == cache_key(alignments)
    assert said["version"] == 2
    assert said["sources"] == [str(data_dir / "family.sto"), str(data_dir / "family.a3m"), None]


@pytest.fixture(scope="module")
def entry() -> tuple[str, bytes, dict[str, np.ndarray]]:
    """Key, file content and features of an entry with tensors written in every way."""
    rows = b"".join(b">r%d\nM%sKVLGADEW\n" % (i, bytes([65 + i % 20]) * 60) for i in range(40))
    alignments = [parse_alignment(b">q\nM" + b"C" * 60 + b"KVLGADEW\n" + rows.replace(b"B", b"Y"))]
    features = make_features(alignments)
    key = cache_key(alignments)
    return key, cache_module._encode(key, features, ["x.a3m"]), features


def test_the_entry_under_test_has_every_encoding(entry) -> None:
    encoding = cache_module._read_header(entry[1])["encoding"]
    assert {how["as"] for how in encoding.values()} == {"raw", "zstd", "sparse"}


@given(data=st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_goes_unnoticed(entry, tmp_path: Path, data: st.DataObject) -> None:
    key, content, features = entry
    damaged = bytearray(content)
    kind = data.draw(st.sampled_from(["flip", "flip in header", "truncate", "extend", "zero a run"]))
    header = int.from_bytes(content[:8], "little") + 8
    place = data.draw(st.integers(0, (header if "header" in kind else len(content)) - 1))
    if kind.startswith("flip"):
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "truncate":
        del damaged[place:]
    elif kind == "extend":
        damaged += data.draw(st.binary(min_size=1, max_size=9))
    else:
        damaged[place : place + 64] = bytes(len(damaged[place : place + 64]))
    path = tmp_path / "entry.safetensors"
    path.write_bytes(damaged)
    try:
        loaded = read_entry(path, key)
    except CorruptEntryError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        # padding inside the JSON header, or zeros written over zeros: nothing that is read has changed
        assert_same(loaded, features)


def test_foreign_and_newer_entries_are_refused_by_name(entry, tmp_path: Path, monkeypatch) -> None:
    key, content, features = entry
    cache = FeatureCache(tmp_path)
    path = cache.store(key, features)

    cache.path("0" * 64).parent.mkdir()
    cache.path("0" * 64).write_bytes(content)
    with pytest.raises(CorruptEntryError, match="another key"):
        cache.load("0" * 64)

    path.write_bytes(safetensors.numpy.save({"x": np.zeros(3)}))
    with pytest.raises(CorruptEntryError, match="not an entry"):
        cache.load(key)

    path.write_bytes(b"")
    with pytest.raises(CorruptEntryError, match="truncated"):
        cache.load(key)
    with pytest.raises(CorruptEntryError, match="truncated"):
        entry_metadata(path)

    path.write_bytes(content)
    monkeypatch.setattr(cache_module, "FORMAT_VERSION", 0)
    with pytest.raises(CorruptEntryError, match="format version 2; this program reads 0"):
        cache.load(key)

    with pytest.raises(FileNotFoundError):
        cache.load("1" * 64)


def test_features_outside_the_schema_are_not_stored(entry, tmp_path: Path) -> None:
    key, _, features = entry
    with pytest.raises(ValueError, match="extra"):
        FeatureCache(tmp_path).store(key, features | {"extra": np.zeros(1)})
    with pytest.raises(ValueError, match="msa"):
        FeatureCache(tmp_path).store(key, {name: features[name] for name in features if name != "msa"})
    assert not list(tmp_path.rglob("*.*"))


def _cache_all(root: Path, numbers: range) -> None:
    for number in numbers:
        FeatureCache(root).load_or_make([single_sequence(f"s{number}", "MKVLG" * (number + 1))])


def test_processes_that_race_leave_one_valid_entry_per_target(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_cache_all, args=(tmp_path, range(12))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    keys = list(FeatureCache(tmp_path).keys())
    assert len(keys) == 12
    assert {int(FeatureCache(tmp_path).load(key)["seq_length"]) for key in keys} == set(range(5, 65, 5))
    assert sum(len(files) for _, _, files in os.walk(tmp_path)) == 12
