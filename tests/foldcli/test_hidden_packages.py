"""Files on the import path that hide foldcli's own packages are named in one line, with exit code 4."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldcli.version import VERSION


def foldcli(*arguments: str, folder: Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run `python -m foldcli` in a folder, with other folders on the import path after it."""
    command = [sys.executable, "-m", "foldcli", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("package", "file"),
    [
        ("model", "model.py"),
        ("model", "model/__init__.py"),
        ("features", "features.py"),
        ("msa", "msa/__init__.py"),
        ("cuda", "cuda/__init__.py"),
        ("cuda", "cuda.py"),
    ],
)
@pytest.mark.parametrize("through", ["working directory", "PYTHONPATH"])
def test_hiding_file_is_named_and_not_run(
    root: Path, tmp_path: Path, package: str, file: str, through: str
) -> None:
    other, empty = tmp_path / "other", tmp_path / "empty"
    hiding = other / file
    hiding.parent.mkdir(parents=True)
    empty.mkdir()
    hiding.write_text("raise SystemExit('this file was run')\n")
    if through == "working directory":
        result = foldcli("fold", "--help", folder=other, path=[root])
    else:
        result = foldcli("fold", "--help", folder=empty, path=[other, root])
    assert (result.returncode, result.stdout) == (4, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"foldcli: error: {hiding} hides foldcli's own package '{package}': ")
    assert "PYTHONPATH" in line


def test_folder_without_python_files_hides_nothing(root: Path, tmp_path: Path) -> None:
    for name in ("model", "msa", "features", "cuda"):
        (tmp_path / name).mkdir()
    result = foldcli("--version", folder=tmp_path, path=[root])
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{VERSION}\n", "")
