"""Predict one target with every model and seed."""

import functools
import logging
import platform
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from foldcli.logs import logger
from foldcli.outputs.model_files import ModelResult, Origin, read_result, write_model
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.job_draws import Draw, JobDraws
from foldcli.pipeline.kernel_warmup import compile_kernels
from foldcli.pipeline.network_memory import NetworkMemory, predict_within
from foldcli.pipeline.result_writer import Beside, settled
from foldcli.pipeline.timing import seconds_since_start
from foldcli.progress import Progress
from foldcli.version import VERSION

if TYPE_CHECKING:
    import numpy as np
    import torch

    from model.alphafold import AlphaFold
    from model.recycling import Prediction

Job = tuple[ParameterSource, int]

# AlphaFold2 takes four; their rows come out of max_seq
TEMPLATE_SLOTS = 4


@dataclass(frozen=True)
class PredictSettings:
    """What a prediction depends on, its input and parameters apart.

    Args:
        num_recycle: recycles after the first pass.
        recycle_early_stop_tolerance: Å; recycling ends when the Cα distances change by less. 0: never.
        num_seeds, random_seed: seeds random_seed … random_seed + num_seeds − 1.
        max_seq, max_extra_seq: rows of the clustered and of the extra alignment.
        rank: "auto" is plddt, as ColabFold ranks monomers.
        precision: of the trunk's numbers.
        kernels: implementation of the heavy operations; they round differently.
    """

    num_recycle: int = 3
    recycle_early_stop_tolerance: float = 0.0
    num_seeds: int = 1
    random_seed: int = 0
    max_seq: int = 512
    max_extra_seq: int = 5120
    rank: Literal["auto", "plddt", "ptm"] = "auto"
    precision: Literal["bf16", "fp32"] = "fp32"
    kernels: Literal["fused", "reference"] = "reference"

    @property
    def dtype(self) -> "torch.dtype":
        """Of the trunk's numbers."""
        import torch

        return {"bf16": torch.bfloat16, "fp32": torch.float32}[self.precision]


