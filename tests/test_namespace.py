"""`cuda` is shared with NVIDIA's wheels: both sides must import from a checkout, a wheel and under pytest."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

IMPORTS = "import numba.cuda, cuda.bindings, cuda.alignment, cuda.fused; print(cuda.alignment.__file__)"


def test_under_pytest() -> None:
    import cuda.bindings
    import numba.cuda

    import cuda.alignment

    assert cuda.alignment.__file__ and cuda.bindings.__file__ and numba.cuda.__file__


def test_from_the_repository_root(root: Path) -> None:
    result = subprocess.run([sys.executable, "-c", IMPORTS], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(root)


def test_from_a_wheel_installed_elsewhere(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    # setuptools writes build/ and *.egg-info beside the sources, so build from a copy
    source = tmp_path / "source"
    source.mkdir()
    for name in ("foldcli", "msa", "features", "model", "cuda", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(root / name)
    build = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "-q",
            "-w",
            tmp_path,
            source,
        ],
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    (wheel,) = tmp_path.glob("foldcli-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    assert "cuda/__init__.py" not in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]
    result = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(site)
