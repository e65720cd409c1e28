"""From a server or an archive to files in their place: what is checked, kept and left behind."""

import fcntl
import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.params.checksums import expected_sha256
from foldcli.params.connection import Unreachable
from foldcli.params.fetch import FetchSettings, Progress, Ui, fetch
from foldcli.params.parameters import default_folder, find_parameters, installed
from foldcli.params.published import networks_by_file, parameter_bytes
from foldcli.params.verify import verify
from msa.errors import InputError, MissingError
from tests.foldcli.conftest import Npz
from tests.foldcli.params.conftest import damaged, tar_of
from tests.foldcli.params.mirror import Mirror

FILE = "params_model_3_ptm.npz"


class Fetcher:
    """Fetches model 3 from the server into a folder, and what was said of it."""

    def __init__(self, mirror: Mirror, folder: Path) -> None:
        self.settings = FetchSettings(folder, "ptm", (3,), mirror.url, None, None, 0, False)
        self.said: list[str] = []
        self.bars: dict[str, tuple[int, int | None]] = {}

    def __call__(self, **changed: object) -> list[Path]:
        return fetch(replace(self.settings, **changed), Ui(self.said.append, self._bar))  # type: ignore[arg-type]

    @contextmanager
    def _bar(self, title: str) -> Iterator[Progress]:
        def progress(done: int, total: int | None) -> None:
            self.bars[title] = done, total

        yield progress


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "to"


@pytest.fixture
def fetcher(mirror: Mirror, small: bytes, to: Path) -> Fetcher:
    mirror.content = small
    return Fetcher(mirror, to)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_is_fetched_is_recorded(
    fetcher: Fetcher, mirror: Mirror, small: bytes, npz: Npz, to: Path
) -> None:
    assert fetcher() == [to / FILE]
    content = npz("model_3_ptm")
    assert (to / FILE).read_bytes() == content
    assert names(to) == {FILE, "LICENSE", "parameters.json"}
    assert not (to / ".fetch").exists()
    assert (to / "LICENSE").read_text() == "the licence's text\n"
    assert fetcher.bars.keys() == {"downloading", "checking", "unpacking"}
    assert fetcher.bars["downloading"] == (len(small), len(small))

    manifest = json.loads((to / "parameters.json").read_text())
    archive, sha256 = hashlib.sha256(small).hexdigest(), hashlib.sha256(content).hexdigest()
    assert manifest["licence"] == "CC BY 4.0"
    assert manifest["files"] == {FILE: {"bytes": len(content), "sha256": sha256, "archive": archive}}
    record = manifest["archives"][archive]
    assert (record["source"], record["bytes"], record["compared"]) == (mirror.url, len(small), "")

    # what is there is not fetched again, nor looked at on the server
    assert fetcher() == []
    assert len(mirror.requests) == 1


