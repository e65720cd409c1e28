"""Saved profiles: round trip, and rejection of damaged files."""

import io
import itertools
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import encode
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.profile_archive import ProfileWriter, parse_profiles, read_profiles
from msa.profile.pssm import QueryProfile

rng = np.random.default_rng(3)
QUERIES = [
    FastaRecord("one α, a header", "MKVLAAGG"),
    FastaRecord("", "MXUOBZJK"),
    FastaRecord("three", "MK" * 500),
]
PROFILES = [
    QueryProfile(encode(q.sequence), rng.integers(-20, 20, (len(q.sequence), 32)).astype(np.int16))
    for q in QUERIES
]


def archive_bytes(count: int = len(QUERIES)) -> bytes:
    stream = io.BytesIO()
    with ProfileWriter(stream) as writer:
        for query, profile in list(zip(QUERIES, PROFILES, strict=True))[:count]:
            writer.add(query, profile)
    return stream.getvalue()


def changed_archive(**arrays: np.ndarray | bytes | None) -> bytes:
    """Return a file of one profile with some arrays, or their raw contents, replaced; None removes one."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive_bytes(1))) as old, zipfile.ZipFile(stream, "w") as new:
        contents = {name: old.read(name) for name in old.namelist()}
        for name, array in arrays.items():
            buffer = io.BytesIO()
            if isinstance(array, np.ndarray):
                np.lib.format.write_array(buffer, array, allow_pickle=True)
            contents[f"{name}.npy"] = array if isinstance(array, bytes) else buffer.getvalue()
        for name, content in contents.items():
            if arrays.get(name.removesuffix(".npy"), b"") is not None:
                new.writestr(name, content)
    return stream.getvalue()


def about(**values: object) -> np.ndarray:
    text = bytes(np.load(io.BytesIO(archive_bytes(1)))["about"])
    return np.frombuffer(json.dumps(json.loads(text) | values).encode(), np.uint8)


def test_round_trip(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "p.npz", "wb") as stream:
        stream.write(archive_bytes())
    found = read_profiles(tmp_path / "p.npz")
    assert [(query.header, query.sequence) for query in found] == [(q.header, q.sequence) for q in QUERIES]
    for query, profile in zip(found, PROFILES, strict=True):
        assert query.profile.dtype == np.int16
        np.testing.assert_array_equal(query.profile, profile.profile)
    assert found[0].source == f"an earlier search, saved in {tmp_path}/p.npz"


def test_numpy_can_read_the_file_and_equal_profiles_give_equal_bytes() -> None:
    with np.load(io.BytesIO(archive_bytes()), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["profile_2"], PROFILES[2].profile)
        np.testing.assert_array_equal(archive["residues_0"], PROFILES[0].codes)
    assert archive_bytes() == archive_bytes()


def test_error_while_writing_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        atomic_write(tmp_path / "p.npz", "wb") as stream,
        ProfileWriter(stream) as writer,
    ):
        writer.add(QUERIES[0], PROFILES[0])
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_every_truncation_is_an_error() -> None:
    whole = archive_bytes(2)
    for end in range(len(whole)):
        with pytest.raises(InputError, match=r"^p\.npz: "):
            list(parse_profiles(whole[:end], "p.npz"))


@settings(deadline=None)
@given(st.data())
def test_changed_byte_is_an_error_or_has_no_effect(data: st.DataObject) -> None:
    whole = bytearray(archive_bytes(2))
    index = data.draw(st.integers(0, len(whole) - 1))
    whole[index] ^= data.draw(st.integers(1, 255))
    try:
        found = list(parse_profiles(bytes(whole), "p.npz"))
    except InputError as error:
        assert str(error).startswith("p.npz: ")
        return
    assert [query.header for query in found] == [query.header for query in QUERIES[:2]]
    for query, profile in zip(found, PROFILES, strict=False):
        np.testing.assert_array_equal(query.profile, profile.profile)


def npy(shape: str) -> bytes:
    """Return the start of an array file without its data."""
    header = f"{{'descr': '<i2', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


class PickleBomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (changed_archive(about=None), "not a file of profiles saved by --save-profile"),
        (changed_archive(about=about(format="x")), "not a file of profiles saved by --save-profile"),
        (
            changed_archive(about=about(version=2)),
            r"version 2 is newer than this foldcli reads \(1\): update foldcli",
        ),
        (changed_archive(about=about(version=0)), "damaged profiles: version: invalid enum value 0"),
        (changed_archive(about=about(alphabet="ACGT")), "damaged profiles: unknown residue alphabet"),
        (
            changed_archive(about=about(profiles=[])),
            "damaged profiles: profiles: expected array",
        ),
        (
            changed_archive(about=about(profiles=[{}])),
            r"damaged profiles: profiles\[0\]: object missing",
        ),
        (changed_archive(about=about(profiles=7)), "damaged profiles: "),
        (changed_archive(about=np.frombuffer(b"{", np.uint8)), "damaged profiles: "),
        (changed_archive(profile_0=None), "damaged profiles: "),
        (
            changed_archive(profile_0=PROFILES[0].profile + np.int16(1)),
            "damaged profiles: the SHA-256 of the profile of 'one",
        ),
        (
            changed_archive(profile_0=PROFILES[0].profile[:3]),
            r"damaged profiles: profile_0 is int16 \[3, 32\]",
        ),
        (changed_archive(profile_0=PROFILES[1].codes), r"damaged profiles: profile_0 is uint8 \[8\]"),
        (changed_archive(profile_0=PROFILES[2].profile), "damaged profiles: profile_0 has [0-9]+ bytes"),
        (changed_archive(profile_0=np.array([PickleBomb()], object)), "damaged profiles: "),
        (changed_archive(profile_0=b""), "damaged profiles: "),
        (
            changed_archive(profile_0=npy("(1000000, 1000000)")),
            r"damaged profiles: profile_0 is int16 \[1000000",
        ),
        (changed_archive(profile_0=npy("(" * 200)), "damaged profiles: "),
        (
            changed_archive(about=about(profiles=[{"header": "one", "length": 10**12}])),
            r"damaged profiles: profiles\[0\].length: expected int <= 16777216",
        ),
        # an offset of the directory before the start of the file
        (archive_bytes()[50:], "damaged profiles: "),
    ],
    # archives contain the time, but all processes must collect the same names
    ids=(f"archive {number}" for number in itertools.count()),
)
def test_invalid_archives_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=rf"^p\.npz: {reason}"):
        list(parse_profiles(content, "p.npz"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "q.fasta").write_text(">a\nMKV\n")
    with pytest.raises(InputError, match=r"q\.fasta: not a file of profiles saved by --save-profile"):
        read_profiles(tmp_path / "q.fasta")
