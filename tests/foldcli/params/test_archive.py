"""What is taken out of an archive, and what is refused."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from foldcli.params.archive import unpack
from msa.errors import InputError, MissingError
from tests.foldcli.params.conftest import tar_of

Add = Callable[[tarfile.TarFile], None]


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Add:
    """Adds a member of three bytes, or a link."""

    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        info.size = 3 if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(b"abc") if info.size else None)

    return add


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    made.mkdir()
    return made


def unpacked(archive: Path, folder: Path, *wanted: str) -> dict[str, tuple[int, str]]:
    return unpack(archive, wanted, folder, lambda needed: None, lambda done, total: None)


def test_only_what_is_wanted_is_written(tmp_path: Path, folder: Path) -> None:
    content = {
        "./LICENSE": b"text",
        "params/a.npz": b"a" * 3000,
        "b.npz": b"b",
        "c/a.npz": b"c",
        "d.npz": b"",
    }
    (tmp_path / "a.tar").write_bytes(tar_of(content))
    rooms: list[int] = []
    told: list[tuple[int, int | None]] = []
    made = unpack(tmp_path / "a.tar", ["b.npz", "a.npz"], folder, rooms.append, lambda *now: told.append(now))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "LICENSE": b"text",
        "a.npz": b"a" * 3000,
        "b.npz": b"b",
    }
    assert made == {name: (n, hashlib.sha256(name[:1].encode() * n).hexdigest()) for name, n in
                    (("a.npz", 3000), ("b.npz", 1))}  # fmt: skip
    assert rooms == [3005] and told[-1] == (3005, 3005)


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (member("../a.npz"), "'../a.npz', which leads out of it"),
        (member("x/../../a.npz"), "leads out of it"),
        (member("/tmp/a.npz"), "'/tmp/a.npz', which leads out of it"),
        (member("a.npz", tarfile.SYMTYPE, "/etc/passwd"), "'a.npz' is no plain file"),
        (member("b.npz", tarfile.LNKTYPE, "a.npz"), "'b.npz' is no plain file"),
        (member("a.npz", tarfile.FIFOTYPE), "'a.npz' is no plain file"),
        (member("a.npz", tarfile.CHRTYPE), "'a.npz' is no plain file"),
        (member("params/a.npz"), "has a.npz twice"),
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, folder: Path, add: Add, said: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        if "twice" in said:
            member("a.npz")(tar)
        add(tar)
        member("z.npz")(tar)
    with pytest.raises(InputError, match=r"a\.tar: ") as error:
        unpacked(tmp_path / "a.tar", folder, "z.npz")
    assert said in str(error.value)
    assert not list(folder.iterdir()) and not (tmp_path / "a.npz").exists()


def test_a_huge_licence_is_none(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"LICENSE": bytes(2 << 20), "a.npz": b"a"}))
    with pytest.raises(InputError, match="'LICENSE' has 2,097,152 bytes"):
        unpacked(tmp_path / "a.tar", folder, "a.npz")


@pytest.mark.parametrize("left", [0, 100, 512 + 1000, 512 + 4096 + 100])
def test_what_is_cut_off(tmp_path: Path, folder: Path, left: int) -> None:
    whole = tar_of({"a.npz": b"a" * 4096, "b.npz": b"b" * 4096})
    (tmp_path / "a.tar").write_bytes(whole[:left])
    with pytest.raises(InputError, match=r"no tar archive, or a damaged one|has no a\.npz|has no b\.npz"):
        unpacked(tmp_path / "a.tar", folder, "a.npz", "b.npz")


@pytest.mark.parametrize("content", [b"<html>" * 500, bytes(100), b"\x1f\x8b" + bytes(1000)])
def test_what_is_no_archive(tmp_path: Path, folder: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tar: "):
        unpacked(tmp_path / "a.tar", folder, "a.npz")


def test_no_room(tmp_path: Path, folder: Path) -> None:
    def refuse(needed: int) -> None:
        raise MissingError(f"no room for {needed}", "")

    (tmp_path / "a.tar").write_bytes(tar_of({"a.npz": bytes(4096)}))
    with pytest.raises(MissingError, match="no room for 4096"):
        unpack(tmp_path / "a.tar", ["a.npz"], folder, refuse, lambda done, total: None)
    assert not list(folder.iterdir())
