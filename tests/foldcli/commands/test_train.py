"""`foldcli train`: packed data are unpacked, trained on, continued and exported; wrong arguments."""

import fcntl
import json
import lzma
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from foldcli.commands.train import command
from foldcli.training.run import record_settings
from foldcli.training.settings import read_run_settings
from model.checkpoints.alphafold2 import load_folder
from model.checkpoints.network_folder import read_manifest
from model.errors import ConfigError
from model.training.runtime.checkpoint import stored_progress
from model.training.runtime.settings import TrainingSettings, available_workers
from tests.command_process import run_foldcli

CONFIG = """
network:
  name: tiny
  evoformer:
    blocks: 1
    msa: {channels: 8, attention_heads: 2, attention_channels: 8, outer_channels: 4, transition_factor: 1}
    pair: {channels: 8, multiplication_channels: 8, attention_heads: 2, attention_channels: 8,
           transition_factor: 1}
  extra_msa:
    blocks: 1
    msa: {channels: 8, attention_heads: 2, attention_channels: 8, outer_channels: 4, transition_factor: 1,
          global_column_attention: true}
    pair: {channels: 8, multiplication_channels: 8, attention_heads: 2, attention_channels: 8,
           transition_factor: 1}
  structure: {channels: 8, iterations: 1, heads: 2}
sampling: {msa_rows: 3, extra_rows: 2, templates: 0}
phases: [{steps: 4, crop: 16, micro_batch: 1}]
batch: 1
max_recycles: 0
validate_every: 0
checkpoint_every: 0
compile: false
workers: 0
"""
LENGTHS = np.array([20, 24])


def pack(path: Path, **arrays: np.ndarray) -> None:
    stream = BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    path.write_bytes(lzma.compress(stream.getvalue(), preset=0))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder of packed data: two full-atom chains of glycines, one with a backbone only."""
    folder = tmp_path / "data"
    folder.mkdir()
    total = int(LENGTHS.sum())
    glycine = np.full(total, 7, np.uint8)
    mask = np.zeros((total, 14), bool)
    mask[:, :4] = True
    offsets = np.array([[-146, 0, 0], [0, 0, 0], [90, 120, 0], [60, 230, 0]], np.int16)
    pack(
        folder / "chains.npz.xz",
        ids=np.array(["1abc_A", "2abc_A"]),
        length=LENGTHS,
        aatype=glycine,
        cluster30=np.array([0, 1]),
        chain_break=np.zeros(total, np.uint8),
        ca_delta_centi=np.tile(np.array([380, 0, 0], np.int16), (total, 1)),
        atom14_mask=np.packbits(mask, axis=1),
        atom_offset_centi=np.tile(offsets, (total, 1)),
    )
    alpha = np.arange(18)[:, None] * [380, 0, 0]
    atoms = np.stack([alpha + offset for offset in offsets[:3]], axis=1)
    pack(
        folder / "cgdms_backbone_chains.npz.xz",
        ids=np.array(["3abc_A"]),
        length=np.array([18]),
        aatype=np.full(18, 7, np.uint8),
        n_ca_c_centroid_centi=np.concatenate([atoms, atoms[:, :1]], axis=1).astype(np.int16),
    )
    rows = np.full((20, 2), 22, np.uint8)  # as the query
    rows[:, 1] = 21
    pack(
        folder / "msas.npz.xz",
        ids=np.array(["1abc_A"]),
        rows=np.array([2]),
        length=np.array([20]),
        tokens=rows.reshape(-1),
    )
    hit = "1abc_A\t2abc_A\t1.0\t1\t20\t1\t20\t1e-9\t60\t20M\n"
    (folder / "chain_vs_chain_hits.m8.xz").write_bytes(lzma.compress(hit.encode()))
    (folder / "homology_groups.tsv").write_text("chain\tgroup\n1abc_A\t0\n2abc_A\t1\n")
    return folder


@pytest.fixture
def stop_signals_restored() -> Iterator[None]:
    """Restore the handlers of the signals that stop a run."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_other_settings_of_a_continued_run_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    settings = read_run_settings(tmp_path / "tiny.yaml")
    assert isinstance(settings, TrainingSettings)
    more = {"data": "chains", "processes": 2}
    record_settings(tmp_path, settings, more)
    record_settings(tmp_path, replace(settings, workers=settings.workers + 1), more)
    assert not caplog.records
    phases = (replace(settings.phases[0], crop=12), *settings.phases[1:])
    record_settings(tmp_path, replace(settings, seed=5, phases=phases), more | {"processes": 1})
    (message,) = caplog.messages
    changes = "seed (0, now 5), phases, processes (2, now 1)"
    assert message == f"{tmp_path}: continued with other settings than before: {changes}"
    (tmp_path / "settings.json").write_text("damaged")
    record_settings(tmp_path, settings, more)
    assert len(caplog.records) == 1 and json.loads((tmp_path / "settings.json").read_text())["seed"] == 0


