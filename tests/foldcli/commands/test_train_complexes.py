"""`foldcli train` of an all-atom network: continued runs, packages, fine-tuning, wrong arguments."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from features.alphafold3.inputs import InputSettings
from features.training.complexes import ComplexSet, write_complex, write_index
from features.training.experiment import read_complex
from foldcli.families.all_atom import AllAtomSource
from foldcli.outputs.layout import TAG
from foldcli.params.openfold3 import find_parameters, is_all_atom
from foldcli.training.all_atom import all_atom_trainer, package
from foldcli.training.settings import AllAtomRunSettings, read_run_settings
from model.checkpoints.openfold3 import read_checkpoint
from model.errors import ConfigError
from model.training.runtime.checkpoint import FULL_NAME
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.trainer import METRICS, Trainer
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
steps: 8
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
        entries.append(write_complex(known, name, folder, InputSettings(templates=1)))
    write_index(folder, entries)
    return folder


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def read(tmp_path: Path, text: str) -> AllAtomRunSettings:
    settings = read_run_settings(written(tmp_path, text))
    assert isinstance(settings, AllAtomRunSettings)
    return settings


def open_run(settings: AllAtomRunSettings, complexes: Path, run: Path, resume: bool = False) -> Trainer:
    run.mkdir(exist_ok=True)
    cpu = TrainingProcesses(0, 1, torch.device("cpu"))
    return all_atom_trainer(settings, ComplexSet(complexes), run, cpu, resume)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_two_processes_train_as_one(complexes: Path, tmp_path: Path) -> None:
    settings = read(tmp_path, CONFIG.replace("steps: 8", "steps: 3\nbatch: 2"))
    arguments = ["train", tmp_path / "config.yaml", "-o", tmp_path / "two", "--data", complexes]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run(
        [*torchrun, "-m", "foldcli", *map(str, arguments), "--device", "cpu"],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=200,
    )
    list(open_run(settings, complexes, tmp_path / "one").train())
    entries = [
        [json.loads(line) for line in (tmp_path / run / METRICS).read_text().splitlines()]
        for run in ("one", "two")
    ]
    assert len(entries[0]) == len(entries[1]) == settings.steps
    for one, two in zip(*entries, strict=True):
        assert two["terms"] == pytest.approx(one["terms"], rel=1e-3)
        assert two["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_held_out_complexes_are_scored(complexes: Path, tmp_path: Path) -> None:
    text = f"validation: {complexes}\nvalidate_every: 2\nvalidation_samples: 2\n"
    settings = read(tmp_path, CONFIG.replace("steps: 8", "steps: 4") + text)
    runs = [open_run(settings, complexes, tmp_path / name) for name in "ab"]
    first, _ = ([report.validation for report in run.train()] for run in runs)
    assert [scores is None for scores in first] == [True, False, True, False]
    entries = [(tmp_path / name / METRICS).read_text().splitlines() for name in "ab"]
    scores, again = ([x for x in map(json.loads, y) if x["kind"] == "validation"] for y in entries)
    assert [x["step"] for x in scores] == [2, 4]
    assert [x["held_out"] for x in scores] == [x["held_out"] for x in again]
    assert scores[0]["held_out"] != scores[1]["held_out"]
    assert 0 <= scores[1]["held_out"]["lddt"] <= 1 and scores[1]["held_out"]["distogram"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_stopped_run_continues_bit_for_bit(complexes: Path, tmp_path: Path) -> None:
    settings, run, whole = read(tmp_path, CONFIG), tmp_path / "stopped", tmp_path / "whole"
    arguments = ["train", tmp_path / "config.yaml", "-o", run, "--data", complexes, "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "foldcli", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 200
    while not (run / METRICS).exists() or not (run / METRICS).read_text():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    first, *_, last = errors.splitlines()
    assert first == "tiny: 0.2 million parameters, 1 process(es) on cpu, step 0 of 8"
    assert last == "stopped by a signal; continue with --resume"
    assert 1 <= len((run / METRICS).read_text().splitlines()) < settings.steps
    list(open_run(settings, complexes, run, resume=True).train())
    list(open_run(settings, complexes, whole).train())
    expected, tensors = load_file(whole / FULL_NAME), load_file(run / FULL_NAME)
    assert expected.keys() == tensors.keys()
    assert all(torch.equal(tensors[name], x) for name, x in expected.items())
    steps = [json.loads(line)["step"] for line in (run / METRICS).read_text().splitlines()]
    assert steps == list(range(1, settings.steps + 1))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_packaged_network_is_trained_further(complexes: Path, tmp_path: Path) -> None:
    settings, run, folder = read(tmp_path, SHALLOW), tmp_path / "run", tmp_path / "package"
    first = open_run(settings, complexes, run)
    list(first.train())
    package(run, settings, folder)
    assert is_all_atom(folder) and sorted(os.listdir(folder)) == ["shallow.json", "shallow.safetensors"]
    parameters = find_parameters(folder)
    assert AllAtomSource(parameters, 1).tags(2) == ("shallow_seed_002_sample_0",)
    named = AllAtomSource(replace(parameters, name="mine-rank_1 " + 99 * "x"), 1).tags(0)[0]
    assert re.fullmatch(TAG, named) and named.startswith("mine_rank1_xxx")
    _, tensors = read_checkpoint(parameters.file)
    assert not torch.equal(first.flat.average, first.flat.values)
    with first.flat.using_average():
        averaged = first.task.network.state_dict()
        assert averaged.keys() == tensors.keys()
        assert all(torch.equal(averaged[name], x) for name, x in tensors.items())

    further = replace(settings, initial_network=str(folder), seed=1, frozen=("diffusion_module.",))
    second = open_run(further, complexes, tmp_path / "second")
    list(second.train())
    trained = second.task.network.state_dict()
    changed = {name for name, x in tensors.items() if not torch.equal(trained[name], x)}
    assert any(name.startswith("aux_heads.") for name in changed)
    assert not any(name.startswith(further.frozen) for name in changed)
    # the parameters are read at the start alone
    nowhere = replace(further, initial_network=str(tmp_path / "nowhere"))
    assert open_run(nowhere, complexes, tmp_path / "second", resume=True).progress.step == 1
    other = replace(further, network=replace(further.network, pairformer_blocks=2))
    with pytest.raises(ConfigError, match=r"another shape than `network`: pairformer_blocks is 1$"):
        open_run(other, complexes, tmp_path / "third")


def test_wrong_arguments_are_refused_in_one_line(complexes: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", ("--data", complexes)
    for text, arguments, code, reason in [
        (CONFIG, ("--workers", 2), 2, "--workers does not apply to all-atom networks"),
        (CONFIG, (*data, "--workers", 0), 2, "--workers does not apply to all-atom networks"),
        (CONFIG, (), 2, "Missing training data"),
        (CONFIG, ("--data", tmp_path), 3, "no complexes for training"),
        (CONFIG, ("--package", tmp_path / "out"), 3, "checkpoint.safetensors: no such checkpoint"),
        (CONFIG, (*data, "--device", "cuda"), 4, "torch finds no CUDA GPU"),
        (CONFIG + "frozen: [nothing]\n", data, 2, "frozen: no parameter begins"),
        (CONFIG + f"initial_network: {tmp_path}/none\n", data, 4, f"{tmp_path}/none does not exist"),
    ]:
        # no test uses a GPU
        env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        result = run_foldcli(["train", written(tmp_path, text), "-o", run, *arguments], env=env)
        assert result.returncode == code, result.stderr
        assert reason in result.stderr and "Traceback" not in result.stderr
    assert not run.exists()


def test_weights_that_are_left_out_keep_their_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, CONFIG.replace("crop: 16", "crops: {spatial: 0}")).crops.interface == 0.4
    assert read(tmp_path, CONFIG.replace("crop: 16", "crops: {}")).crops.spatial == 0.4


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("crop: 16", "crop: 0", "crop: at least 1 is needed"),
        ("crop: 16", "seed: -1", "seed: a number from 0"),
        ("copies: 4", "copies: 0", "passes.copies: at least 1 is needed"),
        ("crop: 16", "cropp: 1", "cropp: unknown key"),
        ("crop: 16", "crops: {places: 1}", "crops.places: unknown key"),
        ("crop: 16", "crop: 0\ncropp: 16", "cropp: unknown key"),
        ("crop: 16", "crops: {spatial: -1}", "crops: weights must not be negative"),
        ("family: openfold3", "family: [boltz]", "network.family: expected one of alphafold2, openfold3"),
        ("single_heads: 2", "single_heads: 3", "single_channels: must be a multiple of network.single_heads"),
        ("pairformer_blocks: 1", "pairformer_blocks: 0", "network.pairformer_blocks: at least 1 is needed"),
        ("learning_rate: 3e-3", "learning_rate: .nan", "learning_rate: a positive number is needed"),
        ("crop: 16", "ema_decay: 1", "ema_decay: a number from 0 to less than 1 is needed"),
        ("distogram: 0.3", "pae: -1", "losses: weights must not be negative"),
        ("name: tiny", "name: a/b", "network.name: not a file name"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in CONFIG
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, CONFIG.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'config.yaml'}: ") and reason in str(caught.value)
