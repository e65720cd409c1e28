"""Messages on stderr: progress bars on a terminal, fewer lines with -q, only JSON with --log-json."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

FOLDCLI = [sys.executable, "-m", "foldcli"]
QUICK = ["--models", "3", "--num-recycle", "0"]


def run_on_terminal(*arguments: str | Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a command whose stderr is a terminal of 100 columns; return exit code and stderr."""
    our_end, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [*FOLDCLI, *map(str, arguments)]
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    stderr = b""
    while True:
        try:
            block = os.read(our_end, 65536)
        except OSError:  # how Linux reports that the other end is closed
            break
        if not block:
            break
        stderr += block
    os.close(our_end)
    return process.wait(), stderr.decode()


@pytest.fixture
def command(root: Path, tmp_path: Path) -> list[str | Path]:
    (tmp_path / "q.fasta").write_text(">a\nMTYKLILNGKTL\n>b\nM\n")
    return [
        "fold",
        tmp_path / "q.fasta",
        "--db",
        root / "examples/demo.fasta",
        *QUICK,
        "-o",
        tmp_path / "out",
    ]


@pytest.mark.slow
def test_terminal_shows_progress_bars_and_a_summary(
    command: list[str | Path], environment: dict[str, str]
) -> None:
    code, stderr = run_on_terminal(*command, env=environment)
    assert code == 5
    assert re.search(r"  0% \| +\| 0/2 passes, \? left, starting", stderr)
    assert re.search(r" 50% \|█+ +\| 1/2 passes, [\d:]+ left, searching with 1 sequence", stderr)
    assert "2/2 passes, 00:00 left, a (12 residues): alphafold2_ptm_model_3" in stderr
    assert "1 finished, 1 failed, in " in stderr
    assert "\na " in stderr.replace("\r", "") and "failed: b" in stderr


@pytest.mark.slow
def test_quiet_shows_warnings_and_errors_only(command: list[str | Path], environment: dict[str, str]) -> None:
    code, stderr = run_on_terminal(*command, "-q", env=environment)
    assert code == 5
    lines = [line for line in stderr.replace("\r", "").splitlines() if line]
    assert len(lines) == 3
    assert all(line.startswith(("foldcli: warning: ", "foldcli: error: ")) for line in lines)


@pytest.mark.slow
def test_log_json_writes_nothing_but_json(command: list[str | Path], environment: dict[str, str]) -> None:
    code, stderr = run_on_terminal(*command, "--log-json", env=environment)
    assert code == 5
    entries = [json.loads(line) for line in stderr.replace("\r", "").splitlines()]
    (finished,) = (entry for entry in entries if entry.get("target") == "a")
    assert finished["residues"] == 12 and finished["untrained"] is True
    assert finished["structure"].endswith("a_unrelaxed_rank_001_alphafold2_ptm_model_3_seed_000.pdb")
    (summary,) = (entry["summary"] for entry in entries if "summary" in entry)
    assert (summary["finished"], summary["finished_before"], summary["failed"]) == (1, 0, 1)
    assert entries[-1]["level"] == "error" and entries[-1]["exit_code"] == 5


def test_error_of_the_whole_run_is_json_too(environment: dict[str, str], tmp_path: Path) -> None:
    result = subprocess.run(
        [*FOLDCLI, "search", "absent.fasta", "absent_db", "-o", str(tmp_path / "m8"), "--log-json"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 3
    (entry,) = map(json.loads, result.stderr.splitlines())
    assert (entry["level"], entry["exit_code"]) == ("error", 3)
    assert entry["message"] == "absent.fasta: no such file or directory"


def test_interruption_is_json_too() -> None:
    code = """
import click, sys, types
from foldcli import __main__, logs

@click.command()
def wait():
    logs.configure(log_json=True)
    raise KeyboardInterrupt

sys.modules["foldcli.commands.fold"] = types.SimpleNamespace(command=wait)
sys.argv = ["foldcli", "fold"]
__main__.main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 130
    (entry,) = map(json.loads, result.stderr.splitlines())
    assert (entry["level"], entry["exit_code"]) == ("error", 130)