def test_second_process_in_the_folder_of_a_run_is_refused(data: Path, tmp_path: Path) -> None:
    config, run = tmp_path / "tiny.yaml", tmp_path / "run"
    config.write_text(CONFIG)
    run.mkdir()
    options = [str(config), "-o", str(run), "--data", str(data), "--prepared", str(tmp_path / "unpacked")]
    descriptor = os.open(run, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        result = CliRunner().invoke(command, [*options, "--device", "cpu"])
    finally:
        os.close(descriptor)
    assert result.exit_code == 2 and "another process trains a network in this folder" in result.output
    assert not list(run.iterdir())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--unpack-only", "--export", "a.npz"], "--unpack-only excludes --export"),
        (["--unpack-only", "--package", "a"], "--unpack-only excludes --package"),
        (["--export", "a.npz", "--package", "a"], "--export excludes --package"),
        (["--scores", "tiny.yaml"], "--scores requires --package"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    tmp_path: Path, options: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(CONFIG)
    result = CliRunner().invoke(command, ["tiny.yaml", "-o", "run", *options])
    assert (result.exit_code, sorted(os.listdir())) == (2, ["tiny.yaml"])
    assert reason in result.output


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("batch", 0, "at least 1 is needed"),
        ("max_recycles", -1, "a number from 0 on is needed"),
        ("checkpoint_every", -1, "a number from 0 on is needed"),
        ("memory_budget", 7, "a number from 0 to 1 is needed"),
        ("network.evoformer.blocks", -1, "at least 1 is needed"),
        ("network.structure.iterations", 0, "at least 1 is needed"),
        ("network.extra_msa.pair.channels", 16, "must be those of network.evoformer.pair"),
        ("optimizer.learning_rate", -1, "a positive number is needed"),
        ("optimizer.learning_rate", math.nan, "a positive number is needed"),
        ("optimizer.ema_decay", "1", "a number from 0 to less than 1 is needed"),
        ("optimizer.spike_factor", 0, "a positive number is needed"),
        ("sampling.extra_rows", -1, "a number from 0 on is needed"),
        ("sampling.template_rate", 2.5, "a number from 0 to 1 is needed"),
        ("phases[0].steps", 0, "at least 1 is needed"),
        ("phases[0].crop", 0, "at least 1 is needed"),
        ("phases[0].clamped_rate", 90, "a number from 0 to 1 is needed"),
        ("phases[0].losses", {"backbone": -1}, "weights must not be negative, and one must be positive"),
    ],
)
def test_wrong_numbers_are_named(tmp_path: Path, key: str, value: object, reason: str) -> None:
    content = yaml.safe_load(CONFIG)
    *parents, name = key.replace("[0]", ".0").split(".")
    place = content
    for parent in parents:
        place = place[0] if parent == "0" else place.setdefault(parent, {})
    place[name] = value
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=re.escape(f"{key}: {reason}")):
        read_run_settings(path)


