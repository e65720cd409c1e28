"""Downloads from a local server that drops connections, sends wrong data, changes its file or refuses."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from foldcli.params import download
from foldcli.params.download import Download, PartialFile, RemoteFile, Unreachable
from msa.base.errors import MissingError
from tests.foldcli.params.mirror import Mirror, start_proxy


class Fetcher:
    """Runs downloads from the server to one partial file, and collects their reports."""

    def __init__(self, mirror: Mirror, path: Path, log: pytest.LogCaptureFixture) -> None:
        self.mirror, self.part, self._log = mirror, PartialFile(path), log
        self.progress: list[tuple[int, int | None]] = []
        self.needed_space: list[int] = []

    def __call__(self, retries: int = 0, url: str = "") -> RemoteFile:
        progress: Callable[[int, int | None], None] = lambda *now: self.progress.append(now)  # noqa: E731
        url = url or self.mirror.url
        return Download(url, self.part, self.needed_space.append, progress, retries).run()

    @property
    def notices(self) -> list[str]:
        return self._log.messages

    def assert_whole(self) -> None:
        assert self.part.path.read_bytes() == self.mirror.content
        assert self.progress[-1] == (len(self.mirror.content), len(self.mirror.content))


@pytest.fixture
def fetch(mirror: Mirror, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Fetcher:
    return Fetcher(mirror, tmp_path / "a.part", caplog)


def test_whole_file_is_downloaded_once(fetch: Fetcher, mirror: Mirror) -> None:
    remote = fetch()
    fetch.assert_whole()
    assert (remote.length, remote.etag, remote.md5) == (200_000, '"one"', None)
    assert fetch.needed_space == [200_000] and not fetch.notices
    assert mirror.requests[0]["User-Agent"].startswith("foldcli/")
    # a complete file is not requested again
    assert fetch() == remote
    assert len(mirror.requests) == 1


def test_download_resumes_after_a_dropped_connection(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [50_000, 70_000, 1]
    fetch()
    fetch.assert_whole()
    ranges = [request.get("Range") for request in mirror.requests]
    assert ranges == [None, "bytes=50000-", "bytes=120000-", "bytes=120001-"]
    assert all(request["If-Range"] == '"one"' for request in mirror.requests[1:])
    assert fetch.needed_space == [200_000, 150_000, 80_000, 79_999]
    assert "the connection broke at 50,000 of 200,000 bytes; trying again" in fetch.notices[0]


def test_attempts_without_progress_are_limited(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [60_000, 0, 0, 0]
    with pytest.raises(Unreachable, match="60,000 bytes were downloaded"):
        fetch(retries=1)
    assert len(mirror.requests) == 3
    mirror.drops = []
    fetch()
    fetch.assert_whole()
    assert mirror.requests[-1]["Range"] == "bytes=60000-"


def test_a_server_that_stops_listening_is_retried(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops, mirror.stops_listening = [60_000], True
    with pytest.raises(Unreachable, match="connection refused; 60,000 bytes were downloaded"):
        fetch()


def test_download_restarts_if_the_server_has_no_ranges(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.ranges, mirror.drops = False, [60_000]
    fetch()
    fetch.assert_whole()
    assert "the server cannot resume downloads; starting from the beginning" in fetch.notices[-1]


def test_restarts_without_progress_are_limited(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.ranges, mirror.drops = False, [60_000, 60_000, 1]
    with pytest.raises(Unreachable, match="broke at 60,000"):
        fetch()
    assert len(mirror.requests) == 2


def test_weak_tag_is_not_resumed(fetch: Fetcher, mirror: Mirror) -> None:
    # a weak tag does not guarantee equal bytes
    mirror.etag, mirror.drops = 'W/"one"', [60_000]
    fetch()
    fetch.assert_whole()
    assert "Range" not in mirror.requests[-1]
    assert "did not identify the version" in fetch.notices[-1]


@pytest.mark.parametrize("ignores_if_range", [False, True])
@pytest.mark.parametrize("change", ["tag", "length", "tag and length"])
def test_changed_file_is_downloaded_from_the_beginning(
    fetch: Fetcher, mirror: Mirror, ignores_if_range: bool, change: str
) -> None:
    mirror.drops = [60_000, 0]
    with pytest.raises(Unreachable):
        fetch()
    mirror.content = mirror.content[::-1] if change == "tag" else b"x" * 150_000
    mirror.ignores_if_range = ignores_if_range
    if "tag" in change:
        mirror.etag = '"two"'
    remote = fetch()
    fetch.assert_whole()
    assert (remote.length, remote.etag) == (len(mirror.content), mirror.etag)
    assert any(
        "the file on the server has changed" in line or "that file at byte 60,000" in line
        for line in fetch.notices
    )


def test_partial_download_of_another_url_is_not_resumed(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [60_000, 0]
    with pytest.raises(Unreachable):
        fetch()
    fetch(url=f"{mirror.url}?other")
    fetch.assert_whole()
    assert "Range" not in mirror.requests[-1]


def test_unidentified_partial_download_is_not_resumed(fetch: Fetcher, mirror: Mirror) -> None:
    fetch.part.path.write_bytes(b"something")
    fetch()
    fetch.assert_whole()
    fetch.part.path.with_name("a.part.json").write_text(json.dumps({"url": mirror.url}))
    fetch()
    fetch.assert_whole()


def test_md5_is_read_from_the_header_of_google_cloud_storage(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.headers = {"x-goog-hash": "crc32c=n03x6A==, md5=CS9tHYTtyFntzj7B9nkkJQ=="}
    assert fetch().md5 == "CS9tHYTtyFntzj7B9nkkJQ=="


def test_nothing_is_written_without_disk_space(fetch: Fetcher, mirror: Mirror, tmp_path: Path) -> None:
    def refuse(needed: int) -> None:
        raise MissingError(f"no space for {needed}", "")

    with pytest.raises(MissingError, match="no space for 200000"):
        Download(mirror.url, fetch.part, refuse, print, lambda *_: None, 0).run()
    assert not list(tmp_path.glob("a.part*"))


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (503, 2)])
def test_only_transient_statuses_are_retried(
    fetch: Fetcher, mirror: Mirror, status: int, requests: int
) -> None:
    mirror.status = status
    with pytest.raises(Unreachable, match=f"the server says {status}"):
        fetch(retries=1)
    assert len(mirror.requests) == requests


def test_response_from_another_offset_is_discarded(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [60_000]
    mirror.shift = 5
    fetch()
    fetch.assert_whole()


def test_download_restarts_if_the_range_is_refused(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops, mirror.refuse_ranges = [60_000], True
    fetch()
    fetch.assert_whole()
    assert "cannot resume that file at byte 60,000" in fetch.notices[-1]


def test_endless_body_is_refused(fetch: Fetcher, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.states_length = False
    fetch()
    assert fetch.part.path.read_bytes() == mirror.content
    monkeypatch.setattr(download, "_MAX_UNSTATED_BYTES", 150_000)
    mirror.etag = '"two"'
    fetch.part.remove()
    with pytest.raises(Unreachable, match="more than 150,000 bytes, without stating the size"):
        fetch(retries=5)
    assert len(mirror.requests) == 2 and not fetch.part.path.exists()


@pytest.mark.parametrize("location", ["https://[::1", "https://host:99999/a"])
def test_redirect_to_no_address_is_refused(fetch: Fetcher, mirror: Mirror, location: str) -> None:
    mirror.status, mirror.headers = 302, {"Location": location}
    with pytest.raises(Unreachable, match="redirects to an address that is not valid"):
        fetch()


@pytest.mark.parametrize(
    "url", ["https://[::1", "https://", "https:///a", "https://h:0/", "https://h:x/", "https://h/a b\n"]
)
def test_invalid_address_is_an_error(url: str) -> None:
    download.check_address("https://[::1]:8000/params.tar?alt=media")
    with pytest.raises(ValueError):
        download.check_address(url)


def test_compressed_response_is_refused(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(Unreachable, match="sends gzip"):
        fetch()


def test_refused_connection_is_not_retried(fetch: Fetcher, mirror: Mirror) -> None:
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        with pytest.raises(Unreachable, match=r"connection refused\n.*https_proxy"):
            fetch(retries=5, url=f"https://localhost:{unused.getsockname()[1]}/a.tar")


def test_untrusted_certificate_is_refused(
    fetch: Fetcher, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(
        Unreachable, match=r"localhost is not trusted: self-signed certificate\n.*SSL_CERT_FILE"
    ):
        fetch(retries=5)
    assert not mirror.requests


def test_certificate_of_another_host_is_refused(fetch: Fetcher, mirror: Mirror) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1 is not trusted: IP address mismatch"):
        fetch(url=mirror.url.replace("localhost", "127.0.0.1"))


def test_redirect_from_https_to_http_is_refused(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.status, mirror.headers = 302, {"Location": "http://localhost:1/params.tar"}
    with pytest.raises(Unreachable, match="which is not encrypted"):
        fetch()


def test_proxy_is_used(fetch: Fetcher, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels: list[str] = []
    proxy = start_proxy(tunnels)
    monkeypatch.setenv("https_proxy", f"http://localhost:{proxy.server_port}")
    fetch()
    fetch.assert_whole()
    assert tunnels == [mirror.url.removeprefix("https://").removesuffix("/params.tar")]
    proxy.shutdown()
    proxy.server_close()
    # if the proxy does not answer, it is not bypassed
    with pytest.raises(Unreachable, match="connection refused"):
        fetch(url=f"{mirror.url}?other")
    monkeypatch.setenv("no_proxy", "localhost")
    fetch(url=f"{mirror.url}?other")
