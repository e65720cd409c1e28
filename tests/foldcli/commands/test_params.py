"""`foldcli params` as a user runs it, against a local server."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_process import run_foldcli
from tests.foldcli.conftest import Npz, npz
from tests.foldcli.params.conftest import damaged, keys, mirror, small_archive
from tests.foldcli.params.mirror import Mirror

# imported, since pytest finds fixtures by their names in this module
__all__ = ["keys", "mirror", "npz", "small_archive"]

FOLDCLI = [sys.executable, "-m", "foldcli", "params"]
FILE = "params_model_3_ptm.npz"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `foldcli params` to its end."""
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FOLDCLI_PARAMS", raising=False)

    def run(*arguments: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
        return run_foldcli(["params", *arguments], env=os.environ | more)

    return run


def error_of(result: "subprocess.CompletedProcess[str]", code: int) -> str:
    """Check the exit code of a failed run, and return its one error line."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("foldcli: error: "))
    return line


@pytest.mark.slow
def test_fetch_list_verify_and_path(
    params: Run, mirror: Mirror, small_archive: bytes, npz: Npz, tmp_path: Path
) -> None:
    mirror.content, folder = small_archive, tmp_path / "shared"
    sha256 = hashlib.sha256(small_archive).hexdigest()
    result = params("fetch", "--models", "3", "--dest", folder, "--url", mirror.url, "--sha256", sha256)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "CC BY 4.0" in result.stderr and "DeepMind" in result.stderr
    assert f"FOLDCLI_PARAMS={folder}" in result.stderr
    assert {path.name for path in folder.iterdir()} == {FILE, "LICENSE", "parameters.json"}
    manifest = json.loads((folder / "parameters.json").read_text())
    assert [archive["compared"] for archive in manifest["archives"].values()] == ["sha256 given"]

    shared = {"FOLDCLI_PARAMS": str(folder)}
    assert params("path", **shared).stdout == f"{folder}\n"
    content = npz("model_3_ptm")
    (row,) = json.loads(params("list", "--json", **shared).stdout)
    assert row == {
        "model": 3,
        "network": "model_3_ptm",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "file": str(folder / FILE),
    }
    assert f"{len(content):,}" in params("list", "--params", folder).stdout
    verified = params("verify", "--params", folder)
    assert verified.returncode == 0 and verified.stdout.split() == ["ok", "sha256", str(folder / FILE)]

    (folder / FILE).write_bytes(damaged(content, len(content) // 2))
    result = params("verify", "--json", **shared)
    line = error_of(result, 3)
    assert FILE in line and "its SHA-256 is" in line and "--overwrite" in line
    (row,) = json.loads(result.stdout)
    assert row["file"] == str(folder / FILE) and "SHA-256" in row["problem"]


@pytest.mark.slow
def test_interrupted_download_is_resumed(
    params: Run, mirror: Mirror, small_archive: bytes, npz: Npz, tmp_path: Path
) -> None:
    mirror.content, mirror.drops, mirror.hold_after = small_archive, [60_000], 30_000
    folder = tmp_path / "cache" / "params"
    arguments = ["fetch", "--models", "3", "--url", mirror.url]
    with subprocess.Popen([*FOLDCLI, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # the second response never ends
        for line in process.stderr:
            if "trying again" in line:
                process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == {".fetch/archive.tar.part", ".fetch/archive.tar.part.json"}
    size = (folder / ".fetch" / "archive.tar.part").stat().st_size
    assert size in range(60_000, 90_001)
    mirror.hold_after = None
    result = params(*arguments)
    assert result.returncode == 0, result.stderr
    assert mirror.requests[-1]["Range"] == f"bytes={size}-"
    assert (folder / FILE).read_bytes() == npz("model_3_ptm")


@pytest.mark.slow
def test_errors_are_one_line(params: Run, mirror: Mirror, tmp_path: Path) -> None:
    mirror.status = 404
    fetch = ["fetch", "--models", "3", "--url", mirror.url]
    assert "the server says 404 Not Found" in error_of(params(*fetch), 4)
    (tmp_path / "none.pem").touch()
    result = params(*fetch, SSL_CERT_FILE=str(tmp_path / "none.pem"))
    assert "the certificate of localhost is not trusted" in error_of(result, 4)
    # a file where the folder should be
    (tmp_path / "file").touch()
    assert "file" in error_of(params(*fetch, "--dest", tmp_path / "file" / "to"), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "http://example.org/a.tar"], "give --sha256, or use https"),
        (["--url", "https://[::1"], "is not a valid address"),
        (["--url", "ftp://example.org/a.tar"], "expected an https address"),
        (["--url", "/tmp/a.tar"], "use --from for a file"),
        (["--from", "/no/such.tar"], "does not exist"),
        (["--models", "6"], "expected numbers from 1 to 5"),
    ],
)
def test_wrong_arguments_are_usage_errors(params: Run, arguments: list[str], message: str) -> None:
    result = params("fetch", *arguments)
    assert result.returncode == 2 and message in " ".join(result.stderr.split())


def test_damaged_manifest_is_bad_input(params: Run, tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    (tmp_path / "parameters.json").write_text("[]")
    line = error_of(params("list", "--params", tmp_path), 3)
    assert "parameters.json: not a parameter manifest, or a damaged one" in line


def test_list_without_parameters_lists_what_can_be_fetched(params: Run, tmp_path: Path) -> None:
    result = params("list")
    assert (result.returncode, result.stderr) == (0, "")
    assert str(tmp_path / "cache" / "params") in result.stdout
    assert all(f"--which {which}" in result.stdout for which in ("ptm", "monomer", "multimer", "all"))


@pytest.mark.parametrize("command", ["verify", "path"])
def test_no_parameters_is_missing(params: Run, tmp_path: Path, command: str) -> None:
    result = params(command)
    error_of(result, 4)
    assert f"foldcli params fetch --dest {tmp_path / 'cache' / 'params'}" in result.stderr