def test_loss_of_a_head_that_the_network_lacks_is_refused(tmp_path: Path) -> None:
    text = CONFIG.replace("micro_batch: 1}", "micro_batch: 1, losses: {predicted_aligned_error: 1.0}}")
    (tmp_path / "with.yaml").write_text(text)
    read_run_settings(tmp_path / "with.yaml")
    without = text.replace("name: tiny", "name: tiny\n  predicted_aligned_error: false")
    (tmp_path / "without.yaml").write_text(without)
    with pytest.raises(ConfigError, match=r"losses\.predicted_aligned_error: needs network\.predicted_al"):
        read_run_settings(tmp_path / "without.yaml")


@pytest.mark.slow
@pytest.mark.usefixtures("stop_signals_restored")
def test_run_is_continued_and_exported(data: Path, tmp_path: Path) -> None:
    def train(*arguments: object) -> None:
        result = CliRunner().invoke(command, [str(config), "-o", str(run), *map(str, arguments)])
        assert result.exit_code == 0, result.output

    config, run, unpacked = tmp_path / "tiny.yaml", tmp_path / "run", tmp_path / "unpacked"
    config.write_text(CONFIG)
    options = ("--data", data, "--prepared", unpacked, "--device", "cpu")
    train(*options, "--max-steps", 2)
    assert np.load(unpacked / "chain_offset.npy").tolist() == [0, 20, 44, 62]
    assert np.load(unpacked / "tokens.npy")[:40].tolist() == [7] * 20 + [21] * 20
    assert np.load(unpacked / "columns.npy").tolist() == [[k, k] for k in range(20)]
    # consecutive CA atoms are 3.8 Å apart
    assert (np.diff(np.load(unpacked / "atom14.npy")[:20, 1, 0]) == 380).all()
    train(*options, "--resume")
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
    train("--export", tmp_path / "network.npz")
    with np.load(tmp_path / "network.npz") as parameters:
        assert all(np.isfinite(parameters[name]).all() for name in parameters.files)
        exported = dict(parameters)
    train("--package", tmp_path / "network")
    manifest = read_manifest(tmp_path / "network")
    assert (manifest.steps, manifest.inputs.residues, manifest.side_chains) == (4, 16, True)
    arrays = load_folder(tmp_path / "network", manifest)
    # the tiny run does not train a PAE head
    assert not manifest.config.predicted_aligned_error
    assert not any("predicted_aligned_error" in key for key in arrays)
    assert all((arrays[key] == exported[key]).all() for key in arrays)
    # the manifest would describe another training
    config.write_text(CONFIG.replace("structure: {channels: 8,", "structure: {channels: 16,"))
    other = run_foldcli(["train", config, "-o", run, "--package", tmp_path / "other"])
    assert (other.returncode, (tmp_path / "other").exists()) == (3, False)
    assert "configuration: structure.channels is 8, in the configuration 16\n" in other.stderr
    config.write_text(CONFIG)
    # results state the inputs that were scored
    inputs = replace(manifest.inputs, masked_fraction=0.0, num_recycles=3)
    assert inputs != manifest.inputs
    scores = {"cases": [], "regular_bonds": 0.5, "inputs": asdict(inputs)}
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    train("--package", tmp_path / "network", "--scores", tmp_path / "scores.json")
    assert read_manifest(tmp_path / "network").inputs == inputs


