"""The Slurm script: valid shell code, correct shards, and refusal of arrays that would omit targets."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples/slurm/fold_array.sbatch"
PRINT_COMMAND = '#!/bin/sh\necho "$SRUN_CPUS_PER_TASK" "$FOLDCLI_CACHE" "$@"\n'


def submit(folder: Path, *, index: int, first: int, last: int, count: int, **extra: str):
    """Run the script as task `index` of an array, with an `srun` that prints its command."""
    srun = folder / "srun"
    srun.write_text(PRINT_COMMAND)
    srun.chmod(0o755)
    array = {
        "SLURM_ARRAY_TASK_ID": index,
        "SLURM_ARRAY_TASK_MIN": first,
        "SLURM_ARRAY_TASK_MAX": last,
        "SLURM_ARRAY_TASK_COUNT": count,
        "SLURM_CPUS_PER_TASK": 8,
        "SLURM_SUBMIT_DIR": folder,
    }
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"} | {k: str(v) for k, v in array.items()} | extra
    return subprocess.run(["bash", SCRIPT], env=environment, cwd=folder, capture_output=True, text=True)


def test_script_is_valid_bash():
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_task_folds_its_shard_with_a_shared_cache(tmp_path):
    result = submit(tmp_path, index=3, first=1, last=16, count=16)
    assert result.returncode == 0, result.stderr
    cores, cache, command = result.stdout.strip().split(" ", 2)
    assert cores == "8"
    assert cache == str(tmp_path / "foldcli_cache")
    assert Path(cache).is_dir()
    assert command == ("foldcli fold queries.fasta --db DB --params params -o out --shard 3/16 --threads 8")


@pytest.mark.parametrize(("first", "last", "count"), [(0, 15, 16), (2, 3, 2), (1, 9, 5)])
def test_array_that_is_not_1_to_n_is_refused(tmp_path, first, last, count):
    result = submit(tmp_path, index=last, first=first, last=last, count=count)
    assert result.returncode == 2
    assert "1-N" in result.stderr
    assert not result.stdout


def test_shards_variable_allows_rerunning_some_tasks(tmp_path):
    result = submit(tmp_path, index=7, first=3, last=7, count=2, SHARDS="16")
    assert result.returncode == 0, result.stderr
    assert "--shard 7/16 " in result.stdout


def test_error_outside_an_array_suggests_one(tmp_path):
    result = subprocess.run(
        ["bash", SCRIPT], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode != 0
    assert "job array" in result.stderr
