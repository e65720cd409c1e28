"""Fixtures for every folder of tests."""

import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# what a build needs of the checkout
SOURCES = (
    *("foldcli", "msa", "features", "model", "cuda", "docs", "examples", "containers", "recipes"),
    *("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"),
)


def pytest_configure() -> None:
    """Have interrupts reach the commands that tests start: what a shell runs behind its back ignores them."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Large real data that may lie beside the checkout; tests that want it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared beside the checkout")
    return folder


def _build(hook: str, source: Path, out: Path) -> Path:
    """Call the build backend in `source` as pip does, but without a network; the file it made in `out`."""
    code = f"import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"
    made = subprocess.run([sys.executable, "-c", code, out], cwd=source, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (file,) = out.iterdir()
    return file


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this checkout."""
    pytest.importorskip("setuptools")
    # setuptools writes build/ and *.egg-info beside the sources
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        (source / name).symlink_to(ROOT / name)
    return _build("build_sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution alone."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return _build("build_wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a shell in which the wheel is installed, in a virtual environment of its own.

    What foldcli depends on is this interpreter's: nothing is fetched.
    """
    venv = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return environment | {
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(venv),
        "FOLDCLI_CACHE": str(venv.parent / "cache"),
    }
