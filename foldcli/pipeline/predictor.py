"""Predictions of a target with every model and seed."""

import functools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from features.sampling import SamplingSettings, sample_features
from foldcli.logs import logger
from foldcli.outputs.model_files import ModelOrigin, ModelResult, read_model_result, write_model
from foldcli.params.parameters import UNTRAINED, ParameterSource
from foldcli.pipeline.background import Prefetcher, ResultWriter, completed, run_in_background
from foldcli.pipeline.device import (
    NetworkMemory,
    choose_device,
    choose_kernels,
    choose_precision,
    predict_within,
)
from foldcli.pipeline.kernels import KernelCompilation
from foldcli.pipeline.settings import NetworkOptions, PredictSettings
from foldcli.pipeline.startup import Startup
from foldcli.pipeline.target_run import seconds_since_start
from foldcli.progress import Progress
from model.alphafold import AlphaFold
from model.config import model_config
from model.embedders import RECYCLED_BINS, distance_bins
from model.parameters import load_npz, random_parameters
from model.prediction import Prediction
from model.recycling import RecyclingSettings

# one model with one seed
Job: TypeAlias = tuple[ParameterSource, int]
# the rows to sample, and the seed
Sampling: TypeAlias = tuple[SamplingSettings, int]

# AlphaFold2's number of templates; their rows count towards max_seq
TEMPLATE_SLOTS = 4
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def create_predictor(options: NetworkOptions, startup: Startup, threads: int) -> "Predictor":
    """Create the predictor of a run on the device that the options name.

    Args:
        options: options of the network.
        startup: from `foldcli.pipeline.startup.start`.
        threads: CPU threads of torch.

    Raises:
        MissingError: the GPU, its bf16 or the requested kernels do not exist.
    """
    torch.set_num_threads(threads)
    device = choose_device(options.device)
    memory = NetworkMemory(device, options.max_memory)
    memory.limit()
    settings = replace(
        options.predict,
        precision=choose_precision(options.precision, device),
        kernels=choose_kernels(options.kernels, device),
    )
    if any(source.untrained for source in startup.sources):
        logger.warning("%s", UNTRAINED)
    if startup.preload and device != "cpu":
        # takes a while, during which the parameters can be read
        run_in_background(lambda: _load_gpu_libraries(device, _DTYPES[settings.precision]))
    return Predictor(
        startup.sources, settings, memory, arrays=startup.arrays, compilation=startup.compilation
    )


def _load_gpu_libraries(device: str, dtype: torch.dtype) -> None:
    """Make the GPU's libraries load the kernels of the network's first operations."""
    with torch.inference_mode():
        x = torch.ones(256, 64, device=device, dtype=dtype)
        torch.addmm(x[0], x, x[:64])
        distance_bins(torch.zeros(2, 3, device=device), *RECYCLED_BINS)
        x.float() @ x[:64].float()


class FeatureSampler:
    """The random features of one target's jobs, each sampled while the network works on the job before.

    Consecutive jobs with the same sampling, such as models without templates and with one seed, share their
    features. At most one sample is in memory in addition to the one that the network uses.

    Args:
        features: deterministic features of the target.
        samplings: one per job, in order.
        num_passes: passes through the network.
        executor: an executor of one thread; see `Prefetcher`.
    """

    def __init__(
        self,
        features: dict[str, np.ndarray],
        samplings: Sequence[Sampling],
        num_passes: int,
        executor: Executor | None,
    ) -> None:
        self.waited = 0.0
        """Seconds that jobs have waited for their features so far."""
        self._features, self._num_passes = features, num_passes
        self._last: tuple[Sampling, dict[str, np.ndarray]] | None = None
        self._prefetcher = Prefetcher(samplings, self._sample, executor)

    @property
    def remaining(self) -> int:
        """The number of jobs that have not taken their features."""
        return self._prefetcher.remaining

    def sample_first(self) -> None:
        """Sample for the first job in the calling thread, so that the job does not wait."""
        if self._prefetcher.remaining:
            self._prefetcher.prepare_now()

    def take(self) -> dict[str, np.ndarray]:
        """Return the next job's features, and start sampling for the job after it."""
        sample = self._prefetcher.take()
        assert sample is not None
        self.waited += self._prefetcher.waited
        self._prefetcher.start()
        if not self._prefetcher.remaining:
            self._last = None
        return sample

    def _sample(self, sampling: Sampling) -> dict[str, np.ndarray]:
        if self._last is None or self._last[0] != sampling:
            self._last = None  # dropped before the next sample is made, so that there are never three
            settings, seed = sampling
            self._last = sampling, sample_features(self._features, settings, self._num_passes, seed)
        return self._last[1]


