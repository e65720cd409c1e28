"""Tests of the gradient of a step: clipping of the batch and of micro-batches, on one and two processes."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import model.training.alphafold2.task as task_module
from model.errors import ConfigError
from model.training.data.data import ChainSet, Split
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import OptimizerSettings, TrainingSettings
from model.training.runtime.step import MIN_NORMS
from tests.model.training.runs import chain_trainer
from tests.model.training.runtime.step_gradients import clipping, record_gradients

CPU = TrainingProcesses(0, 1, torch.device("cpu"))


def clipped_mean(gradients: Sequence[torch.Tensor], clip_norm: float) -> torch.Tensor:
    """Return the mean of gradients that are clipped one by one, in float64."""
    total = torch.zeros_like(gradients[0])
    for gradient in gradients:
        total += gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total / len(gradients)


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the norm of the error divided by that of the exact value."""
    return float((value.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_gradient_is_the_mean_of_clipped_gradients(
    settings: TrainingSettings, chains: ChainSet, split: Split, micro_batch: int
) -> None:
    settings = replace(settings, phases=(replace(settings.phases[0], micro_batch=micro_batch),))
    whole = chain_trainer(clipping(settings, "batch"), chains, split, None, CPU)
    gradients = record_gradients(whole)
    list(whole.train(max_steps=1))
    assert len(gradients) == settings.batch // micro_batch
    norms = sorted(float(gradient.norm()) for gradient in gradients)
    # some are clipped and some are not
    clip_norm = (norms[0] + norms[1]) / 2
    assert norms[0] < 0.99 * clip_norm < clip_norm < 0.99 * norms[1]
    trainer = chain_trainer(clipping(settings, "micro_batch", clip_norm), chains, split, None, CPU)
    (report,) = trainer.train(max_steps=1)
    expected = clipped_mean(gradients, clip_norm)
    assert relative_error(trainer.flat.gradients, expected) < 1e-5
    assert report.gradient_norm == pytest.approx(sum(norms) / len(norms), rel=1e-5)


def test_gradient_of_the_batch_is_clipped_by_default(
    settings: TrainingSettings, chains: ChainSet, split: Split
) -> None:
    assert OptimizerSettings().clip_each == "batch"
    whole = chain_trainer(clipping(settings, "batch", 1e9), chains, split, None, CPU)
    (report,) = whole.train(max_steps=1)
    clip_norm = 0.5 * report.gradient_norm
    trainer = chain_trainer(clipping(settings, "batch", clip_norm), chains, split, None, CPU)
    (clipped_report,) = trainer.train(max_steps=1)
    assert clipped_report.gradient_norm == report.gradient_norm
    assert torch.allclose(trainer.flat.gradients, 0.5 * whole.flat.gradients, rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e4])
def test_step_is_skipped_if_one_micro_batch_is_a_spike(
    settings: TrainingSettings,
    chains: ChainSet,
    split: Split,
    monkeypatch: pytest.MonkeyPatch,
    factor: float,
) -> None:
    trainer = chain_trainer(clipping(settings, "micro_batch"), chains, split, None, CPU)
    (report,) = trainer.train(max_steps=1)
    trainer._guard._norms.extend([report.gradient_norm] * MIN_NORMS)
    factors = iter([1.0, factor])
    loss = task_module.total_loss

    def spoiled(*arguments: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        losses, terms = loss(*arguments)  # type: ignore[arg-type]
        return losses * next(factors, 1.0), terms

    monkeypatch.setattr(task_module, "total_loss", spoiled)
    before = trainer.flat.values.clone()
    (spike,) = trainer.train(max_steps=1)
    assert spike.skipped and torch.equal(trainer.flat.values, before)
    (following,) = trainer.train(max_steps=1)
    assert not following.skipped and not torch.equal(trainer.flat.values, before)


def test_unknown_clipping_is_refused(settings: TrainingSettings) -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.clip_each: expected one of batch, micro_batch"):
        clipping(settings, "sample")


TWO_PROCESSES = """
import pickle, sys
import torch
from model.training.runtime.processes import TrainingProcesses
from tests.model.training.runs import chain_trainer
from tests.model.training.runtime.step_gradients import clipping, record_gradients
with open(sys.argv[1], "rb") as stream:
    settings, chains, split = pickle.load(stream)
processes = TrainingProcesses.from_environment("cpu")
torch.set_num_threads(1)
whole = chain_trainer(clipping(settings, "batch"), chains, split, None, processes)
gradients = record_gradients(whole)
next(whole.train())
clipped = chain_trainer(settings, chains, split, None, processes)
report = next(clipped.train())
torch.save((gradients, clipped.flat.gradients, clipped.flat.values, report.gradient_norm),
           f"{sys.argv[2]}-{processes.rank}")
# a limit of time ends a call, and not the next one; all processes know it one step later
assert [len(list(clipped.train(max_seconds=0))) for _ in range(2)] == [2, 2]
processes.close()
"""


@pytest.mark.slow
def test_each_process_clips_its_own_micro_batches(
    settings: TrainingSettings, chains: ChainSet, split: Split, tmp_path: Path, root: Path
) -> None:
    phase = replace(settings.phases[0], micro_batch=1)
    clip_norm = 1.0
    settings = clipping(replace(settings, phases=(phase,)), "micro_batch", clip_norm)
    (tmp_path / "job").write_bytes(pickle.dumps((settings, chains, split)))
    (tmp_path / "script.py").write_text(TWO_PROCESSES)
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(tmp_path / "script.py"), str(tmp_path / "job"), str(tmp_path / "result")]
    subprocess.run(command, check=True, env=environment, cwd=root)
    results = [torch.load(tmp_path / f"result-{rank}") for rank in range(2)]
    recorded = [gradient for gradients, *_ in results for gradient in gradients]
    norms = [float(gradient.norm()) for gradient in recorded]
    assert len(recorded) == settings.batch
    for _, gradient, values, norm in results:
        assert relative_error(gradient, clipped_mean(recorded, clip_norm)) < 1e-5
        assert norm == pytest.approx(sum(norms) / len(norms), rel=1e-5)
        assert torch.equal(values, results[0][2])
