"""Test of killed and concurrent runs, with the script that kills everywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.slow
def test_killed_and_concurrent_runs_end_with_the_files_of_an_uninterrupted_one(root: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.interruptions", "--first", "48", "--every", "61"]
    command += ["--random", "1", "--trials", "1"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    *points, kills, two, four = result.stdout.splitlines()
    assert len(points) == 6, result.stdout
    for line in (*points, kills):
        assert line.endswith("0 misleading, 0 wrong afterwards")
    assert all(line.endswith("0 wrong") for line in (two, four))
