"""Tests of the file format of cache entries, with randomly damaged files."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from features.alphafold2.deterministic import make_features
from features.alphafold2.schema import CACHED_FEATURES
from features.cache import entry as entry_module
from features.cache.cache import FeatureCache, cache_key
from features.cache.entry import CorruptEntryError, encode_entry, read_entry, read_entry_metadata
from msa.alignments.files import parse_alignment, read_alignment
from tests.msa.alignments.alignment_builders import single_sequence

NUM_DAMAGED = 500


@pytest.fixture(scope="module")
def entries(request: pytest.FixtureRequest) -> dict[str, bytes]:
    """Return the contents of small entries by key: families and a single query."""
    data = Path(__file__).parents[1] / "data"
    inputs = [
        [read_alignment(data / "family.a3m")],
        [read_alignment(data / "family.sto"), read_alignment(data / "family.a3m")],
        [single_sequence("alone", "MKVLGADEW")],
    ]
    shared = Path(__file__).parents[4] / "shared" / "data" / "msas"
    if shared.is_dir():
        inputs += [[read_alignment(shared / "3u8v_A.a3m")], [read_alignment(shared / "3u8v_A.uniref90.sto")]]
    return {cache_key(each): encode_entry(cache_key(each), make_features(each), ["x"]) for each in inputs}


def damage(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """Damage a file in a random way: flipped bits, lost or overwritten ranges, mixed files."""
    data = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 8, 64, 512, 4096)))
    match rng.randrange(10):
        case 0 | 1:
            data[start] ^= 1 << rng.randrange(8)
        case 2:
            data[rng.randrange(header)] ^= 1 << rng.randrange(8)
        case 3:
            for _ in range(rng.randrange(2, 9)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        case 4:
            del data[start:]
        case 5:
            del data[start:end]
        case 6:
            data[start:start] = rng.randbytes(end - start)
        case 7:
            data[start:end] = bytes(end - start)
        case 8:
            # the start of one entry and the end of another
            data[start:] = other[start:]
        case 9:
            data[:] = other
    return bytes(data)


def damaged_entries(entries: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """Return keys and damaged contents, all different from the original."""
    rng = random.Random(0)
    result: list[tuple[str, bytes]] = []
    while len(result) < NUM_DAMAGED:
        key, other = rng.sample(sorted(entries), 2)
        content = damage(entries[key], entries[other], rng)
        if content != entries[key]:
            result.append((key, content))
    return result


def test_all_damage_is_detected(entries: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "entry.safetensors"
    for number, (key, content) in enumerate(damaged_entries(entries)):
        path.write_bytes(content)
        with pytest.raises(CorruptEntryError) as caught:
            read_entry(path, key)
        assert str(caught.value).startswith(f"{path}: "), number
        assert "\n" not in str(caught.value)


def test_damage_without_verification_is_an_entry_or_a_named_error(
    entries: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "entry.safetensors"
    read = 0
    for key, content in damaged_entries(entries):
        path.write_bytes(content)
        try:
            read_entry(path, key, verify=False)
        except CorruptEntryError as error:
            assert str(error).startswith(f"{path}: ")
        else:
            read += 1
    # damage of compressed data is mostly detected, that of a query's name is not
    assert 0 < read < NUM_DAMAGED


@pytest.mark.parametrize("verify", [True, False])
def test_entries_round_trip(entries: dict[str, bytes], tmp_path: Path, verify: bool) -> None:
    for key, content in entries.items():
        (tmp_path / "entry").write_bytes(content)
        features = read_entry(tmp_path / "entry", key, verify)
        assert features.keys() == CACHED_FEATURES.keys()
        assert encode_entry(key, features, ["x"]) == content


def damaged_layout(content: bytes, name: str, layout: list[Any]) -> bytes:
    """Return an entry whose header states another type or shape of a tensor."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata = json.loads(header["__metadata__"][entry_module.FORMAT])
    metadata["tensors"][name] = layout
    return safetensors.numpy.save(
        safetensors.numpy.load(content), {entry_module.FORMAT: json.dumps(metadata)}
    )


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("msa", ["|i1", [38, 30]]),
        ("msa", ["|i1", [380, 310]]),
        ("deletion_matrix", ["|u1", [37, 31]]),
        ("hhblits_profile", ["<f8", [31, 22]]),
        *(("msa", [kind, [38, 31]]) for kind in ("O", "|O8", "<M8[s]", "V8")),
    ],
)
def test_types_and_shapes_that_do_not_match_are_an_error(
    entries: dict[str, bytes], tmp_path: Path, name: str, layout: list[Any]
) -> None:
    (tmp_path / "entry").write_bytes(damaged_layout(next(iter(entries.values())), name, layout))
    with pytest.raises(CorruptEntryError, match=r"the type|does not match|too small"):
        read_entry(tmp_path / "entry", verify=False)


