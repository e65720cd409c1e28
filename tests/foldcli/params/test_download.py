"""Downloads from a server on this machine that breaks off, lies, changes and says no."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from foldcli.params.connection import Unreachable
from foldcli.params.download import Download
from foldcli.params.part import Part, Version
from msa.errors import MissingError
from tests.foldcli.params.mirror import Mirror, start_proxy


class Fetcher:
    """Downloads from the server to one part file, and what was said of it."""

    def __init__(self, mirror: Mirror, path: Path) -> None:
        self.mirror, self.part = mirror, Part(path)
        self.notices: list[str] = []
        self.progress: list[tuple[int, int | None]] = []
        self.rooms: list[int] = []

    def __call__(self, retries: int = 0, url: str = "") -> Version:
        progress: Callable[[int, int | None], None] = lambda *told: self.progress.append(told)  # noqa: E731
        address = url or self.mirror.url
        return Download(address, self.part, self.rooms.append, self.notices.append, progress, retries).run()

    def assert_whole(self) -> None:
        assert self.part.path.read_bytes() == self.mirror.content
        assert self.progress[-1] == (len(self.mirror.content), len(self.mirror.content))


@pytest.fixture
def fetch(mirror: Mirror, tmp_path: Path) -> Fetcher:
    return Fetcher(mirror, tmp_path / "a.part")


def test_a_whole_file(fetch: Fetcher, mirror: Mirror) -> None:
    version = fetch()
    fetch.assert_whole()
    assert (version.length, version.etag, version.md5) == (200_000, '"one"', None)
    assert fetch.rooms == [200_000] and not fetch.notices
    assert mirror.requests[0]["User-Agent"].startswith("foldcli/")
    # what is there is not asked for again
    assert fetch() == version
    assert len(mirror.requests) == 1


def test_a_broken_connection_is_gone_on_with(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [50_000, 70_000, 1]
    fetch()
    fetch.assert_whole()
    asked = [request.get("Range") for request in mirror.requests]
    assert asked == [None, "bytes=50000-", "bytes=120000-", "bytes=120001-"]
    assert all(request["If-Range"] == '"one"' for request in mirror.requests[1:])
    assert fetch.rooms == [200_000, 150_000, 80_000, 79_999]
    assert "the connection broke at 50,000 of 200,000 bytes; trying again" in fetch.notices[0]


def test_tries_that_get_no_further_are_counted(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [60_000, 0, 0, 0]
    with pytest.raises(Unreachable, match="60,000 bytes are there"):
        fetch(retries=1)
    assert len(mirror.requests) == 3
    mirror.drops = []
    fetch()
    fetch.assert_whole()
    assert mirror.requests[-1]["Range"] == "bytes=60000-"


def test_a_server_that_goes_away_is_tried_again(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops, mirror.leaves = [60_000], True
    with pytest.raises(Unreachable, match="connection refused; 60,000 bytes are there"):
        fetch()


def test_without_ranges_it_starts_anew(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.ranges, mirror.drops = False, [60_000]
    fetch()
    fetch.assert_whole()
    assert "the server cannot go on in the middle; starting from the beginning" in fetch.notices[-1]


def test_without_ranges_it_ends(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.ranges, mirror.drops = False, [60_000, 60_000, 1]
    with pytest.raises(Unreachable, match="broke at 60,000"):
        fetch()
    assert len(mirror.requests) == 2


def test_without_a_version_it_starts_anew(fetch: Fetcher, mirror: Mirror) -> None:
    """A weak tag does not promise equal bytes."""
    mirror.etag, mirror.drops = 'W/"one"', [60_000]
    fetch()
    fetch.assert_whole()
    assert "Range" not in mirror.requests[-1]
    assert "did not say of which version" in fetch.notices[-1]


@pytest.mark.parametrize("careless", [False, True])
@pytest.mark.parametrize("change", ["tag", "length", "tag and length"])
def test_a_file_that_changed_is_not_glued(
    fetch: Fetcher, mirror: Mirror, careless: bool, change: str
) -> None:
    mirror.drops = [60_000, 0]
    with pytest.raises(Unreachable):
        fetch()
    mirror.content = mirror.content[::-1] if change == "tag" else b"x" * 150_000
    mirror.careless = careless
    if "tag" in change:
        mirror.etag = '"two"'
    version = fetch()
    fetch.assert_whole()
    assert (version.length, version.etag) == (len(mirror.content), mirror.etag)
    assert any(
        "has another file now" in line or "at byte 60,000 of that file" in line for line in fetch.notices
    )


def test_a_part_of_another_address_is_not_gone_on_with(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [60_000, 0]
    with pytest.raises(Unreachable):
        fetch()
    fetch(url=f"{mirror.url}?other")
    fetch.assert_whole()
    assert "Range" not in mirror.requests[-1]


def test_a_part_of_nobody_knows_what_is_not_gone_on_with(fetch: Fetcher, mirror: Mirror) -> None:
    fetch.part.path.write_bytes(b"something")
    fetch()
    fetch.assert_whole()
    fetch.part.path.with_name("a.part.json").write_text(json.dumps({"url": mirror.url}))
    fetch()
    fetch.assert_whole()


def test_what_google_states_of_a_file(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.headers = {"x-goog-hash": "crc32c=n03x6A==, md5=CS9tHYTtyFntzj7B9nkkJQ=="}
    assert fetch().md5 == "CS9tHYTtyFntzj7B9nkkJQ=="


def test_no_room(fetch: Fetcher, mirror: Mirror, tmp_path: Path) -> None:
    def refuse(coming: int) -> None:
        raise MissingError(f"no room for {coming}", "")

    with pytest.raises(MissingError, match="no room for 200000"):
        Download(mirror.url, fetch.part, refuse, print, lambda *_: None, 0).run()
    assert not list(tmp_path.glob("a.part*"))


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (503, 2)])
def test_a_server_that_says_no(fetch: Fetcher, mirror: Mirror, status: int, requests: int) -> None:
    mirror.status = status
    with pytest.raises(Unreachable, match=f"the server says {status}"):
        fetch(retries=1)
    assert len(mirror.requests) == requests


def test_an_answer_to_the_wrong_part(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops = [60_000]
    mirror.shift = 5
    fetch()
    fetch.assert_whole()


def test_a_range_that_cannot_be(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.drops, mirror.refuse_ranges = [60_000], True
    fetch()
    fetch.assert_whole()
    assert "cannot go on at byte 60,000" in fetch.notices[-1]


def test_compressed_on_the_way(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(Unreachable, match="sends gzip"):
        fetch()


def test_nobody_listens(fetch: Fetcher, mirror: Mirror) -> None:
    with socket.socket() as own:
        own.bind(("localhost", 0))
        with pytest.raises(Unreachable, match=r"connection refused\n.*https_proxy"):
            fetch(retries=5, url=f"https://localhost:{own.getsockname()[1]}/a.tar")


def test_a_certificate_that_nobody_vouches_for(
    fetch: Fetcher, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(
        Unreachable, match=r"localhost is not trusted: self-signed certificate\n.*SSL_CERT_FILE"
    ):
        fetch(retries=5)
    assert not mirror.requests


def test_a_certificate_of_another_host(fetch: Fetcher, mirror: Mirror) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1 is not trusted: IP address mismatch"):
        fetch(url=mirror.url.replace("localhost", "127.0.0.1"))


def test_no_way_from_https_to_http(fetch: Fetcher, mirror: Mirror) -> None:
    mirror.status, mirror.headers = 302, {"Location": "http://localhost:1/params.tar"}
    with pytest.raises(Unreachable, match="which is not encrypted"):
        fetch()


def test_a_proxy_is_used(fetch: Fetcher, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels: list[str] = []
    proxy = start_proxy(tunnels)
    monkeypatch.setenv("https_proxy", f"http://localhost:{proxy.server_port}")
    fetch()
    fetch.assert_whole()
    assert tunnels == [mirror.url.removeprefix("https://").removesuffix("/params.tar")]
    proxy.shutdown()
    proxy.server_close()
    # it is gone, and nothing goes past it
    with pytest.raises(Unreachable, match="connection refused"):
        fetch(url=f"{mirror.url}?other")
    monkeypatch.setenv("no_proxy", "localhost")
    fetch(url=f"{mirror.url}?other")
