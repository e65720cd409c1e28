"""Workers with a tiny network, some of whose targets end their process."""

import os
import signal
from dataclasses import dataclass, replace
from typing import Any

import torch

from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.device import NetworkMemory
from foldcli.pipeline.device_workers import WorkerSettings
from foldcli.pipeline.identity import Job
from foldcli.pipeline.predictor import Predictor
from foldcli.progress import Progress
from model.alphafold import AlphaFold
from model.config import model_config
from model.parameters import random_parameters
from model.prediction import Prediction


class TinyPredictor(Predictor):
    """A predictor with a network of few blocks, which is quickly made."""

    def network(self, source: ParameterSource) -> AlphaFold:
        """Return the network of one model."""
        if source not in self._networks:
            config = model_config(source.config_name).with_blocks(1, 1)
            arrays = random_parameters(config, seed=source.number)
            self._networks[source] = AlphaFold.from_parameters(
                config, arrays, "cpu", torch.float32, "reference"
            )
        return self._networks[source]

    def run(self, name: str, job: Job, sample: dict[str, Any], progress: Progress) -> Prediction:
        """Run the network, unless the target's name requests a fault."""
        if name.startswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("cuda"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if name.startswith("bad"):
            raise MemoryError("for this target")
        return super().run(name, job, sample, progress)


@dataclass(frozen=True)
class TinyWorkerSettings(WorkerSettings):
    """Settings of a worker with a tiny network."""

    def open(self) -> Predictor:
        """Make the predictor in the worker."""
        torch.set_num_threads(1)
        return TinyPredictor(list(self.sources), self.predict, NetworkMemory("cpu"))


def tiny_workers(predictor: Predictor, count: int) -> tuple[WorkerSettings, ...]:
    """Return the settings of workers on the CPU."""
    settings = TinyWorkerSettings(tuple(predictor.sources), predictor.settings, "cpu 0")
    return tuple(replace(settings, device=f"cpu {number}") for number in range(count))
