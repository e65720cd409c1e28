"""Fixtures: archives with networks of zeros, and a local HTTPS server that serves them."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foldcli.conftest import Npz
from tests.foldcli.params.mirror import Mirror, certificate, start


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return an uncompressed tar of files given as name → content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def damaged(content: bytes, offset: int) -> bytes:
    """Return the content with 64 bytes inverted."""
    inverted = bytes(byte ^ 255 for byte in content[offset : offset + 64])
    return content[:offset] + inverted + content[offset + 64 :]


@pytest.fixture(scope="session")
def small_archive(npz: Npz) -> bytes:
    """Return an archive with the licence, a network, and one that is damaged."""
    return tar_of(
        {
            "LICENSE": b"the licence's text\n",
            "params_model_1_multimer_v3.npz": b"damaged",
            "params_model_3_ptm.npz": npz("model_3_ptm"),
        }
    )


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate for localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to create a certificate")
    return certificate(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def mirror(keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Start a trusted server; a test sets its content and its faults."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(keys[0]))
    mirror = Mirror(b"".join(number.to_bytes(4) for number in range(50_000)))
    server = start(mirror, keys)
    yield mirror
    mirror.released.set()
    server.shutdown()
    server.server_close()