@pytest.mark.slow
def test_two_processes_stop_after_the_given_steps(data: Path, tmp_path: Path) -> None:
    config, run = tmp_path / "tiny.yaml", tmp_path / "run"
    config.write_text(CONFIG.replace("\nbatch: 1", "\nbatch: 2"))
    options = ["train", config, "-o", run, "--data", data, "--prepared", tmp_path / "unpacked"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    # only the first process says what it does
    for rank in ("0", "1"):
        unpacked = run_foldcli(
            [*options, "--unpack-only", "-v"], env=os.environ | {"RANK": rank, "WORLD_SIZE": "2"}
        )
        assert (unpacked.returncode, " chains in " in unpacked.stderr) == (0, rank == "0")
    result = subprocess.run(
        [*torchrun, "-m", "foldcli", *map(str, options), "--device", "cpu", "--max-steps", "2"],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=60,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert result.stderr.count("2 process(es) on cpu") == 1
    assert stored_progress(run).step == 2
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_all_processes_of_a_run_writes_a_checkpoint(
    data: Path, tmp_path: Path, number: signal.Signals
) -> None:
    config, run = tmp_path / "tiny.yaml", tmp_path / "run"
    config.write_text(CONFIG.replace("steps: 4,", "steps: 100000,").replace("workers: 0", "workers: 2"))
    arguments = ["train", config, "-o", run, "--data", data, "--prepared", tmp_path / "unpacked"]
    process = subprocess.Popen(
        [sys.executable, "-m", "foldcli", *map(str, arguments), "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for_lines(run / "metrics.jsonl", 2)
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors
    assert stored_progress(run).step == len((run / "metrics.jsonl").read_text().splitlines())


@pytest.mark.slow
def test_metrics_of_a_killed_start_are_not_repeated(data: Path, tmp_path: Path) -> None:
    config, run, metrics = tmp_path / "tiny.yaml", tmp_path / "run", tmp_path / "run/metrics.jsonl"
    config.write_text(CONFIG.replace("steps: 4,", "steps: 100000,"))
    options = ["train", config, "-o", run, "--data", data, "--prepared", tmp_path / "unpacked"]
    options += ["--device", "cpu", "--resume"]
    assert run_foldcli([*options, "--max-steps", 2]).returncode == 0
    process = subprocess.Popen([sys.executable, "-m", "foldcli", *map(str, options)])
    try:
        wait_for_lines(metrics, 4)
    finally:
        process.kill()
        process.wait()
    with metrics.open("a") as stream:
        stream.write('{"kind": "st')  # a kill in the middle of a line
    removed = len(metrics.read_text().splitlines()) - 2
    result = run_foldcli([*options, "--max-steps", 1])
    assert f"{metrics}: removed {removed} lines after step 2\n" in result.stderr
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGUSR1], [signal.SIGINT, signal.SIGINT]])
def test_run_that_compiles_ends_at_once(data: Path, tmp_path: Path, numbers: list[signal.Signals]) -> None:
    """The compilation of a step takes minutes on a CPU."""
    config = tmp_path / "tiny.yaml"
    text = CONFIG.replace("compile: false", "compile: true")
    # more workers than cores, of which torch would warn
    config.write_text(text.replace("workers: 0", f"workers: {available_workers() + 1}"))
    arguments = [config, "-o", tmp_path / "run", "--data", data, "--prepared", tmp_path / "unpacked"]
    process = subprocess.Popen(
        [sys.executable, "-m", "foldcli", "train", *map(str, arguments), "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        lines = [process.stderr.readline(), process.stderr.readline()]
        time.sleep(1)
        for number in numbers:
            os.killpg(process.pid, number)
            time.sleep(2)
        _, errors = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert lines[0].startswith("tiny: ")
    assert lines[1] == "compiling the network for 16 residues, which may take minutes\n"
    assert process.returncode == (130 if numbers[0] == signal.SIGINT else 143)
    assert errors.splitlines()[-1] == "stopped at once by a signal; continue with --resume"
    assert len(errors.splitlines()) == len(numbers)


def test_workers_are_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    assert available_workers() == cores
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(cores + 1))
    assert available_workers() == 1


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < deadline, f"{path} has too few lines"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (("homology_groups.tsv", b"1abc_A\t0\n"), "1 chains have no group"),
        (("msas.npz.xz", b"x"), "not a numpy archive inside xz"),
        (("chain_vs_chain_hits.m8.xz", lzma.compress(b"1abc_A\t2abc_A\n")), "line 1: expected ten fields"),
    ],
)
def test_damaged_data_is_refused_in_one_line(
    data: Path, tmp_path: Path, damage: tuple[str, bytes], reason: str
) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    name, content = damage
    (data / name).write_bytes(content)
    result = run_foldcli(
        ["train", config, "--data", data, "--prepared", tmp_path / "unpacked", "--unpack-only"]
    )
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1 and reason in result.stderr and name in result.stderr
    assert not (tmp_path / "unpacked").exists()