class Predictor:
    """The networks of one run; each is read when first used and kept.

    Args:
        sources: models in the order in which they run.
        settings: see PredictSettings.
        memory: the device, and what may be taken of it.
        ahead: make the next job's features in a background thread, and write what the last one gave in
            another; the results are the same without.
        arrays: the first source's file, where it is being read already.
    """

    def __init__(
        self,
        sources: list[ParameterSource],
        settings: PredictSettings,
        memory: NetworkMemory,
        ahead: bool = True,
        arrays: "Future[dict[str, np.ndarray]] | None" = None,
    ) -> None:
        self.sources, self.settings, self.memory = sources, settings, memory
        self._arrays = arrays
        self.background = ThreadPoolExecutor(1, "features") if ahead else None
        self.beside = Beside(ahead)
        self._networks: dict[ParameterSource, AlphaFold] = {}

    @property
    def untrained(self) -> bool:
        return any(source.untrained for source in self.sources)

    def network(self, source: ParameterSource) -> "AlphaFold":
        """The network of a parameter file.

        Raises:
            ParametersError: the file lacks a key, has a strange one, or a shape is wrong.
        """
        if source not in self._networks:
            # what was read for the first network is let go with it
            arrays, self._arrays = self._arrays if source == self.sources[0] else None, None
            network = _build(source, self.settings, self.memory.device, arrays)
            if not self._networks and logger.isEnabledFor(logging.DEBUG):
                _tell_of_first_block(network)
            self._networks[source] = network
        return self._networks[source]

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *error: object) -> None:
        """Finish what is predicted, and have the thread of features end what it is at, and nothing more."""
        self.beside.finish()
        if self.background is not None:
            self.background.shutdown(cancel_futures=True)

    def jobs(self) -> list[Job]:
        """What is done for each target: every model with every seed."""
        first = self.settings.random_seed
        seeds = range(first, first + self.settings.num_seeds)
        return [(source, seed) for seed in seeds for source in self.sources]

    def draws(self, features: "dict[str, np.ndarray]", partial: Path) -> JobDraws:
        """What the jobs of a target that are not finished will draw.

        Args:
            features: deterministic features.
            partial: see `run`.
        """
        wanted = [job for job in self.jobs() if read_result(partial, tag_of(job)) is None]
        passes = self.settings.num_recycle + 1
        return JobDraws(features, [self._draw_of(job) for job in wanted], passes, self.background)

    def _draw_of(self, job: Job) -> Draw:
        from features.sampling import SamplingSettings
        from model.config import model_config

        source, seed = job
        slots = TEMPLATE_SLOTS if model_config(source.config_name).template else 0
        return SamplingSettings(self.settings.max_seq, self.settings.max_extra_seq, slots), seed

    def run(
        self,
        name: str,
        draws: JobDraws,
        partial: Path,
        progress: Progress,
        last_job: Callable[[], None],
    ) -> "list[Future[ModelResult]]":
        """Predict a target with all models and seeds.

        Args:
            name: file-safe name.
            draws: from `draws`.
            partial: holds the files of each job; a later call takes them up from there.
            progress: called with passes done and passes in all.
            last_job: called when there is nothing more to draw for this target.

        Returns:
            Of each job what becomes of it once its files are written, which may go on beside the next.

        Raises:
            OSError: the files of a job before the last could not be written.
        """
        jobs = self.jobs()
        passes = self.settings.num_recycle + 1
        partial.mkdir(parents=True, exist_ok=True)
        results: list[Future[ModelResult]] = []
        for i, job in enumerate(jobs):
            tag = tag_of(job)
            if (finished := read_result(partial, tag)) is not None:
                results.append(settled(finished))
                continue
            start = time.perf_counter()
            drawn = draws.take()
            if not draws.left:
                last_job()
            told = partial_progress(progress, i * passes, len(jobs) * passes)
            prediction = self.infer(name, self.network(job[0]), drawn, told)
            del drawn  # before the next draw is begun with, so that there are never three
            seconds = time.perf_counter() - start
            for earlier in results:
                if earlier.done():
                    earlier.result()
            origin = self._origin(name, job, prediction.num_recycles)
            write = functools.partial(write_model, partial, tag, prediction, origin, seconds)
            results.append(self.beside.begin(write))
        progress(len(jobs) * passes, len(jobs) * passes)
        return results

    def _origin(self, name: str, job: Job, recycles: int) -> Origin:
        source, seed = job
        network = f"{source.label}, seed {seed:03d}, {recycles} recycles, {self.settings.precision}"
        return Origin(name, network, source.untrained)

    def infer(
        self, name: str, network: "AlphaFold", drawn: "dict[str, np.ndarray]", progress: Progress
    ) -> "Prediction":
        """Run a network within the memory there is; see `predict_within`."""
        from model.memory_plan import PassSize
        from model.recycling import RecyclingSettings

        if self.memory.device != "cpu" and self.settings.kernels == "fused":
            compile_kernels(network, PassSize.from_features(network, drawn))
        recycling = RecyclingSettings(self.settings.num_recycle, self.settings.recycle_early_stop_tolerance)
        return predict_within(self.memory, name, network, drawn, recycling, progress)


def tag_of(job: Job) -> str:
    """What a job's files have in their names."""
    source, seed = job
    return f"{source.label}_seed_{seed:03d}"


def partial_progress(progress: Progress, before: int, total: int) -> Progress:
    """A callback for one job of several: what it reports comes on top of `before`."""
    return lambda done, _: progress(before + done, total)


def versions() -> dict[str, str]:
    """The versions of what the numbers depend on."""
    from importlib.metadata import version

    names = ("torch", "numpy", "numba")
    return {"foldcli": VERSION, "python": platform.python_version()} | {name: version(name) for name in names}


def _build(
    source: ParameterSource,
    settings: PredictSettings,
    device: str,
    arrays_read: "Future[dict[str, np.ndarray]] | None",
) -> "AlphaFold":
    import torch

    from model.alphafold import AlphaFold
    from model.config import model_config
    from model.parameters import load_npz, random_parameters

    config = model_config(source.config_name)
    if source.file is None:
        arrays = random_parameters(config, seed=source.number)
    elif arrays_read is not None:
        arrays = load_npz(source.file, config, lambda _: arrays_read.result())
    else:
        arrays = load_npz(source.file, config)
    if device != "cpu":
        # Triton launches on the current device; not earlier, because the driver's start is waited for here
        torch.cuda.set_device(device)
    return AlphaFold.from_parameters(config, arrays, device, settings.dtype, settings.kernels)


def _tell_of_first_block(network: "AlphaFold") -> None:
    """Have the first block say when it is through, so that a slow start shows; the GPU is waited for once."""

    def tell(block: object, inputs: object, outputs: "tuple[torch.Tensor, torch.Tensor]") -> None:
        handle.remove()
        outputs[1][0, 0, 0].item()
        logger.debug("the first block was through %.1f s after the start", seconds_since_start())

    handle = network.evoformer.extra_msa_stack[0].register_forward_hook(tell)
