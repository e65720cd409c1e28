"""Tests of `--dry-run` in subprocesses: it prints a plan and writes nothing."""

import re
import sys
from pathlib import Path

import pytest

from tests.command_process import foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
QUICK = ["--models", "3", "--num-recycle", "0", "--device", "cpu"]


@pytest.mark.slow
def test_plan_of_fold_before_and_after_the_run(
    root: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "q.fasta").write_text(">good\nMTYKLILNGKTL\n>pair\nMTYKLILN:\n")
    command = [
        "fold",
        tmp_path / "q.fasta",
        "--db",
        root / "examples/demo.fasta",
        *QUICK,
        "-o",
        tmp_path / "out",
    ]
    before = foldcli(*command, "--dry-run", env=fresh_environment)
    assert before.returncode == 5
    assert not (tmp_path / "out").exists() and not (tmp_path / "cache").exists()
    lines = before.stdout.splitlines()
    assert lines[0] == (
        "network: CPU, fp32, reference kernels; per target: 1 model, 1 seed, at most 1 pass each"
    )
    assert "would be built first" in lines[1]
    assert re.fullmatch(r"good +12 +\d\.\d GiB +\d\.\d s  to do", lines[4])
    assert lines[5].startswith("pair ") and "invalid: " in lines[5] and "has an empty chain" in lines[5]
    assert lines[7].startswith("1 to do, 1 invalid; ")

    assert foldcli(*command, env=fresh_environment).returncode == 5
    after = foldcli(*command, "--dry-run", env=fresh_environment)
    assert "127 sequences, 15,379 residues" in after.stdout
    assert after.stdout.splitlines()[4].split() == ["good", "12", "already", "done"]


def test_plan_of_predict(fresh_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "q.a3m").write_text(">query\nMKVLAAGIV\n>hit 1\nMKV-AAGiIV\n")
    result = foldcli(
        "predict", tmp_path / "q.a3m", *QUICK, "-o", tmp_path / "out", "--dry-run", env=fresh_environment
    )
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"q +9 +\d\.\d GiB +\d\.\d s  to do", result.stdout.splitlines()[3])
    assert "Rough estimates" in result.stdout
    assert not (tmp_path / "out").exists()