@pytest.mark.parametrize("known", ["sha256", "md5", "crc32"])
def test_wrong_bytes_are_found_and_leave_nothing(
    fetcher: Fetcher, mirror: Mirror, small: bytes, npz: Npz, to: Path, known: str
) -> None:
    mirror.content = damaged(small, small.index(npz("model_3_ptm")) + len(npz("model_3_ptm")) // 2)
    said = {"sha256": "its SHA-256 is", "md5": "its MD5 is not", "crc32": f"archive {FILE}: "}[known]
    sha256 = hashlib.sha256(small).hexdigest() if known == "sha256" else None
    if known == "md5":
        mirror.headers = {"x-goog-hash": f"md5={b64encode(hashlib.md5(small).digest()).decode()}"}
    with pytest.raises(InputError, match=f"{said}.*nothing was unpacked, and the download was removed"):
        fetcher(sha256=sha256)
    assert names(to) == set()


def test_right_bytes_are_recorded_as_compared(
    fetcher: Fetcher, mirror: Mirror, small: bytes, to: Path
) -> None:
    mirror.headers = {"x-goog-hash": f"md5={b64encode(hashlib.md5(small).digest()).decode()}"}
    fetcher()
    (record,) = json.loads((to / "parameters.json").read_text())["archives"].values()
    assert record["compared"] == "md5 of the server"


def test_after_a_broken_connection_files_are_whole(
    fetcher: Fetcher, mirror: Mirror, npz: Npz, to: Path
) -> None:
    mirror.drops = [60_000, 0]
    with pytest.raises(Unreachable, match="60,000 bytes are there"):
        fetcher()
    assert names(to) == {".fetch/archive.tar.part", ".fetch/archive.tar.part.json"}
    fetcher()
    assert mirror.requests[-1]["Range"] == "bytes=60000-"
    assert (to / FILE).read_bytes() == npz("model_3_ptm")
    assert names(to) == {FILE, "LICENSE", "parameters.json"}


def test_no_page_is_taken_for_an_archive(fetcher: Fetcher, mirror: Mirror, to: Path) -> None:
    mirror.content = b"<!doctype html><title>Log in</title>" * 50
    with pytest.raises(InputError, match="no tar archive"):
        fetcher()
    assert names(to) == set()


def test_more_than_the_disk_has(fetcher: Fetcher, mirror: Mirror, to: Path) -> None:
    mirror.length = 10**18
    with pytest.raises(MissingError, match=r"1,000,000,00\d\.\d GB are needed on the disk"):
        fetcher()
    assert names(to) == set()


def test_two_do_not_fetch_into_one_folder(fetcher: Fetcher, mirror: Mirror, to: Path) -> None:
    lock = to / ".fetch" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(MissingError, match="another process is fetching"):
            fetcher()
        assert lock.exists() and not mirror.requests
    # left by one that was killed
    (lock.parent / "unpacked-x").mkdir()
    fetcher()
    assert names(to) == {FILE, "LICENSE", "parameters.json"}


def test_an_archive_that_was_brought_along(fetcher: Fetcher, npz: Npz, to: Path, tmp_path: Path) -> None:
    # as some mirrors pack them, and without a licence
    archive = tmp_path / "brought.tar"
    files = {f"params_{name}.npz": npz(name) for name in ("model_3", "model_3_ptm")}
    archive.write_bytes(tar_of({f"./params/{name}": content for name, content in files.items()}))
    to.mkdir()
    (to / "params_model_3.npz").write_bytes(b"")
    fetcher(local=archive, which="monomer")
    first = {"params_model_3.npz", "LICENSE", "parameters.json"}
    assert names(to) == first
    assert "params_model_3.npz is there but cannot be used" in fetcher.said[-1]
    assert archive.exists() and "CC BY 4.0" in (to / "LICENSE").read_text()

    # what is there and can be used stays as it is, in the manifest too
    stamp = (to / "params_model_3.npz").stat().st_mtime_ns
    fetcher(local=archive, which="all")
    assert names(to) == first | {"params_model_3_ptm.npz"}
    assert (to / "params_model_3.npz").stat().st_mtime_ns == stamp
    assert json.loads((to / "parameters.json").read_text())["files"].keys() == files.keys()
    assert [source.config_name for source in installed(to)] == ["model_3_ptm", "model_3"]

    with pytest.raises(InputError, match=r"brought\.tar: the archive has no params_model_5_ptm\.npz"):
        fetcher(local=archive, numbers=(5,))
    assert archive.exists()


def test_another_networks_parameters_are_refused(
    fetcher: Fetcher, npz: Npz, to: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of({FILE: npz("model_3")}))
    with pytest.raises(InputError, match=f"{FILE}: does not hold the parameters of model_3_ptm: missing:"):
        fetcher(local=archive)
    assert names(to) == set()


def test_what_changes_on_the_disk_is_found(fetcher: Fetcher, npz: Npz, to: Path) -> None:
    fetcher()
    whole, read = (to / FILE).read_bytes(), []
    (result,) = verify(installed(to), lambda *now: read.append(now))
    assert (result.problem, result.checked) == ("", "sha256")
    assert read[-1] == (len(whole), len(whole))
    # the arrays are the same, and only the size and the checksum tell
    (to / FILE).write_bytes(whole + b"\0")
    (result,) = verify(installed(to), lambda *now: None)
    assert "bytes instead of the" in result.problem
    (to / FILE).write_bytes(damaged(whole, len(whole) // 2))
    (result,) = verify(installed(to), lambda *now: None)
    assert "its SHA-256 is" in result.problem


def test_without_a_manifest_the_arrays_own_checksums_count(npz: Npz, to: Path) -> None:
    """As AlphaFold lays out its data: DATA/params/*.npz."""
    (to / "params").mkdir(parents=True)
    file = to / "params" / FILE
    file.write_bytes(npz("model_3_ptm"))
    (result,) = verify(installed(to), lambda *now: None)
    assert (result.file, result.problem, result.checked) == (file, "", "crc32")
    file.write_bytes(damaged(npz("model_3_ptm"), len(npz("model_3_ptm")) // 2))
    (result,) = verify(installed(to), lambda *now: None)
    assert result.problem and list((to / "params").iterdir()) == [file]


def test_the_shared_folder_is_looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FOLDCLI_PARAMS", raising=False)
    assert default_folder() == tmp_path / "cache" / "params"
    monkeypatch.setenv("FOLDCLI_PARAMS", str(tmp_path))
    (tmp_path / FILE).touch()
    (source,) = find_parameters(None, (3,), "auto")
    assert source.file == tmp_path / FILE
    with pytest.raises(MissingError, match=f"foldcli params fetch --dest {tmp_path}"):
        find_parameters(None, (4,), "auto")


def test_which_files_are_wanted() -> None:
    assert networks_by_file("ptm", (1, 2)) == {
        "params_model_1_ptm.npz": "model_1_ptm",
        "params_model_2_ptm.npz": "model_2_ptm",
    }
    assert list(networks_by_file("monomer", (5,)).values()) == ["model_5"]
    assert list(networks_by_file("all", (5,)).values()) == ["model_5_ptm", "model_5"]


def test_the_room_that_files_take_is_known_before() -> None:
    # numbers that the published networks have
    assert parameter_bytes("model_1_ptm") == 4 * 93237338


ONE, TWO = "1" * 64, "ab" * 32


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{ONE}  other.tar\n{TWO.upper()} *params.tar\n", TWO),
        (f"{ONE}  some/where/params.tar\n", ONE),
        (f"{TWO}\n", TWO),
        (f"{TWO}  -\n", TWO),
        (f"{ONE}  other.tar\n{TWO}  another.tar\n", None),
        ("<html>\n", None),
        ("", None),
    ],
)
def test_checksums_of_a_mirror(text: str, found: str | None, tmp_path: Path, mirror: Mirror) -> None:
    listed = tmp_path / "SHA256SUMS"
    listed.write_text(text)
    mirror.content = text.encode()
    for source in (str(listed), mirror.url):
        if found is not None:
            assert expected_sha256(source, "https://example.org/a/params.tar?x=y") == found
        else:
            with pytest.raises(InputError, match=r"no SHA-256 of params\.tar"):
                expected_sha256(source, "https://example.org/a/params.tar")
    assert expected_sha256(TWO.upper(), "params.tar") == TWO
    with pytest.raises(InputError, match="neither 64 hexadecimal digits nor a file"):
        expected_sha256(TWO[1:], "params.tar")


def test_checksums_are_not_taken_from_anyone(mirror: Mirror) -> None:
    with pytest.raises(InputError, match="use https"):
        expected_sha256("http://example.org/SHA256SUMS", "params.tar")
    mirror.status = 404
    with pytest.raises(Unreachable, match="404"):
        expected_sha256(mirror.url, "params.tar")
