"""The Snakemake workflow: the same commands as the Slurm scripts, run with local cores."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/snakemake"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("snakemake") is None, reason="no snakemake in PATH")
@pytest.mark.parametrize("parts", [1, 2])
def test_workflow_runs_with_local_cores(tmp_path: Path, parts: int) -> None:
    foldcli = tmp_path / "bin/foldcli"
    foldcli.parent.mkdir()
    foldcli.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m foldcli "$@"\n')
    foldcli.chmod(0o755)
    # snakemake has an environment of its own
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {
        "PATH": f"{foldcli.parent}:{os.environ['PATH']}",
        "FOLDCLI_CACHE": str(tmp_path / "cache"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def run(*command: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            list(map(str, command)), env=environment, cwd=tmp_path, capture_output=True, text=True
        )

    # names that a shell would take apart, or run
    queries, database, out, work = (
        "my queries $(touch run).fasta",
        "D B;touch run",
        "o'ut $HOME",
        "wo rk $(touch run)",
    )
    shutil.copy(ROOT / "examples/gb1.fasta", tmp_path / queries)
    split = ["--split", parts] if parts > 1 else []
    made = run(foldcli, "createdb", ROOT / "examples/demo.fasta", *split, "-o", database)
    assert made.returncode == 0, made.stderr
    values = [f"parts={parts}", "shards=1", "params=template", "predict_options=--no-report --no-plots"]
    values += [f"queries={queries}", f"db={database}", f"out={out}", f"work={work}"]
    workflow = ["snakemake", "--snakefile", FOLDER / "Snakefile", "--cores", 2, "--config", *values]
    result = run(*workflow)
    assert result.returncode == 0, result.stdout + result.stderr
    (row,) = (tmp_path / out / "summary.tsv").read_text().splitlines()[1:]
    assert row.startswith("SPG1_STRSG_B1\t1\ttemplate_copy")
    assert not (tmp_path / "run").exists(), "a shell has run a part of a name"
    again = run(*workflow)
    assert again.returncode == 0 and "Nothing to be done" in again.stdout + again.stderr
