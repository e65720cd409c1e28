"""The Slurm scripts of separate stages: their jobs, dependencies and commands, which are then run.

A stand-in for `sbatch` runs the script of each task at once, with the variables that Slurm sets, and one for
`srun` records the command. So the test shows that the commands fit together, and nothing about a scheduler.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.command_process import command_environment, run_foldcli

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/slurm"
SBATCH = """#!/bin/bash
set -e
id=$(($(cat last 2>/dev/null || echo 100) + 1))
echo $id >last
while [[ $1 == --* ]]; do
    echo "$1" >>"job.$id"
    [[ $1 != --partition=none ]]
    if [[ $1 == --array=1-* ]]; then
        tasks=${1#--array=1-}
        export SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=$tasks SLURM_ARRAY_TASK_COUNT=$tasks
    fi
    shift
done
export SLURM_CPUS_PER_TASK=2 SLURM_SUBMIT_DIR=$PWD
for task in $(seq "${SLURM_ARRAY_TASK_COUNT:-1}"); do
    if [[ -n ${SLURM_ARRAY_TASK_COUNT:-} ]]; then export SLURM_ARRAY_TASK_ID=$task; fi
    bash "$@"
done
echo "$id;cluster"
"""
SRUN = """#!/bin/bash
[[ ${SRUN_CPUS_PER_TASK:-1} == "${SLURM_CPUS_PER_TASK:-1}" ]] || exit 1
printf '%q ' "$@" >>commands
echo >>commands
"""


def run_script(folder: Path, *script: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a script with the stand-ins for Slurm."""
    folder.joinpath("bin").mkdir(exist_ok=True)
    for name, text in (("sbatch", SBATCH), ("srun", SRUN)):
        path = folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"} | variables
    arguments = ["bash", *map(str, script)]
    return subprocess.run(arguments, env=environment, cwd=folder, capture_output=True, text=True)


def submit(folder: Path, **variables: str) -> tuple[list[list[str]], list[list[str]]]:
    """Submit all stages; return the options of each job, and the commands of all tasks."""
    result = run_script(folder, FOLDER / "submit_stages.sh", **variables)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("submitted: ")
    jobs = [path.read_text().splitlines() for path in sorted(folder.glob("job.*"))]
    return jobs, [shlex.split(line) for line in (folder / "commands").read_text().splitlines()]


def option(job: list[str], name: str) -> str | None:
    return next((each.partition("=")[2] for each in job if each.startswith(f"--{name}=")), None)


def test_scripts_are_valid_bash() -> None:
    for script in ("stage.sbatch", "submit_stages.sh"):
        subprocess.run(["bash", "-n", FOLDER / script], check=True)


def test_stages_wait_for_each_other(tmp_path: Path) -> None:
    jobs, commands = submit(tmp_path, SHARDS="3", SEARCH_OPTIONS="--partition=gpu --gpus=1")
    assert [option(job, "job-name") for job in jobs] == ["search", "features", "predict", "report"]
    assert [option(job, "dependency") for job in jobs] == [
        None,
        "afterany:101",
        "afterany:102",
        "afterany:103",
    ]
    assert [option(job, "array") for job in jobs] == ["1-3", "1-3", "1-3", None]
    assert [option(job, "gpus") for job in jobs] == ["1", None, "1", None]
    assert len(commands) == 10
    shards = [command[command.index("--shard") + 1] for command in commands if "--shard" in command]
    assert shards == 3 * ["1/3", "2/3", "3/3"]


def test_parts_are_merged_only_if_all_are_searched(tmp_path: Path) -> None:
    jobs, commands = submit(tmp_path, PARTS="2", SHARDS="1")
    names = ["search-part", "merge-hits", "features", "predict", "report"]
    assert [option(job, "job-name") for job in jobs] == names
    assert [option(job, "dependency") for job in jobs[:3]] == [None, "afterok:101", "afterany:102"]
    assert commands[2][:4] == ["foldcli", "merge-hits", "work/hits.1", "work/hits.2"]


def test_refused_job_ends_the_submission(tmp_path: Path) -> None:
    result = run_script(tmp_path, FOLDER / "submit_stages.sh", SEARCH_OPTIONS="--partition=none")
    assert result.returncode != 0 and "submitted" not in result.stdout
    assert len(list(tmp_path.glob("job.*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [([], "usage"), (["fold"], "unknown stage fold"), (["merge-hits"], "number of parts")],
)
def test_wrong_stages_are_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    result = run_script(tmp_path, FOLDER / "stage.sbatch", *arguments)
    assert result.returncode != 0 and reason in result.stderr
    assert not (tmp_path / "commands").exists()


def test_incomplete_array_is_refused(tmp_path: Path) -> None:
    array = {"ID": "3", "MIN": "3", "MAX": "4", "COUNT": "2"}
    variables = {f"SLURM_ARRAY_TASK_{name}": value for name, value in array.items()}
    result = run_script(tmp_path, FOLDER / "stage.sbatch", "search", **variables)
    assert result.returncode == 2 and "1-N" in result.stderr
    result = run_script(tmp_path, FOLDER / "stage.sbatch", "search", SHARDS="16", **variables)
    assert result.returncode == 0 and "3/16" in (tmp_path / "commands").read_text()


@pytest.mark.slow
def test_commands_of_all_stages_fit_together(tmp_path: Path) -> None:
    queries = "".join((ROOT / "examples" / f"{name}.fasta").read_text() for name in ("ubiquitin", "gb1"))
    (tmp_path / "queries.fasta").write_text(queries)
    settings = {
        "PARTS": "2",
        "SHARDS": "2",
        "PARAMS": "template",
        "PREDICT_ARGUMENTS": "--no-report --no-plots",
    }
    _, commands = submit(tmp_path, **settings)
    environment = command_environment(tmp_path / "foldcli_cache")
    first = ["foldcli", "createdb", str(ROOT / "examples/demo.fasta"), "--split", "2", "-o", "DB"]
    for command in [first, *commands]:
        result = run_foldcli(command[1:], env=environment, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    rows = (tmp_path / "out/summary.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows[1:]] == ["SPG1_STRSG_B1", "UBIQ_HUMAN"]
