"""CUDA graphs of training steps give the same results as separate launches."""

from dataclasses import replace

import pytest
import torch

from model.errors import ConfigError
from model.training.data.data import ChainSet, Split
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase, TrainingSettings
from tests.model.training.runs import chain_trainer


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("compile, clip_each", [(False, "batch"), (False, "micro_batch"), (True, "batch")])
def test_captured_steps_equal_eager_steps(
    settings: TrainingSettings, chains: ChainSet, split: Split, compile: bool, clip_each: str
) -> None:
    settings = replace(settings, optimizer=replace(settings.optimizer, clip_each=clip_each))
    # each number of recycles is drawn often enough to be captured in both phases
    phases = (Phase(steps=16, crop=24, micro_batch=2), Phase(steps=16, crop=32, micro_batch=2))
    settings = replace(settings, phases=phases, validate_every=0, compile=compile)
    runs = []
    for cuda_graphs in (False, True):
        processes = TrainingProcesses(0, 1, torch.device("cuda", 0))
        trainer = chain_trainer(replace(settings, cuda_graphs=cuda_graphs), chains, split, None, processes)
        reports = list(trainer.train())
        values = [(report.terms, report.gradient_norm) for report in reports]
        runs.append((values, trainer.flat.values.clone(), trainer.task._graphs))
    (eager_terms, eager_values, no_graphs), (terms, values, graphs) = runs
    assert no_graphs is None and graphs is not None
    assert len(graphs._graphs) == 2 * (settings.max_recycles + 1)
    assert terms == eager_terms
    assert torch.equal(values, eager_values)


def test_cpu_runs_without_graphs(settings: TrainingSettings, chains: ChainSet, split: Split) -> None:
    trainer = chain_trainer(
        replace(settings, cuda_graphs=True), chains, split, None, TrainingProcesses(0, 1, torch.device("cpu"))
    )
    assert trainer.task._graphs is None
    assert len(list(trainer.train(max_steps=1))) == 1


def test_graphs_exclude_recomputed_blocks(settings: TrainingSettings) -> None:
    with pytest.raises(ConfigError, match="checkpoint_blocks"):
        replace(settings, cuda_graphs=True, checkpoint_blocks=True)
