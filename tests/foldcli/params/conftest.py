"""Archives with networks of zeros, and a server on this machine that gives them."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foldcli.conftest import Npz
from tests.foldcli.params.mirror import Mirror, certificate, start


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def damaged(content: bytes, at: int) -> bytes:
    """With 64 bytes turned over."""
    return content[:at] + bytes(byte ^ 255 for byte in content[at : at + 64]) + content[at + 64 :]


@pytest.fixture(scope="session")
def small(npz: Npz) -> bytes:
    """An archive with one network that is wanted, one that is not, and the licence."""
    return tar_of(
        {
            "LICENSE": b"the licence's text\n",
            "params_model_1_multimer_v3.npz": b"of no use here",
            "params_model_3_ptm.npz": npz("model_3_ptm"),
        }
    )


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    return certificate(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def mirror(keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A server, trusted here, that gives whatever a test sets, with the faults it sets."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(keys[0]))
    served = Mirror(b"".join(number.to_bytes(4) for number in range(50_000)))
    server = start(served, keys)
    yield served
    served.released.set()
    server.shutdown()
    server.server_close()
