"""Fetching from a server or a local archive: verification, records, and files left behind."""

import fcntl
import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.params import download
from foldcli.params import fetch as fetch_module
from foldcli.params.archive import expected_sha256
from foldcli.params.download import Unreachable
from foldcli.params.fetch import FetchSettings, fetch
from foldcli.params.parameters import (
    SUFFIXES_BY_WHICH,
    archive_url,
    default_folder,
    find_parameters,
    installed_parameters,
    networks_by_file,
)
from foldcli.params.verify import parameter_bytes, verify
from foldcli.progress import Progress
from msa.base.errors import InputError, MissingError
from tests.foldcli.conftest import Npz
from tests.foldcli.params.conftest import damaged, tar_of
from tests.foldcli.params.mirror import Mirror

FILE = "params_model_3_ptm.npz"


class Fetcher:
    """Fetches model 3 from the server into a folder, and collects the reports."""

    def __init__(
        self,
        mirror: Mirror,
        folder: Path,
        log: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.settings = FetchSettings(folder, "ptm", (3,), mirror.url, None, None, 0, False)
        self._log = log
        for module in (fetch_module, download):
            monkeypatch.setattr(module, "progress_bar", self._progress_bar)
        self.bars: dict[str, tuple[int, int | None]] = {}

    def __call__(self, **changed: object) -> list[Path]:
        return fetch(replace(self.settings, **changed))  # type: ignore[arg-type]

    @property
    def notices(self) -> list[str]:
        return self._log.messages

    @contextmanager
    def _progress_bar(self, title: str, unit: str) -> Iterator[Progress]:
        def progress(done: int, total: int | None) -> None:
            self.bars[title] = done, total

        yield progress


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the destination."""
    return tmp_path / "params"


@pytest.fixture
def fetcher(
    mirror: Mirror,
    small_archive: bytes,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Fetcher:
    mirror.content = small_archive
    return Fetcher(mirror, folder, caplog, monkeypatch)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_fetched_files_are_recorded(
    fetcher: Fetcher, mirror: Mirror, small_archive: bytes, npz: Npz, folder: Path
) -> None:
    assert fetcher() == [folder / FILE]
    content = npz("model_3_ptm")
    assert (folder / FILE).read_bytes() == content
    assert names(folder) == {FILE, "LICENSE", "parameters.json"}
    assert not (folder / ".fetch").exists()
    assert (folder / "LICENSE").read_text() == "the licence's text\n"
    assert fetcher.bars.keys() == {"downloading", "checking", "unpacking"}
    assert fetcher.bars["downloading"] == (len(small_archive), len(small_archive))

    manifest = json.loads((folder / "parameters.json").read_text())
    archive, sha256 = hashlib.sha256(small_archive).hexdigest(), hashlib.sha256(content).hexdigest()
    assert manifest["licence"] == "CC BY 4.0"
    assert manifest["files"] == {FILE: {"bytes": len(content), "sha256": sha256, "archive": archive}}
    record = manifest["archives"][archive]
    assert (record["source"], record["bytes"], record["compared"]) == (mirror.url, len(small_archive), "")

    # valid files are not fetched again, and the server is not contacted
    assert fetcher() == []
    assert len(mirror.requests) == 1


@pytest.mark.parametrize("known", ["sha256", "md5", "crc32"])
def test_wrong_bytes_are_detected_and_leave_nothing(
    fetcher: Fetcher, mirror: Mirror, small_archive: bytes, npz: Npz, folder: Path, known: str
) -> None:
    mirror.content = damaged(
        small_archive, small_archive.index(npz("model_3_ptm")) + len(npz("model_3_ptm")) // 2
    )
    message = {"sha256": "its SHA-256 is", "md5": "its MD5 is not", "crc32": f"archive, {FILE}: "}[known]
    sha256 = hashlib.sha256(small_archive).hexdigest() if known == "sha256" else None
    if known == "md5":
        mirror.headers = {"x-goog-hash": f"md5={b64encode(hashlib.md5(small_archive).digest()).decode()}"}
    with pytest.raises(InputError, match=f"{message}.*nothing was unpacked, and the download was removed"):
        fetcher(sha256=sha256)
    assert names(folder) == set()


def test_compared_checksum_is_recorded(
    fetcher: Fetcher, mirror: Mirror, small_archive: bytes, folder: Path
) -> None:
    mirror.headers = {"x-goog-hash": f"md5={b64encode(hashlib.md5(small_archive).digest()).decode()}"}
    fetcher()
    (record,) = json.loads((folder / "parameters.json").read_text())["archives"].values()
    assert record["compared"] == "md5 of the server"


def test_resumed_download_gives_whole_files(fetcher: Fetcher, mirror: Mirror, npz: Npz, folder: Path) -> None:
    mirror.drops = [60_000, 0]
    with pytest.raises(Unreachable, match="60,000 bytes were downloaded"):
        fetcher()
    assert names(folder) == {".fetch/archive.tar.part", ".fetch/archive.tar.part.json"}
    fetcher()
    assert mirror.requests[-1]["Range"] == "bytes=60000-"
    assert (folder / FILE).read_bytes() == npz("model_3_ptm")
    assert names(folder) == {FILE, "LICENSE", "parameters.json"}


def test_web_page_is_not_mistaken_for_an_archive(fetcher: Fetcher, mirror: Mirror, folder: Path) -> None:
    mirror.content = b"<!doctype html><title>Log in</title>" * 50
    with pytest.raises(InputError, match="not a tar archive"):
        fetcher()
    assert names(folder) == set()


def test_archive_larger_than_the_disk_is_refused(fetcher: Fetcher, mirror: Mirror, folder: Path) -> None:
    mirror.length = 10**18
    with pytest.raises(MissingError, match=r"need about 93132257\d\.\d\d GB of disk space"):
        fetcher()
    assert names(folder) == set()


def test_only_one_process_fetches_into_a_folder(fetcher: Fetcher, mirror: Mirror, folder: Path) -> None:
    lock = folder / ".fetch" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(MissingError, match="another process is fetching"):
            fetcher()
        assert lock.exists() and not mirror.requests
    # a folder that a killed process has left
    (lock.parent / "unpacked-x").mkdir()
    fetcher()
    assert names(folder) == {FILE, "LICENSE", "parameters.json"}


def test_local_archive_is_read_and_kept(fetcher: Fetcher, npz: Npz, folder: Path, tmp_path: Path) -> None:
    # an archive with its files in a folder, as on some mirrors, and without a licence
    archive = tmp_path / "local.tar"
    files = {f"params_{name}.npz": npz(name) for name in ("model_3", "model_3_ptm")}
    archive.write_bytes(tar_of({f"./params/{name}": content for name, content in files.items()}))
    folder.mkdir()
    (folder / "params_model_3.npz").write_bytes(b"")
    fetcher(local_archive=archive, which="monomer")
    first = {"params_model_3.npz", "LICENSE", "parameters.json"}
    assert names(folder) == first
    assert "params_model_3.npz cannot be used" in fetcher.notices[-1]
    assert archive.exists() and "CC BY 4.0" in (folder / "LICENSE").read_text()

    # usable files stay unchanged, in the manifest too
    stamp = (folder / "params_model_3.npz").stat().st_mtime_ns
    fetcher(local_archive=archive, which="ptm")
    assert names(folder) == first | {"params_model_3_ptm.npz"}
    assert (folder / "params_model_3.npz").stat().st_mtime_ns == stamp
    assert json.loads((folder / "parameters.json").read_text())["files"].keys() == files.keys()
    assert [source.config_name for source in installed_parameters(folder)] == ["model_3_ptm", "model_3"]

    with pytest.raises(InputError, match=r"local\.tar: the archive has no params_model_5_ptm\.npz"):
        fetcher(local_archive=archive, numbers=(5,))
    assert archive.exists()


def test_parameters_of_another_network_are_refused(
    fetcher: Fetcher, npz: Npz, folder: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of({FILE: npz("model_3")}))
    with pytest.raises(InputError, match=f"{FILE}: does not contain the parameters of model_3_ptm: missing:"):
        fetcher(local_archive=archive)
    assert names(folder) == set()


def test_changes_on_the_disk_are_detected(fetcher: Fetcher, npz: Npz, folder: Path) -> None:
    fetcher()
    whole, progress = (folder / FILE).read_bytes(), []
    (result,) = verify(installed_parameters(folder), lambda *now: progress.append(now))
    assert (result.problem, result.checksum_kind) == ("", "sha256")
    assert progress[-1] == (len(whole), len(whole))
    # the arrays are unchanged: only size and checksum differ
    (folder / FILE).write_bytes(whole + b"\0")
    (result,) = verify(installed_parameters(folder), lambda *now: None)
    assert "bytes instead of the" in result.problem
    (folder / FILE).write_bytes(damaged(whole, len(whole) // 2))
    (result,) = verify(installed_parameters(folder), lambda *now: None)
    assert "its SHA-256 is" in result.problem


def test_files_without_a_manifest_are_checked_by_crc32(npz: Npz, folder: Path) -> None:
    # the layout of AlphaFold's data: DATA/params/*.npz
    (folder / "params").mkdir(parents=True)
    file = folder / "params" / FILE
    file.write_bytes(npz("model_3_ptm"))
    (result,) = verify(installed_parameters(folder), lambda *now: None)
    assert (result.file, result.problem, result.checksum_kind) == (file, "", "crc32")
    file.write_bytes(damaged(npz("model_3_ptm"), len(npz("model_3_ptm")) // 2))
    (result,) = verify(installed_parameters(folder), lambda *now: None)
    assert result.problem and list((folder / "params").iterdir()) == [file]


def test_default_folder_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FOLDCLI_PARAMS", raising=False)
    assert default_folder() == tmp_path / "cache" / "params"
    monkeypatch.setenv("FOLDCLI_PARAMS", str(tmp_path))
    (tmp_path / FILE).touch()
    (source,) = find_parameters(None, (3,), "auto")
    assert find_parameters("alphafold2", (3,), "auto") == [source]
    assert source.file == tmp_path / FILE
    with pytest.raises(MissingError, match=f"foldcli params fetch --dest {tmp_path}"):
        find_parameters(None, (4,), "auto")


def test_files_of_each_kind_of_network() -> None:
    assert networks_by_file("ptm", (1, 2)) == {
        "params_model_1_ptm.npz": "model_1_ptm",
        "params_model_2_ptm.npz": "model_2_ptm",
    }
    assert list(networks_by_file("monomer", (5,)).values()) == ["model_5"]
    assert list(networks_by_file("multimer", (1,))) == ["params_model_1_multimer_v3.npz"]
    assert list(networks_by_file("all", (5,)).values()) == ["model_5_ptm", "model_5", "model_5_multimer_v3"]
    assert list(networks_by_file("multimer_v1", (2,))) == ["params_model_2_multimer.npz"]


def test_older_multimer_networks_have_separate_archives(tmp_path: Path) -> None:
    assert {which: archive_url(which)[-14:-4] for which in SUFFIXES_BY_WHICH} == {
        "ptm": "2022-12-06",
        "monomer": "2022-12-06",
        "multimer": "2022-12-06",
        "multimer_v2": "2022-03-02",
        "multimer_v1": "2022-01-19",
        "all": "2022-12-06",
    }
    for name in ("model_3_multimer", "model_3_multimer_v2"):
        (tmp_path / f"params_{name}.npz").touch()
    for version in (1, 2):
        (source,) = find_parameters(str(tmp_path), (3,), f"alphafold2_multimer_v{version}", ["multimer"])  # type: ignore[arg-type]
        assert source.label == f"alphafold2_multimer_v{version}_model_3"
        assert source.which == f"multimer_v{version}" and source.is_multimer
    with pytest.raises(MissingError, match="multimer_v3") as missing:
        find_parameters(str(tmp_path), (3,), "auto", ["multimer"])
    assert "--which multimer --dest" in str(missing.value.remedy)


def test_networks_for_complexes_are_listed_last_and_not_used_for_monomers(tmp_path: Path) -> None:
    for name in ("model_2_multimer_v3", "model_2"):
        (tmp_path / f"params_{name}.npz").touch()
    sources = installed_parameters(tmp_path)
    assert [source.config_name for source in sources] == ["model_2", "model_2_multimer_v3"]
    assert [source.label for source in sources] == ["alphafold2_model_2", "alphafold2_multimer_v3_model_2"]
    assert [source.is_multimer for source in sources] == [False, True]
    assert find_parameters(str(tmp_path), (2,), "auto") == sources[:1]


def test_size_of_published_parameters() -> None:
    # number of parameters in the published network
    assert parameter_bytes("model_1_ptm") == 4 * 93237338


ONE, TWO = "1" * 64, "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_checksum_is_found_in_output_of_sha256sum(
    text: str, expected: str | None, tmp_path: Path, mirror: Mirror
) -> None:
    checksums = tmp_path / "SHA256SUMS"
    checksums.write_text(text)
    mirror.content = text.encode()
    for source in (str(checksums), mirror.url):
        if expected is not None:
            assert expected_sha256(source, "https://example.org/a/params.tar?x=y") == expected
        else:
            with pytest.raises(InputError, match=r"no SHA-256 of params\.tar"):
                expected_sha256(source, "https://example.org/a/params.tar")
    assert expected_sha256(TWO.upper(), "params.tar") == TWO
    with pytest.raises(InputError, match="neither 64 hexadecimal digits nor an existing file"):
        expected_sha256(TWO[1:], "params.tar")


def test_checksums_over_http_are_refused(mirror: Mirror) -> None:
    with pytest.raises(InputError, match="use https"):
        expected_sha256("http://example.org/SHA256SUMS", "params.tar")
    mirror.status = 404
    with pytest.raises(Unreachable, match="404"):
        expected_sha256(mirror.url, "params.tar")
