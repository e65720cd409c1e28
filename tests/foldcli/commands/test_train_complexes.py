"""`foldcli train` of an all-atom network: falling losses, stopped and continued runs, packages."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from features.alphafold3.inputs import Settings
from features.training.complexes import write_complex, write_index
from features.training.experiment import read_complex
from foldcli.params.openfold3 import find_parameters, is_all_atom
from model.alphafold3.network import AlphaFold3
from model.checkpoints.openfold3 import read_checkpoint
from model.training.alphafold3.initialization import initialize
from tests.command_process import run_foldcli

CONFIG = """
network:
  family: openfold3
  name: tiny
  single_channels: 32
  single_heads: 2
  single_transition_factor: 2
  pair: &pair {channels: 16, multiplication_channels: 16, attention_heads: 2, attention_channels: 8,
               transition_factor: 2}
  pairformer_blocks: 1
  template_pair: *pair
  template_blocks: 1
  input_atoms: &atoms {channels: 16, pair_channels: 8, heads: 2, blocks: 1}
  msa: {channels: 8, blocks: 1, heads: 2, head_channels: 4, outer_channels: 4, transition_factor: 2}
  diffusion: {channels: 32, heads: 2, blocks: 2, noise_channels: 16, atoms: *atoms}
  confidence: {blocks: 1}
steps: 4
crop: 16
learning_rate: 3e-3
warmup_steps: 1
losses: {distogram: 0.3}
passes: {copies: 4, rollout_steps: 1, most_cycles: 1}
checkpoint_every: 0
"""
# OpenFold3's sizes with one block of each kind
SHALLOW = """
network:
  family: openfold3
  name: shallow
  pairformer_blocks: 1
  template_blocks: 1
  input_atoms: {blocks: 1}
  msa: {blocks: 2}
  diffusion: {blocks: 1, atoms: {blocks: 1}}
  confidence: {blocks: 1}
steps: 1
crop: 4
passes: {copies: 1, rollout_steps: 1, most_cycles: 1}
"""


@pytest.fixture(scope="module")
def complexes(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return training data of a protein with DNA, and one with a ligand."""
    folder = tmp_path_factory.mktemp("complexes")
    entries = []
    for name in ("1lcd", "4cup"):
        known = read_complex(root / f"tests/features/templates/data/{name}.cif.gz")
        entries.append(write_complex(known, name, folder, Settings(templates=1)))
    write_index(folder, entries)
    return folder


def start(config: Path, run: Path, *arguments: object) -> "subprocess.Popen[str]":
    """Start a run with one thread, which is faster for a tiny network."""
    return subprocess.Popen(
        [sys.executable, "-m", "foldcli", "train", *map(str, (config, "-o", run, *arguments))],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def train(config: Path, run: Path, *arguments: object) -> str:
    process = start(config, run, *arguments)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return errors


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


@pytest.mark.slow
def test_a_stopped_run_continues_bit_for_bit(complexes: Path, tmp_path: Path) -> None:
    config, options = written(tmp_path, CONFIG), ("--data", complexes, "--device", "cpu")
    log = train(config, tmp_path / "whole", *options)
    assert "tiny: 0.2 million parameters, 1 process(es) on cpu, step 0 of 4" in log
    assert "step 4/4  loss" in log
    run = tmp_path / "stopped"
    process = start(config, run, *options)
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not metrics.exists() or not metrics.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    assert errors.endswith("stopped by a signal; continue with --resume\n")
    assert 1 <= len(metrics.read_text().splitlines()) < 4
    train(config, run, *options, "--resume")
    name = "checkpoint.safetensors"
    assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_tiny_network_learns_two_complexes(complexes: Path, tmp_path: Path) -> None:
    config = written(tmp_path, CONFIG.replace("steps: 4", "steps: 80", 1))
    train(config, tmp_path / "run", "--data", complexes, "--device", "cpu")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    terms = [json.loads(line)["terms"] for line in lines]
    first, last = ([np.mean([x[name] for x in part]) for name in ("distogram", "smooth_lddt")]
                   for part in (terms[:20], terms[-20:]))  # fmt: skip
    assert last[0] < 0.92 * first[0]
    assert last[1] < 0.95 * first[1]


@pytest.mark.slow
def test_a_package_has_the_averaged_network(complexes: Path, tmp_path: Path) -> None:
    config, run, folder = written(tmp_path, SHALLOW), tmp_path / "run", tmp_path / "package"
    train(config, run, "--data", complexes, "--device", "cpu")
    train(config, run, "--package", folder)
    assert is_all_atom(folder) and sorted(os.listdir(folder)) == ["shallow.json", "shallow.safetensors"]
    network_config, tensors = read_checkpoint(find_parameters(folder).file)
    network = AlphaFold3(network_config, "reference")
    network.load_state_dict(tensors)
    initial = AlphaFold3(network_config, "reference")
    initialize(initial, seed=0)
    for name, buffer in initial.named_buffers():  # of the embedding of the noise, which is not trained
        assert torch.equal(network.get_buffer(name), buffer), name
    before = dict(initial.named_parameters())
    for name, parameter in network.named_parameters():
        assert torch.allclose(parameter, before[name], atol=0.01), name  # one step of a small rate
    assert not all(torch.equal(x, before[name]) for name, x in network.named_parameters())


def test_wrong_arguments_are_refused_in_one_line(complexes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for text, arguments, code, reason in [
        (CONFIG, ("--workers", 2), 2, "--workers does not apply to all-atom networks"),
        (CONFIG, (), 2, "Missing training data"),
        (CONFIG, ("--data", tmp_path), 3, "no complexes for training"),
        (CONFIG, ("--package", tmp_path / "out"), 3, "checkpoint.safetensors: no such checkpoint"),
        (CONFIG.replace("crop: 16", "crop: 0"), (), 2, "crop: at least 1 is needed"),
        (CONFIG.replace("crop: 16", "cropp: 1"), (), 2, "cropp: unknown key"),
        (
            CONFIG.replace("family: openfold3", "family: boltz"),
            (),
            2,
            "expected one of alphafold2, openfold3",
        ),
        (CONFIG + "frozen: [nothing]\n", ("--data", complexes), 2, "frozen: no parameter begins"),
    ]:
        result = run_foldcli(["train", written(tmp_path, text), "-o", run, *arguments])
        assert result.returncode == code, result.stderr
        assert reason in result.stderr and "Traceback" not in result.stderr
    assert not run.exists()