@pytest.mark.parametrize(("largest", "dtype"), [(9, np.uint8), (60_000, np.uint16), (70_000, np.uint32)])
def test_features_are_aligned_and_share_no_memory(tmp_path: Path, largest: int, dtype: type) -> None:
    features = make_features([parse_alignment(b">q\nMKV\n>a\nM%bWV\n" % (b"a" * largest))])
    (tmp_path / "entry").write_bytes(encode_entry("0" * 64, features, []))
    back = read_entry(tmp_path / "entry")
    assert back["deletion_matrix"].dtype == dtype
    before = {name: value.tobytes() for name, value in back.items()}
    for name, value in back.items():
        assert (value.dtype, value.shape, before[name]) == (
            features[name].dtype, features[name].shape, features[name].tobytes(),
        )  # fmt: skip
        assert value.flags.writeable and value.flags.aligned, name
        value[...] = np.zeros((), value.dtype)
        for other in back.keys() - {name}:
            assert back[other].tobytes() == before[other]
        value[...] = np.frombuffer(before[name], value.dtype).reshape(value.shape)


def test_checksum_covers_all_other_bytes(entries: dict[str, bytes]) -> None:
    content = min(entries.values(), key=len)
    digits = entry_module._CHECKSUM
    checksum = entry_module._checksum(content)
    assert content[digits] == checksum
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        unchanged = entry_module._checksum(changed) == checksum
        assert unchanged == (digits.start <= position < digits.stop)


def test_entries_are_safetensors_files(entries: dict[str, bytes]) -> None:
    for content in entries.values():
        stored = safetensors.numpy.load(content)
        assert {name: value.dtype for name, value in stored.items()} == {"features": np.uint8}


def test_metadata_is_readable_from_the_header_alone(entries: dict[str, bytes], tmp_path: Path) -> None:
    key, content = next(iter(entries.items()))
    path = tmp_path / "entry"
    header = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:header])
    metadata = read_entry_metadata(path)
    assert (metadata["key"], metadata["name"], metadata["version"]) == (key, "row0 a description", 5)
    assert metadata["tensors"]["msa"] == ["|i1", [38, 31]]
    path.write_bytes(content[: header - 1])
    with pytest.raises(CorruptEntryError, match="truncated"):
        read_entry_metadata(path)


def test_foreign_and_newer_entries_are_an_error(
    entries: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FeatureCache(tmp_path)
    (key, content), (other, _) = list(entries.items())[:2]
    for verify in (True, False):
        cache.path(key).parent.mkdir(exist_ok=True)
        cache.path(other).parent.mkdir(exist_ok=True)
        cache.path(other).write_bytes(content)
        with pytest.raises(CorruptEntryError, match=f"{cache.path(other)}: .*a different key, {key}"):
            cache.load(other, verify)
        for foreign, message in (
            (safetensors.numpy.save({"x": np.zeros(3)}), "not an entry of the feature cache"),
            (b"", "truncated"),
            (b"\x7fELF" + bytes(60), "truncated"),
            (b"\2\0\0\0\0\0\0\0[]", "damaged"),
            (b"\2\0\0\0\0\0\0\0{]", "damaged"),
        ):
            cache.path(key).write_bytes(foreign)
            with pytest.raises(CorruptEntryError, match=message):
                cache.load(key, verify)
            with pytest.raises(CorruptEntryError, match=message):
                read_entry_metadata(cache.path(key))
        cache.path(key).write_bytes(content.replace(b'\\"version\\": 5', b'\\"version\\": 6'))
        with pytest.raises(CorruptEntryError, match="format version 6; this program reads 5"):
            cache.load(key, verify)
    with pytest.raises(FileNotFoundError):
        cache.load("1" * 64)


def test_features_that_do_not_match_the_schema_are_an_error(tmp_path: Path) -> None:
    features = make_features([single_sequence("x", "MKV")])
    with pytest.raises(ValueError, match="extra"):
        FeatureCache(tmp_path).store("0" * 64, features | {"extra": np.zeros(1)})
    with pytest.raises(ValueError, match="msa"):
        FeatureCache(tmp_path).store("0" * 64, {name: features[name] for name in features if name != "msa"})
    assert not list(tmp_path.iterdir())
