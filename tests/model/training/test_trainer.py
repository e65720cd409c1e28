"""Tests of training runs: steps, resuming, several processes, checkpoints."""

import itertools
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from benchmarks.random_parameters import random_parameters
from foldcli.training.settings import read_run_settings
from model.alphafold2.modules.config import ModelConfig, TemplateConfig, model_config
from model.alphafold2.network import AlphaFold
from model.checkpoints.alphafold2 import build_network, expected_shapes, load_folder, parameter_arrays
from model.errors import ConfigError, DataError
from model.training.alphafold2.task import ChainTask
from model.training.data.data import ChainSet, Split
from model.training.data.sampling import TrainingSampleSettings
from model.training.runtime import checkpoint
from model.training.runtime.checkpoint import (
    CARRIED_FOLDER,
    FULL_NAME,
    read_average,
    read_portable_manifest,
    save_portable_checkpoint,
    stored_progress,
)
from model.training.runtime.initialization import copy_trained
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import (
    RESTART_WARMUP,
    Phase,
    TrainingSettings,
)
from model.training.runtime.step import MIN_NORMS
from model.training.runtime.trainer import METRICS, drop_metrics_after
from tests.model.training.runs import chain_trainer
from tests.networks import write_packaged_network

CPU = TrainingProcesses(0, 1, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("clip_each", ["batch", "micro_batch"])
def test_interrupted_run_continues_bit_for_bit(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path, clip_each: str
) -> None:
    settings = replace(settings, optimizer=replace(settings.optimizer, clip_each=clip_each))
    whole = chain_trainer(settings, chains, split, None, CPU)
    reports = list(whole.train())
    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    first = chain_trainer(settings, chains, split, tmp_path, CPU)
    assert len(list(first.train(max_steps=3))) == 3
    second = chain_trainer(settings, chains, split, tmp_path, CPU, resume=True)
    rest = list(second.train())
    assert [report.step for report in rest] == [4, 5, 6]
    assert [r.terms for r in rest] == [r.terms for r in reports[3:]]
    assert torch.equal(second.flat.values, whole.flat.values)
    assert torch.equal(second.flat.average, whole.flat.average)
    assert rest[0].validation is not None and set(rest[0].validation) == {
        "without_relative",
        "distant_template",
    }
    kinds = [json.loads(line)["kind"] for line in (tmp_path / METRICS).read_text().splitlines()]
    assert kinds == ["step"] * 4 + ["validation"] + ["step"] * 2


@pytest.mark.parametrize("next_phase", [False, True])
def test_continued_run_skips_the_spikes_of_the_whole_run(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path, next_phase: bool
) -> None:
    """A spike after the checkpoint is compared with norms from before it, unless a phase has ended."""
    steps = MIN_NORMS + 2
    phases = [Phase(steps=steps, crop=8, micro_batch=1), Phase(steps=2, crop=8, micro_batch=1)]
    settings = replace(settings, batch=1, phases=tuple(phases), max_recycles=0, validate_every=0)
    first = chain_trainer(settings, chains, split, tmp_path, CPU)
    assert not any(report.skipped for report in first.train(max_steps=steps if next_phase else MIN_NORMS))
    spiky = replace(settings, optimizer=replace(settings.optimizer, spike_factor=1e-6))
    second = chain_trainer(spiky, chains, split, tmp_path, CPU, resume=True)
    assert [report.skipped for report in second.train(max_steps=1)] == [not next_phase]
    assert second.progress.norms[:-1] == (() if next_phase else first.progress.norms[:-1])
    assert (len(second.progress.norms), second.progress.skipped) == ((1, 0) if next_phase else (MIN_NORMS, 1))
    third = chain_trainer(spiky, chains, split, tmp_path, CPU, resume=True)
    assert third.progress == second.progress


def test_metrics_after_a_step_are_removed(tmp_path: Path) -> None:
    assert drop_metrics_after(tmp_path, 0) == 0
    lines = [b'{"kind": "step", "step": %d, "loss": NaN}\n' % step for step in (1, 2, 3)]
    validation = b'{"kind": "validation", "step": 2}\n'
    path = tmp_path / METRICS
    path.write_bytes(b"".join([*lines[:2], validation, lines[2], b"\0\xff\n", lines[2][:9]]))
    assert [drop_metrics_after(tmp_path, step) for step in (2, 2)] == [3, 0]
    assert path.read_bytes() == b"".join([*lines[:2], validation])
    assert drop_metrics_after(tmp_path, 0) == 3 and path.read_bytes() == b""


def test_run_continues_from_the_portable_checkpoint(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    first = chain_trainer(settings, chains, split, tmp_path, CPU)
    list(first.train(max_steps=3))
    (tmp_path / FULL_NAME).unlink()
    second = chain_trainer(settings, chains, split, tmp_path, CPU, resume=True)
    assert (second.progress.step, second.progress.moments_from) == (3, 3)
    assert torch.allclose(second.flat.average, first.flat.average, rtol=2**-8, atol=1e-12)
    scale = (first.flat.values - first.flat.average).abs().max() + first.flat.values.abs().max() / 256
    assert float((second.flat.values - first.flat.values).abs().max()) <= float(scale) / 64
    for path in (tmp_path / CARRIED_FOLDER).glob("offset-*"):
        path.unlink()
    third = chain_trainer(settings, chains, split, tmp_path, CPU, resume=True)
    assert torch.equal(third.flat.values, third.flat.average)
    assert [report.step for report in third.train()] == [4, 5, 6]


def test_network_of_a_portable_checkpoint_runs_in_the_inference_code(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    trainer = chain_trainer(settings, chains, split, tmp_path, CPU)
    list(trainer.train(max_steps=1))
    network = build_network(settings.network, read_average(tmp_path / CARRIED_FOLDER)[1])
    with trainer.flat.using_average():
        for name, parameter in trainer.task.network.named_parameters():
            assert torch.allclose(parameter, network.get_parameter(name), rtol=2**-8, atol=1e-12), name


def test_state_of_another_network_is_refused(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    list(chain_trainer(settings, chains, split, tmp_path, CPU).train(max_steps=1))
    other = replace(settings, network=settings.network.with_blocks(1, 1))
    with pytest.raises(DataError, match=r"evoformer\.blocks is 2, in the configuration 1"):
        chain_trainer(other, chains, split, tmp_path, CPU, resume=True)


def test_damaged_portable_checkpoint_is_named(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    list(chain_trainer(settings, chains, split, tmp_path, CPU).train(max_steps=1))
    (tmp_path / FULL_NAME).unlink()
    folder = tmp_path / CARRIED_FOLDER
    (part,), manifest = folder.glob("average-0-*"), folder / "manifest.json"
    whole, other = part.read_bytes(), safetensors.numpy.save({"values": np.zeros(3, np.float32)})
    for content in (whole[:100], whole[:-1], other):
        part.write_bytes(content)
        with pytest.raises(DataError, match="damaged checkpoint"):
            read_average(folder)
        with pytest.raises(DataError, match="damaged checkpoint"):
            chain_trainer(settings, chains, split, tmp_path, CPU, resume=True)
    part.unlink()
    with pytest.raises(DataError, match=r"average-0-.*\.safetensors: missing part"):
        read_average(folder)
    for text in ("{", "{}", "[]", '{"config": {}, "progress": {}, "parts": {"average": "x", "offset": 1}}'):
        manifest.write_text(text)
        for read in (lambda: read_average(folder), lambda: stored_progress(tmp_path)):
            with pytest.raises(DataError, match=r"manifest\.json: damaged checkpoint"):
                read()


def test_portable_checkpoint_survives_a_stop_between_its_parts(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    trainer = chain_trainer(settings, chains, split, tmp_path, CPU)
    list(trainer.train(max_steps=1))
    newer = tmp_path / CARRIED_FOLDER
    folder = Path(shutil.copytree(newer, tmp_path / "older"))
    before = read_average(folder)[1]
    list(trainer.train(max_steps=1))
    # the write of this part fails after those of the average
    (obstacle,) = (folder / path.name for path in newer.glob("offset-0-*"))
    obstacle.mkdir()
    with pytest.raises(OSError, match=r"offset-0-"):
        save_portable_checkpoint(folder, trainer.flat, settings.network, trainer.progress)
    obstacle.rmdir()
    (folder / ".average-0.tmp").touch()  # of a killed process
    assert read_portable_manifest(folder).progress.step == 1
    assert all(np.array_equal(before[name], values) for name, values in read_average(folder)[1].items())
    save_portable_checkpoint(folder, trainer.flat, settings.network, trainer.progress)
    assert {path.name for path in folder.iterdir()} == {path.name for path in newer.iterdir()}


def test_average_is_that_of_one_checkpoint_while_a_run_replaces_it(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    trainer = chain_trainer(settings, chains, split, None, CPU)
    ended = threading.Event()

    def save(step: int) -> None:
        trainer.flat.average.fill_(step)
        progress = replace(trainer.progress, step=step)
        save_portable_checkpoint(tmp_path, trainer.flat, settings.network, progress)

    def replace_until_ended() -> None:
        for step in itertools.cycle(range(1, 100)):
            # a reading that takes longer than this is repeated
            if ended.wait(0.1 * (step % 3)):
                return
            save(step)

    save(0)
    steps = set[int]()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(replace_until_ended)
        try:
            while len(steps) < 5:
                manifest, arrays = read_average(tmp_path)
                steps.add(manifest.progress.step)
                assert all((values == manifest.progress.step).all() for values in arrays.values())
        finally:
            ended.set()
        writer.result()


def test_incomplete_and_older_portable_checkpoints(
    settings: TrainingSettings,
    chains: ChainSet,
    split: Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_PART_BYTES", 2**14)
    list(chain_trainer(settings, chains, split, tmp_path, CPU).train(max_steps=1))
    (tmp_path / FULL_NAME).unlink()
    folder = tmp_path / CARRIED_FOLDER
    values = chain_trainer(settings, chains, split, tmp_path, CPU, resume=True).flat.values
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"] = {name: len(digests) for name, digests in manifest["parts"].items()}
    assert min(manifest["parts"].values()) > 1
    for name in ("norms", "skipped"):
        del manifest["progress"][name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in folder.glob("*.safetensors"):
        path.rename(folder / f"{path.name.rpartition('-')[0]}.safetensors")
    older = chain_trainer(settings, chains, split, tmp_path, CPU, resume=True)
    assert torch.equal(older.flat.values, values) and older.progress.norms == ()
    (folder / "offset-0.safetensors").unlink()
    with pytest.raises(DataError, match=r"offset-0\.safetensors: missing part"):
        chain_trainer(settings, chains, split, tmp_path, CPU, resume=True)


@pytest.mark.parametrize("with_error_head", [True, False])
def test_run_starts_from_a_packaged_network(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path, with_error_head: bool
) -> None:
    trained = replace(settings.network, name="trained", predicted_aligned_error=with_error_head)
    manifest = write_packaged_network(tmp_path / "network", trained, seed=7)
    source = build_network(trained, load_folder(tmp_path / "network", manifest))
    drawn = chain_trainer(settings, chains, split, None, CPU)
    trainer = chain_trainer(
        replace(settings, initial_network=str(tmp_path / "network")), chains, split, tmp_path / "run", CPU
    )
    expected = dict(drawn.task.network.named_parameters()) | dict(source.named_parameters())
    for name, parameter in trainer.task.network.named_parameters():
        assert torch.equal(parameter, expected[name]), name
    assert torch.equal(trainer.flat.average, trainer.flat.values)


def test_resumed_run_needs_no_initial_network(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    write_packaged_network(tmp_path / "network", settings.network)
    settings = replace(settings, initial_network=str(tmp_path / "network"))
    (tmp_path / "run").mkdir()
    first = chain_trainer(settings, chains, split, tmp_path / "run", CPU)
    list(first.train(max_steps=1))
    shutil.rmtree(tmp_path / "network")
    second = chain_trainer(settings, chains, split, tmp_path / "run", CPU, resume=True)
    assert torch.equal(second.flat.values, first.flat.values)


def test_initial_network_of_another_shape_is_refused(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path
) -> None:
    write_packaged_network(tmp_path / "network", settings.network.with_blocks(1, 1))
    with pytest.raises(ConfigError, match=r"initial_network: .* has another shape than `network`"):
        chain_trainer(replace(settings, initial_network=str(tmp_path / "network")), chains, split, None, CPU)


@pytest.mark.parametrize("with_error_head", [True, False])
def test_run_starts_from_parameters_with_deepminds_names(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path, with_error_head: bool
) -> None:
    trained = replace(settings.network, predicted_aligned_error=with_error_head)
    path, arrays = tmp_path / "params_model_3.npz", random_parameters(trained, 7)
    np.savez(path, **arrays)
    settings = replace(settings, initial_network=str(path))
    trainer = chain_trainer(settings, chains, split, None, CPU)
    drawn = chain_trainer(replace(settings, initial_network=""), chains, split, None, CPU)
    expected = dict(drawn.task.network.named_parameters())
    expected |= dict(build_network(trained, arrays).named_parameters())
    for name, parameter in trainer.task.network.named_parameters():
        assert torch.equal(parameter, expected[name]), name
    assert [report.step for report in trainer.train(max_steps=1)] == [1]
    np.savez(path, **random_parameters(trained.with_blocks(1, 1)))
    with pytest.raises(ConfigError, match=r"initial_network: .* has another shape than `network`"):
        chain_trainer(settings, chains, split, None, CPU)


@pytest.mark.parametrize("number", [1, 3])
def test_configurations_have_the_shapes_of_deepminds_files(root: Path, number: int) -> None:
    settings = read_run_settings(root / "examples/train/finetune_alphafold2.yaml")
    assert isinstance(settings, TrainingSettings)
    network = settings.network if number == 3 else replace(settings.network, template=TemplateConfig())
    assert expected_shapes(network) == expected_shapes(model_config(f"model_{number}_ptm"))


@pytest.mark.slow
def test_network_of_deepminds_size_starts_from_its_parameters(root: Path, tmp_path: Path) -> None:
    config = read_run_settings(root / "examples/train/finetune_alphafold2.yaml").network
    assert isinstance(config, ModelConfig)
    arrays = random_parameters(config, 7)
    np.savez(tmp_path / "params_model_3_ptm.npz", **arrays)
    network = AlphaFold(config)
    copy_trained(network, config, str(tmp_path / "params_model_3_ptm.npz"))
    copied = parameter_arrays(network)
    assert copied.keys() == arrays.keys()
    assert all(np.array_equal(copied[key], values) for key, values in arrays.items())


def test_each_phase_clamps_its_share_of_the_samples(
    settings: TrainingSettings, chains: ChainSet, split: Split
) -> None:
    phases = (
        Phase(steps=10, crop=40, micro_batch=2, clamped_rate=0.0),
        Phase(steps=10, crop=40, micro_batch=2, clamped_rate=1.0),
    )
    trainer = chain_trainer(replace(settings, phases=phases, workers=0), chains, split, None, CPU)
    plan = trainer.task.plan(0)
    per_step = settings.batch // 2
    clamped = [
        trainer.task.sampler.batch(part.first, part.size, part.crop, part.clamped_rate)["clamped"].tolist()
        for part in (next(plan) for _ in range(20 * per_step))
    ]
    assert clamped == [[0, 0]] * (10 * per_step) + [[1, 1]] * (10 * per_step)


@pytest.mark.slow
def test_loss_falls_on_one_chain(
    settings: TrainingSettings, network_config: ModelConfig, chains: ChainSet, split: Split
) -> None:
    one = replace(split, train=split.train[:1])
    sampling = TrainingSampleSettings(msa_rows=6, extra_rows=3, template_rate=0.0)
    long = replace(
        settings,
        phases=(Phase(steps=25, crop=40, micro_batch=4, clamped_rate=1.0),),
        sampling=sampling,
        validate_every=0,
    )
    reports = list(chain_trainer(long, chains, one, None, CPU).train())
    first, last = reports[0].terms, reports[-1].terms
    assert last["distogram"] < first["distogram"] - 0.5
    assert last["loss"] < 0.9 * first["loss"]


def test_learning_rate_rises_falls_and_rises_again_after_a_restart(settings: TrainingSettings) -> None:
    long = replace(settings, phases=(Phase(steps=1000, micro_batch=2),))
    options = long.optimizer
    assert long.rate(0) == pytest.approx(options.learning_rate / 2, rel=1e-3)
    assert long.rate(2) == pytest.approx(options.learning_rate, rel=1e-3)
    assert long.rate(1000) == pytest.approx(options.final_learning_rate)
    restarted = long.rate(500, moments_from=500)
    assert restarted == pytest.approx(long.rate(500) / RESTART_WARMUP)


def test_processes_share_the_samples_of_a_step(
    settings: TrainingSettings, chains: ChainSet, split: Split
) -> None:
    tasks = [ChainTask(settings, chains, split, replace(CPU, rank=rank, count=2)) for rank in (0, 1)]
    parts = [[next(plan).first for _ in range(2)] for plan in (task.plan(3) for task in tasks)]
    assert parts == [[12, 16], [14, 18]]
