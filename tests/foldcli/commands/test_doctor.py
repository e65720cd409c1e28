"""`foldcli doctor` as a user runs it: on this machine, and with a package that hides NVIDIA's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldcli.version import VERSION

DOCTOR = [sys.executable, "-m", "foldcli", "doctor"]


def doctor(*arguments: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [*DOCTOR, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | more, capture_output=True, text=True)


def test_everything_but_parameters_is_ok_on_this_cpu(tmp_path: Path) -> None:
    result = doctor("--device", "cpu", "--json", "--params", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert (report["foldcli"], report["status"]) == (VERSION, "warning")
    checks = {check["name"]: check for check in report["checks"]}
    names = ["Python", "torch", "numpy", "numba", "numba-cuda", "machine", "parameters"]
    names += ["cuda namespace", "cache folder", "search on the CPU", "network on the CPU"]
    assert set(names) <= checks.keys()
    # only the parameters are missing
    assert {name for name, check in checks.items() if check["status"] != "ok"} == {"parameters"}
    assert f"foldcli params fetch --dest {tmp_path}" in checks["parameters"]["remedy"]
    assert "--params compact" in checks["parameters"]["remedy"]


@pytest.mark.slow
def test_package_that_hides_cuda_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").touch()
    path = os.environ.get("PYTHONPATH", "")
    result = subprocess.run(
        [sys.executable, "-c", "import sys; from foldcli.__main__ import main; sys.exit(main())", "doctor"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{path}", "PYTHONSAFEPATH": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 4, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    lines = result.stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("broken   cuda namespace: "))
    assert f"{tmp_path}/cuda/__init__.py hides" in line
    assert "PYTHONPATH" in lines[lines.index(line) + 1]
    # the other checks run too
    assert any(line.startswith("ok       torch: ") for line in lines)
    assert lines[-1].endswith(" broken")


def test_wrong_arguments_are_usage_errors() -> None:
    for arguments in (["--time-limit", "0"], ["--device", "gpu"], ["surplus"]):
        assert doctor(*arguments).returncode == 2
