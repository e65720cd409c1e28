"""The Slurm script: it parses, and refuses an array that would leave targets out."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples/slurm/fold_array.sbatch"
PRINT_COMMAND = '#!/bin/sh\necho "$FOLDCLI_CACHE" "$@"\n'


def submit(folder: Path, *, index: int, first: int, last: int, count: int, **extra: str):
    """Run the script as task `index` of an array, with an `srun` that prints what it is to start."""
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


def test_bash_parses_it():
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_a_task_folds_its_shard_with_the_common_cache(tmp_path):
    done = submit(tmp_path, index=3, first=1, last=16, count=16)
    assert done.returncode == 0, done.stderr
    cache, command = done.stdout.strip().split(" ", 1)
    assert cache == str(tmp_path / "foldcli_cache")
    assert Path(cache).is_dir()
    assert command == ("foldcli fold queries.fasta --db DB --params params -o out --shard 3/16 --threads 8")


@pytest.mark.parametrize(("first", "last", "count"), [(0, 15, 16), (2, 3, 2), (1, 9, 5)])
def test_an_array_that_is_not_1_to_n_is_refused(tmp_path, first, last, count):
    done = submit(tmp_path, index=last, first=first, last=last, count=count)
    assert done.returncode == 2
    assert "1-N" in done.stderr
    assert not done.stdout


def test_shards_names_the_whole_when_a_part_is_run_again(tmp_path):
    done = submit(tmp_path, index=7, first=3, last=7, count=2, SHARDS="16")
    assert done.returncode == 0, done.stderr
    assert "--shard 7/16 " in done.stdout


def test_outside_an_array_it_says_what_to_do(tmp_path):
    done = subprocess.run(
        ["bash", SCRIPT], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "job array" in done.stderr
