"""Training runs of small networks for tests."""

from pathlib import Path

from model.training.alphafold2.task import ChainTask
from model.training.data.data import ChainSet, Split
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import TrainingSettings
from model.training.runtime.trainer import Trainer


def chain_trainer(
    settings: TrainingSettings,
    chains: ChainSet,
    split: Split,
    run: Path | None,
    processes: TrainingProcesses,
    resume: bool = False,
) -> Trainer:
    """Return a training run on chains."""
    return Trainer(ChainTask(settings, chains, split, processes), run, processes, resume)