class Predictor:
    """The networks of one run; each is loaded when first used, and kept.

    Args:
        sources: models in the order in which they run.
        settings: settings of the predictions.
        memory: the device, and the memory that may be used there.
        background: sample features in one background thread and write results in another; the results are the
            same without threads.
        arrays: future arrays of the first source's file, if it is being read already.
        compilation: future compilation of the kernels, which the first prediction waits for.
    """

    def __init__(
        self,
        sources: list[ParameterSource],
        settings: PredictSettings,
        memory: NetworkMemory,
        background: bool = True,
        arrays: "Future[dict[str, np.ndarray]] | None" = None,
        compilation: "Future[KernelCompilation | None] | None" = None,
    ) -> None:
        self._compilation = compilation
        self.sources, self.settings, self.memory = sources, settings, memory
        self.executor = ThreadPoolExecutor(1, "features") if background else None
        self.writer = ResultWriter(background)
        self._arrays = arrays
        self._networks: dict[ParameterSource, AlphaFold] = {}

    @property
    def untrained(self) -> bool:
        """True if any of the networks is untrained."""
        return any(source.untrained for source in self.sources)

    def network(self, source: ParameterSource) -> AlphaFold:
        """Return the network of a parameter file, loading it at the first call.

        Raises:
            ParametersError: the file lacks a key, has an unknown one, or a shape is wrong.
        """
        if source not in self._networks:
            # the arrays that were read ahead are freed with the first network, whether or not they are used
            arrays, self._arrays = self._arrays if source == self.sources[0] else None, None
            network = _load_network(source, self.settings, self.memory.device, arrays)
            if not self._networks and logger.isEnabledFor(logging.DEBUG):
                _log_first_block(network)
            self._networks[source] = network
        return self._networks[source]

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for the results to be written, and cancel features that nothing will use."""
        self.writer.close()
        if self.executor is not None:
            self.executor.shutdown(cancel_futures=True)

    def jobs(self) -> list[Job]:
        """Return the jobs of each target: every model with every seed."""
        first = self.settings.random_seed
        seeds = range(first, first + self.settings.num_seeds)
        return [(source, seed) for seed in seeds for source in self.sources]

    def create_sampler(self, features: dict[str, np.ndarray], folder: Path) -> FeatureSampler:
        """Create the sampler for the jobs of a target that are not finished.

        Args:
            features: deterministic features.
            folder: see `run`.
        """
        unfinished = [job for job in self.jobs() if read_model_result(folder, job_tag(job)) is None]
        samplings = [self._sampling(job) for job in unfinished]
        return FeatureSampler(features, samplings, self.settings.num_passes, self.executor)

    def _sampling(self, job: Job) -> Sampling:
        source, seed = job
        slots = TEMPLATE_SLOTS if model_config(source.config_name).template else 0
        return SamplingSettings(self.settings.max_seq, self.settings.max_extra_seq, slots), seed

    def run(
        self,
        name: str,
        sampler: FeatureSampler,
        folder: Path,
        progress: Progress,
        on_last_job: Callable[[], None],
    ) -> list[Future[ModelResult]]:
        """Predict a target with all models and seeds.

        Args:
            name: file-safe name of the target.
            sampler: from `create_sampler`.
            folder: folder of the target's unranked models; a later call skips the jobs that it holds.
            progress: called with the finished passes and all passes.
            on_last_job: called when this target needs no more sampling.

        Returns:
            One future result per job; files may still be being written in the background.

        Raises:
            OSError: the files of an earlier job could not be written.
        """
        jobs = self.jobs()
        passes = self.settings.num_passes
        folder.mkdir(parents=True, exist_ok=True)
        results: list[Future[ModelResult]] = []
        for i, job in enumerate(jobs):
            tag = job_tag(job)
            if (finished := read_model_result(folder, tag)) is not None:
                results.append(completed(finished))
                continue
            start = time.perf_counter()
            sample = sampler.take()
            if not sampler.remaining:
                on_last_job()
            job_progress = _offset_progress(progress, i * passes, len(jobs) * passes)
            prediction = self.infer(name, self.network(job[0]), sample, job_progress)
            del sample  # freed before the next sample is made, so that there are never three
            seconds = time.perf_counter() - start
            for earlier in results:
                if earlier.done():
                    earlier.result()
            origin = self._origin(name, job, prediction.num_recycles)
            results.append(
                self.writer.submit(functools.partial(write_model, folder, tag, prediction, origin, seconds))
            )
        progress(len(jobs) * passes, len(jobs) * passes)
        return results

    def _origin(self, name: str, job: Job, num_recycles: int) -> ModelOrigin:
        source, seed = job
        network = f"{source.label}, seed {seed:03d}, {num_recycles} recycles, {self.settings.precision}"
        return ModelOrigin(name, network, source.untrained)

    def infer(
        self, name: str, network: AlphaFold, sample: dict[str, np.ndarray], progress: Progress
    ) -> Prediction:
        """Run a network on sampled features within the available memory; see `predict_within`."""
        if self._compilation is not None:
            compilation, self._compilation = self._compilation.result(), None
            if compilation is not None:
                compilation.wait()
        recycling = RecyclingSettings(self.settings.num_recycles, self.settings.recycle_early_stop_tolerance)
        return predict_within(self.memory, name, network, sample, recycling, progress)


def job_tag(job: Job) -> str:
    """Return the part of a job's file names that identifies its model and seed."""
    source, seed = job
    return f"{source.label}_seed_{seed:03d}"


def _offset_progress(progress: Progress, before: int, total: int) -> Progress:
    """Return a callback for one job of several; adds `before` to what the job reports."""
    return lambda done, _: progress(before + done, total)


def _load_network(
    source: ParameterSource,
    settings: PredictSettings,
    device: str,
    preloaded: "Future[dict[str, np.ndarray]] | None",
) -> AlphaFold:
    config = model_config(source.config_name)
    if source.file is None:
        arrays = random_parameters(config, seed=source.number)
    elif preloaded is not None:
        arrays = load_npz(source.file, config, lambda _: preloaded.result())
    else:
        arrays = load_npz(source.file, config)
    if device != "cpu":
        # Triton launches on the current device; set late, because it waits until the driver has started
        torch.cuda.set_device(device)
    return AlphaFold.from_parameters(config, arrays, device, _DTYPES[settings.precision], settings.kernels)


def _log_first_block(network: AlphaFold) -> None:
    """Log when the network's first block has finished, which shows a slow start; waits once for the GPU."""

    def log(block: object, inputs: object, outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        handle.remove()
        outputs[1][0, 0, 0].item()
        logger.debug("the first block finished %.1f s after the start", seconds_since_start())

    handle = network.evoformer.extra_msa_stack[0].register_forward_hook(log)
