"""Tests of `--gpus-per-target`: several processes that predict a target together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model.alphafold2.modules.config import model_config
from tests.command_process import best_scores, command_environment, run_foldcli
from tests.networks import tiny_parameters, write_parameters

QUICK = ["--models", "3", "--device", "cpu", "--threads", "2", "--no-plots", "--no-report"]
RANKS = ["--gpus-per-target", "2"]


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["--params", "template", *RANKS], {}, "--params template runs no network"),
        (
            RANKS,
            {"WORLD_SIZE": "3", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            "--gpus-per-target 2: torchrun has started 3 processes.",
        ),
    ],
)
def test_numbers_of_ranks_that_do_not_fit_are_refused(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], message: str
) -> None:
    out = tmp_path / "out"
    for command in (["predict", "a.a3m"], ["fold", "a.fasta", "--db", "b.fasta"]):
        result = run_foldcli([*command, *arguments, "-o", out], env=os.environ | variables)
        assert result.returncode == 2 and message in result.stderr
        assert not out.exists()


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("cuda:0,1,2", "cuda:2: not used, because each target takes 2 of 3 devices"),
        ("cuda:0,1,2,3,4", "cuda:4: used only for targets that do not fit the others, because"),
    ],
)
def test_devices_that_are_left_over_are_named(tmp_path: Path, devices: str, message: str) -> None:
    (tmp_path / "a.a3m").write_text(">a\nMKV\n")
    arguments = ["predict", tmp_path / "a.a3m", "--params", tiny_parameters(), *RANKS, "--device", devices]
    result = run_foldcli([*arguments, "--dry-run", "-o", tmp_path / "out"])
    assert result.stderr.count(message) == 1, result.stderr


@pytest.mark.slow
def test_two_ranks_predict_what_one_predicts(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\nMKVLAAGIVWDEFHYTRS\n")
    (tmp_path / "db.fasta").write_text(">hit\nMKVLSAGIVWDEYHYTRS\n")
    environment = command_environment(tmp_path / "cache", FOLDCLI_PARAMS=tiny_parameters())
    fold = ["fold", tmp_path / "a.fasta", "--db", tmp_path / "db.fasta", *RANKS, "-o", tmp_path / "two"]
    predict = ["predict", tmp_path / "two/a/a.a3m", "-o", tmp_path / "one"]
    for arguments in (fold, predict):
        result = run_foldcli([*arguments, *QUICK, "--num-recycle", "1"], env=environment)
        assert result.returncode == 0, result.stderr
    one, two = best_scores(tmp_path / "one/a"), best_scores(tmp_path / "two/a")
    assert np.allclose(one["plddt"], two["plddt"], atol=0.011)
    assert np.allclose(one["pae"], two["pae"], atol=0.011)
    done = json.loads((tmp_path / "two/a/a.done.json").read_text())
    assert done["facts"]["gpus_per_target"] == 2
    # the number of ranks is no reason to predict again
    again = run_foldcli([*(x for x in fold if x not in RANKS), *QUICK, "--num-recycle", "1"], env=environment)
    assert "already done" in again.stderr


@contextmanager
def predicting_process(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a long prediction on two ranks, and wait until it runs."""
    alignment = folder / "a.a3m"
    alignment.write_text(">query\n" + "MKVLAAGIVWDEFHYTRSPQ" * 12 + "\n")
    arguments = [alignment, *QUICK, *RANKS, "-v", "-o", folder / "out"]
    environment = command_environment(folder / "cache", FOLDCLI_PARAMS=tiny_parameters())
    command = [sys.executable, "-m", "foldcli", "predict", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() == "a: predict":
                break
        yield process


@pytest.mark.slow
def test_killed_rank_ends_the_run_with_one_line(tmp_path: Path) -> None:
    with predicting_process(tmp_path) as process:
        os.kill(rank_process(process.pid), signal.SIGKILL)
        start = time.monotonic()
        assert process.stderr is not None
        rest = process.stderr.read()
    assert process.returncode == 5 and time.monotonic() - start < 30
    (message,) = rest.splitlines()
    assert "rank 1 on " in message and "its process was killed by SIGKILL" in message


@pytest.mark.slow
@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_stopped_run_ends_all_ranks_with_one_line(tmp_path: Path, number: int, word: str) -> None:
    with predicting_process(tmp_path) as process:
        rank = rank_process(process.pid)
        process.send_signal(number)
        start = time.monotonic()
        assert process.stderr is not None
        rest = process.stderr.read()
    assert process.returncode == 128 + number and time.monotonic() - start < 10
    # click begins a new line after ^C
    assert rest.strip() == f"foldcli: error: {word}; run the same command again to continue"
    assert not Path(f"/proc/{rank}").exists()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_target_that_does_not_fit_one_gpu_takes_two(tmp_path: Path) -> None:
    lengths = {"long": 1500, "large": 3000, "a": 60, "b": 50, "c": 40}
    for name, length in lengths.items():
        (tmp_path / f"{name}.a3m").write_text(f">{name}\n{('MKVLAAGIVWDEFHYTRSPQ' * 150)[:length]}\n")
    # of full width, whose passes need memory
    config = replace(model_config("model_3_ptm"), trained=False).with_blocks(2, 1)
    write_parameters(tmp_path / "params", config)
    options = ["--params", tmp_path / "params", "--models", "3", "--num-recycle", "0", "--precision", "fp32"]
    options += ["--no-plots", "--no-report"]
    command = [sys.executable, "-m", "foldcli", "predict", *options]
    inputs = [tmp_path / f"{name}.a3m" for name in lengths]
    # enough for 1,500 residues on two GPUs, but not on one
    limited = ["--device", "cuda:0,1", "--max-memory", "4500M", "-o", tmp_path / "two"]
    two = subprocess.run([*command, *inputs, *limited], capture_output=True, text=True)
    assert two.returncode == 5, two.stderr
    assert "long: does not fit one device (1500 residues" in two.stderr
    (failure,) = (tmp_path / "two/failures.jsonl").read_text().splitlines()
    assert json.loads(failure)["target"] == "large" and "not enough memory" in failure
    fitting = [path for path in inputs if path.stem != "large"]
    unlimited = ["--device", "cuda:0", "-o", tmp_path / "one"]
    one = subprocess.run([*command, *fitting, *unlimited], capture_output=True, text=True)
    assert one.returncode == 0, one.stderr
    for name in ("long", "a", "b", "c"):
        ours, theirs = best_scores(tmp_path / "two" / name), best_scores(tmp_path / "one" / name)
        assert np.allclose(ours["plddt"], theirs["plddt"], atol=0.05)
        facts = json.loads((tmp_path / f"two/{name}/{name}.done.json").read_text())["facts"]
        assert facts.get("gpus_per_target") == (2 if name == "long" else None)


def rank_process(parent: int) -> int:
    """Return the first service that a process has started."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    children = [pid for task in tasks for pid in task.read_text().split()]
    services = [
        int(pid) for pid in children if "msa.base.services" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return min(services)
