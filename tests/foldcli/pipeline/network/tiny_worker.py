"""Workers with a tiny network, some of whose targets end their process."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.random_parameters import random_parameters
from foldcli.families.alphafold2_networks import AlphaFold2Network
from foldcli.families.protocols import AnyJob, NetworkJob
from foldcli.families.registry import family_of
from foldcli.families.settings import AlphaFold2Settings, Job
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.device_workers import WorkerSettings
from foldcli.pipeline.network.predictor import PredictedSample, Predictor, RankPredictor
from foldcli.progress import Progress
from model.checkpoints.alphafold2 import build_network
from model.errors import OutOfMemory
from model.parallel.communication import RankGroup

# enough for targets of up to 20 residues on one device, and of 60 on two
MAX_MEMORY = 10 << 20

# targets that have requested the loss of the GPU
lost: list[str] = []


class TinyMemory(NetworkMemory):
    """The memory of a CPU that is planned as that of a GPU, and can be lost."""

    is_planned = True

    def available_bytes(self) -> int:
        """Return the limit."""
        assert self.max_bytes is not None
        return self.max_bytes

    def is_usable(self) -> bool:
        """Return False after a target that requested the loss of the GPU."""
        return not lost


class TinyPredictor(Predictor):
    """A predictor with a network of few blocks, which is quickly made."""

    warm_up_residues = 5

    def network(self, source: ParameterSource) -> AlphaFold2Network:
        """Return the network of one model."""
        if source not in self._networks:
            config = source.config.with_blocks(1, 1)
            arrays = random_parameters(config, seed=source.number)
            model = build_network(config, arrays, "cpu", torch.float32, "reference")
            self._networks[source] = AlphaFold2Network(model, family_of(source).own_settings)
        network: AlphaFold2Network = self._networks[source]
        return network

    def start(
        self, name: str, job: Job, sample: dict[str, Any], progress: Progress
    ) -> Callable[[], tuple[PredictedSample, ...]]:
        """Start the network, unless the target's name requests a fault."""
        if name.startswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("cuda"):
            lost.append(name)
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if name.startswith("bad"):
            raise MemoryError("for this target")
        if name.startswith("scarce") and self.memory.strict:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
        if name.endswith("lost") and isinstance(self, RankPredictor) and self.group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        collect = super().start(name, job, sample, progress)
        if name.startswith("slow"):
            return lambda: (time.sleep(2), collect())[1]
        if name.startswith("late"):

            def fail() -> tuple[PredictedSample, ...]:
                raise RuntimeError("when the result was collected")

            return fail
        return collect


class TinyRankPredictor(RankPredictor, TinyPredictor):
    """One of several predictors that run a tiny network together."""


@dataclass(frozen=True)
class TinyWorkerSettings(WorkerSettings):
    """Settings of a worker with a tiny network."""

    def open(self) -> Predictor:
        """Make the predictor in the worker."""
        torch.set_num_threads(1)
        sources, memory = list(self.sources), self.memory()
        if self.assignment is None:
            return TinyPredictor(sources, self.predict, memory)
        return TinyRankPredictor(sources, self.predict, memory, self.join())

    def memory(self) -> NetworkMemory:
        """Return the memory of the device."""
        own = super().memory()
        return TinyMemory("cpu", MAX_MEMORY, own.ranks, own.strict)


class PlannedNetwork(AlphaFold2Network):
    """A network whose predictions are the parts in which they would run."""

    def predict(self, work: AnyJob, parts: Sequence[int]) -> Any:
        """Return the parts."""
        return parts


def plan_together(limits: list[int], sample: dict[str, Any]) -> Any:
    """Return the parts of a job with these bytes of memory for the ranks, or the error."""
    group, settings = RankGroup(), AlphaFold2Settings(num_recycles=0)
    source = ParameterSource(1, "model_1_ptm", None)
    config = source.config.with_blocks(1, 1)
    network = PlannedNetwork(build_network(config, random_parameters(config)), family_of(source).own_settings)
    memory = TinyMemory("cpu", limits[group.rank], group.size, strict=True)
    predictor = RankPredictor([source], settings, memory, group)
    work = NetworkJob("a", Job(source, 0, "tag"), sample, settings, lambda done, total: None)
    try:
        return predictor._predict_together(network, work)
    except OutOfMemory as error:
        return str(error)


def tiny_workers(predictor: Predictor, count: int) -> tuple[WorkerSettings, ...]:
    """Return the settings of workers on the CPU."""
    settings = TinyWorkerSettings(tuple(predictor.sources), predictor.settings, "cpu:0")
    return tuple(replace(settings, device=f"cpu:{number}") for number in range(count))
