"""Unpacking of an archive: selected files only, and nothing unsafe."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from foldcli.params.archive import unpack
from msa.base.errors import InputError, MissingError
from tests.foldcli.params.conftest import tar_of

Add = Callable[[tarfile.TarFile], None]


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Add:
    """Return a function that adds a member of three bytes, or a link, to a tar."""

    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        info.size = 3 if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(b"abc") if info.size else None)

    return add


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


def unpack_files(archive: Path, folder: Path, *names: str) -> dict[str, tuple[int, str]]:
    return unpack(archive, names, folder, lambda needed: None, lambda done, total: None)


def test_only_requested_files_and_the_licence_are_written(tmp_path: Path, folder: Path) -> None:
    content = {
        "./LICENSE": b"text",
        "params/a.npz": b"a" * 3000,
        "b.npz": b"b",
        "c/a.npz": b"c",
        "d.npz": b"",
    }
    (tmp_path / "a.tar").write_bytes(tar_of(content))
    checked: list[int] = []
    progress: list[tuple[int, int | None]] = []
    files = unpack(
        tmp_path / "a.tar", ["b.npz", "a.npz"], folder, checked.append, lambda *now: progress.append(now)
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "LICENSE": b"text",
        "a.npz": b"a" * 3000,
        "b.npz": b"b",
    }
    assert files == {name: (n, hashlib.sha256(name[:1].encode() * n).hexdigest()) for name, n in
                    (("a.npz", 3000), ("b.npz", 1))}  # fmt: skip
    assert checked == [3005] and progress[-1] == (3005, 3005)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (member("../a.npz"), "'../a.npz', outside its own folder"),
        (member("x/../../a.npz"), "outside its own folder"),
        (member("/tmp/a.npz"), "'/tmp/a.npz', outside its own folder"),
        (member("a.npz", tarfile.SYMTYPE, "/etc/passwd"), "'a.npz' is not a regular file"),
        (member("b.npz", tarfile.LNKTYPE, "a.npz"), "'b.npz' is not a regular file"),
        (member("a.npz", tarfile.FIFOTYPE), "'a.npz' is not a regular file"),
        (member("a.npz", tarfile.CHRTYPE), "'a.npz' is not a regular file"),
        (member("params/a.npz"), "has a.npz twice"),
    ],
)
def test_unsafe_members_are_refused(tmp_path: Path, folder: Path, add: Add, message: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        if "twice" in message:
            member("a.npz")(tar)
        add(tar)
        member("z.npz")(tar)
    with pytest.raises(InputError, match=r"a\.tar: ") as error:
        unpack_files(tmp_path / "a.tar", folder, "z.npz")
    assert message in str(error.value)
    assert not list(folder.iterdir()) and not (tmp_path / "a.npz").exists()


def test_huge_licence_is_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"LICENSE": bytes(2 << 20), "a.npz": b"a"}))
    with pytest.raises(InputError, match="'LICENSE' has 2,097,152 bytes"):
        unpack_files(tmp_path / "a.tar", folder, "a.npz")


def sparse_archive(records: str) -> bytes:
    """Return an archive with one member whose extended header has these records, in GNU's sparse format."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.npz")
        info.size, info.pax_headers = 3, dict(record.split("=", 1) for record in records.split())
        tar.addfile(info, io.BytesIO(b"abc"))
    return stream.getvalue()


def sized_archive(size: int) -> bytes:
    """Return an archive whose member claims a size, as a binary number."""
    info = tarfile.TarInfo("a.npz")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240)


@pytest.mark.parametrize(
    "content",
    [
        *(sized_archive(size) for size in (1 << 40, 1 << 63, 1 << 80)),
        sparse_archive("GNU.sparse.major=1 GNU.sparse.minor=0 GNU.sparse.realsize=x GNU.sparse.name=a.npz"),
        sparse_archive("GNU.sparse.map=x,y GNU.sparse.size=3"),
        sparse_archive("GNU.sparse.map=0,99999999999999 GNU.sparse.size=99999999999999"),
        sparse_archive("GNU.sparse.size=9"),
        sparse_archive("size=-1"),
    ],
)
def test_wrong_sizes_are_refused(tmp_path: Path, folder: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tar: .*(damaged one|not a regular file)"):
        unpack_files(tmp_path / "a.tar", folder, "a.npz")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("size", [0, 100, 512 + 1000, 512 + 4096 + 100])
def test_truncated_archive_is_refused(tmp_path: Path, folder: Path, size: int) -> None:
    whole = tar_of({"a.npz": b"a" * 4096, "b.npz": b"b" * 4096})
    (tmp_path / "a.tar").write_bytes(whole[:size])
    with pytest.raises(InputError, match=r"not a tar archive, or a damaged one|has no a\.npz|has no b\.npz"):
        unpack_files(tmp_path / "a.tar", folder, "a.npz", "b.npz")


@pytest.mark.parametrize("content", [b"<html>" * 500, bytes(100), b"\x1f\x8b" + bytes(1000)])
def test_other_files_are_refused(tmp_path: Path, folder: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tar: "):
        unpack_files(tmp_path / "a.tar", folder, "a.npz")


def test_nothing_is_written_without_disk_space(tmp_path: Path, folder: Path) -> None:
    def refuse(needed: int) -> None:
        raise MissingError(f"no space for {needed}", "")

    (tmp_path / "a.tar").write_bytes(tar_of({"a.npz": bytes(4096)}))
    with pytest.raises(MissingError, match="no space for 4096"):
        unpack(tmp_path / "a.tar", ["a.npz"], folder, refuse, lambda done, total: None)
    assert not list(folder.iterdir())
