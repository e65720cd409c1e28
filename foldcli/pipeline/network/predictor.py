"""The networks of a run, and the random features that they are run on."""

import atexit
import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any, TypeAlias

import numpy as np
import torch

from features.alphafold2.sampling import SamplingSettings, sample_features
from features.complexes.features import complex_features
from features.templates.template_features import without_side_chains
from foldcli.logs import log_time_since_start, logger
from foldcli.outputs.model_files import ModelOrigin
from foldcli.params.parameters import UNTRAINED, ParameterSource
from foldcli.pipeline.kernels.gpu_kernels import KernelCompilation
from foldcli.pipeline.kernels.warm_up import ended_at_blocks, warm_up_sample
from foldcli.pipeline.network.device import (
    NetworkMemory,
    choose_device,
    set_up_device,
    start_within,
)
from foldcli.pipeline.network.loading import (
    DTYPES,
    load_gpu_libraries,
    load_network,
    recycling_settings,
)
from foldcli.pipeline.network.startup import Startup
from foldcli.pipeline.network.template_copies import TemplateCopier
from foldcli.pipeline.prepare.template_stage import TargetTemplates
from foldcli.pipeline.processes.background import run_in_background
from foldcli.pipeline.targets.identity import Job
from foldcli.pipeline.targets.settings import NetworkOptions, PredictSettings
from foldcli.progress import Progress
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.deepmind import read_arrays
from model.errors import OutOfMemory
from model.parallel.communication import RankGroup
from model.parallel.network import ParallelAlphaFold
from model.planning.memory_plan import CPU_CHUNK_ELEMENTS, MemoryPlan
from model.prediction import Prediction

# the rows to sample, and the seed; None for multimer networks, which sample the rows of each pass themselves
Sampling: TypeAlias = tuple[SamplingSettings, int] | None

# seconds that the end of a process waits for the GPU's preparation
_WARM_UP_GRACE = 5.0
# AlphaFold2's number of templates; their rows count towards max_seq
TEMPLATE_SLOTS = 4


def create_predictor(options: NetworkOptions, startup: Startup, threads: int) -> "Predictor | TemplateCopier":
    """Create the predictor of a run on the device that the options name.

    Args:
        options: options of the network.
        startup: from `foldcli.pipeline.network.startup.start`.
        threads: CPU threads of torch.

    Raises:
        MissingError: the GPU, its bf16 or the requested kernels do not exist.
    """
    if any(source.copies_template for source in startup.sources):
        return TemplateCopier()
    torch.set_num_threads(threads)
    device = choose_device(options.device)
    memory, settings = set_up_device(options, device, options.gpus_per_target)
    if any(source.is_untrained for source in startup.sources):
        logger.warning("%s", UNTRAINED)
    if startup.preload and device != "cpu":
        # takes a while, during which the parameters can be read
        run_in_background(lambda: load_gpu_libraries(device, DTYPES[settings.precision]))
    return Predictor(
        startup.sources, settings, memory, arrays=startup.arrays, compilation=startup.compilation
    )


@dataclass(frozen=True, eq=False)
class NetworkJob:
    """A job with its network and sampled features.

    Args:
        job: the job.
        name: name of its target.
        network: its network.
        sample: sampled features; see `Predictor.sample`.
        recycling: settings of its passes.
        progress: shows the passes.
    """

    job: Job
    name: str
    network: AlphaFold
    sample: dict[str, np.ndarray]
    recycling: RecyclingSettings
    progress: Progress

    def predict(self, chunk_elements: int) -> Prediction:
        """Run the passes in this thread; see `model.alphafold2.recycling.predict`."""
        return predict(self.network, self.sample, self.recycling, self.progress, chunk_elements)


class Predictor:
    """The networks of one run; each is loaded when first used, and kept.

    `stage` is the name of their stage in done.json, and `warm_up_residues` the length of the protein that a
    GPU is prepared with.

    Args:
        sources: models in the order in which they run.
        settings: settings of the predictions.
        memory: the device, and the memory that may be used there.
        arrays: future arrays of the first source's file, if it is being read already.
        compilation: future compilation of the kernels, which predictions wait for.
    """

    stage = "predict"
    warm_up_residues = 256

    def __init__(
        self,
        sources: list[ParameterSource],
        settings: PredictSettings,
        memory: NetworkMemory,
        arrays: "Future[dict[str, np.ndarray]] | None" = None,
        compilation: "Future[KernelCompilation | None] | None" = None,
    ) -> None:
        self._compilation = compilation
        self.sources, self.settings, self.memory = sources, settings, memory
        self._arrays = {} if arrays is None else {sources[0]: arrays}
        self._networks: dict[ParameterSource, AlphaFold] = {}
        self._warm_up: Future[None] | None = None
        self._first_job_is_ready = Event()
        self._started = False

    @property
    def is_untrained(self) -> bool:
        """True if any of the networks is untrained."""
        return any(source.is_untrained for source in self.sources)

    @property
    def template_side_chains(self) -> bool:
        """False if the network was trained without side chains of templates, which are left out then."""
        manifest = self.sources[0].manifest
        return manifest is None or manifest.inputs.template_side_chains

    def describe(self) -> str:
        """Return device, precision and kernels in words."""
        settings = self.settings
        return f"{self.memory.device_name()}, {settings.precision}; {settings.kernels} kernels"

    def uses_templates(self, job: Job) -> bool:
        """Return True if the network of a job takes templates."""
        sampling = self.sampling(job)
        # all multimer networks take templates
        return sampling is None or bool(sampling[0].template_slots)

    def network(self, source: ParameterSource) -> AlphaFold:
        """Return the network of a parameter file, loading it at the first call.

        Raises:
            ParametersError: the file lacks a key, has an unknown one, or a shape is wrong.
        """
        if source not in self._networks:
            arrays = self._arrays.pop(source, None)
            # those of another network are not needed soon
            self._arrays.clear()
            self._networks[source] = load_network(source, self.settings, self.memory.device, arrays)
        return self._networks[source]

    def _read_ahead(self, source: ParameterSource) -> None:
        """Begin to read the file of the network after this one in a thread, unless it has been read."""
        following = dict(pairwise(self.sources)).get(source)
        if following is None or following.file is None:
            return
        if following not in self._networks and following not in self._arrays:
            self._arrays[following] = run_in_background(partial(read_arrays, following.file))

    def warm_up(self, source: ParameterSource) -> None:
        """Begin to prepare a GPU for a network, in a thread; other calls, and those on a CPU, do nothing.

        The first passes of a process load kernels and prepare weights, which takes longer than the passes.
        Errors are ignored here; the first job reports them.

        Args:
            source: the network of the first job.
        """
        if self._warm_up is None and self.memory.device != "cpu":
            self._warm_up = run_in_background(lambda: self._run_passes(source))
            # Python must not end while the thread works on the GPU
            atexit.register(wait, [self._warm_up], _WARM_UP_GRACE)

    def end_warm_up(self) -> None:
        """End `warm_up` soon, if it was called; wait for its end, and log its error."""
        self._first_job_is_ready.set()
        if self._warm_up is not None and (error := self._warm_up.exception()) is not None:
            logger.debug("the GPU was not warmed up: %s", error)

    def _run_passes(self, source: ParameterSource) -> None:
        """Run two passes of a network on a made-up protein."""
        network = self.network(source)
        log_time_since_start("the network is loaded")
        sample = warm_up_sample(self.warm_up_residues, source.is_multimer)
        self.wait_for_kernels()
        self._warm_up_with(source, network, sample)
        log_time_since_start("the GPU is warmed up")

    def _warm_up_with(self, source: ParameterSource, network: AlphaFold, sample: Any) -> None:
        """Run the two passes of the warm-up until the first job is ready."""
        with ended_at_blocks(network, self._first_job_is_ready):
            predict(network, sample, RecyclingSettings(0))
        if not self._first_job_is_ready.is_set():
            # captures and replays graphs
            predict(network, sample, RecyclingSettings(0))

    def sampling(self, job: Job) -> Sampling:
        """Return the sampling of a job's random features; jobs with the same sampling share them."""
        if job.source.is_multimer:
            return None
        rows = self.settings.max_seq, self.settings.max_extra_seq
        if (manifest := job.source.manifest) is not None:
            inputs = manifest.inputs
            sampling = SamplingSettings(*rows, inputs.templates, inputs.masked_fraction, inputs.resample)
            return sampling, job.seed
        slots = TEMPLATE_SLOTS if job.source.config.template else 0
        return SamplingSettings(*rows, slots), job.seed

    def sample(
        self,
        features: dict[str, np.ndarray],
        templates: TargetTemplates | None,
        sampling: Sampling,
        sample: Callable[..., Any] = sample_features,
    ) -> Any:
        """Sample the random features of a job's passes; may be called by any thread.

        Args:
            features: deterministic features of a chain, or for multimer networks also those of a complex.
            templates: templates of a chain; a complex's features contain them.
            sampling: result of `sampling`.
            sample: samples a chain's features, such as in another process.

        Returns:
            The result of `sample`; features as they are if the network samples them.
        """
        if templates is not None:
            template_features = templates.features
            if not self.template_side_chains:
                template_features = without_side_chains(template_features)
            features = features | template_features
        if sampling is None:
            return features if "asym_id" in features else complex_features([features])
        settings, seed = sampling
        return sample(features, settings, self.settings.num_passes, seed)

    def start(
        self, name: str, job: Job, sample: dict[str, np.ndarray], progress: Progress
    ) -> Callable[[], tuple[Prediction, ModelOrigin]]:
        """Start a job on sampled features within the available memory; see `start_within`.

        Returns:
            A function that waits for the prediction, and returns it with what its files say about it; any
            thread may call it, once.
        """
        self.end_warm_up()
        network = self.network(job.source)
        self.wait_for_kernels()
        if not self._started and logger.isEnabledFor(logging.DEBUG):
            _log_first_block(network)
        self._started = True
        recycling = recycling_settings(self.settings, job)
        collect = self._start(NetworkJob(job, name, network, sample, recycling, progress))
        self._read_ahead(job.source)

        def finish() -> tuple[Prediction, ModelOrigin]:
            prediction = collect()
            if self.settings.refine:
                # imports numba, which most networks do not need here
                from model.refinement.refine import refine

                prediction = refine(prediction)
            return prediction, self._origin(name, job, prediction.num_recycles)

        return finish

    def _start(self, work: NetworkJob) -> Callable[[], Prediction]:
        return start_within(self.memory, work.name, work.network, work.sample, work.recycling, work.progress)

    def wait_for_kernels(self) -> None:
        """Wait until the kernels are compiled; may be called by any thread."""
        compilation = None if self._compilation is None else self._compilation.result()
        if compilation is not None:
            compilation.wait()

    def _origin(self, name: str, job: Job, num_recycles: int) -> ModelOrigin:
        network = (
            f"{job.source.label}, seed {job.seed:03d}, {num_recycles} recycles, {self.settings.precision}"
            f"{', refined' if self.settings.refine else ''}"
        )
        return ModelOrigin(name, network, job.source.is_untrained)


class RankPredictor(Predictor):
    """The predictor of one of several ranks, which run the same jobs together.

    Args:
        sources: see `Predictor`.
        settings: see `Predictor`.
        memory: the device of this rank.
        group: the ranks.
        arrays: see `Predictor`.
        compilation: see `Predictor`.
    """

    def __init__(
        self,
        sources: list[ParameterSource],
        settings: PredictSettings,
        memory: NetworkMemory,
        group: RankGroup,
        arrays: "Future[dict[str, np.ndarray]] | None" = None,
        compilation: "Future[KernelCompilation | None] | None" = None,
    ) -> None:
        super().__init__(sources, settings, memory, arrays, compilation)
        self.group = group

    def warm_up(self, source: ParameterSource) -> None:
        """Do nothing, because all ranks run each pass together."""

    def network(self, source: ParameterSource) -> AlphaFold:
        """Return the network of a parameter file, loading it at the first call; see `Predictor.network`."""
        if source not in self._networks:
            self._networks[source] = ParallelAlphaFold(super().network(source), self.group)
        return self._networks[source]

    def _start(self, work: NetworkJob) -> Callable[[], Prediction]:
        plan = self._plan(work)
        chunk_elements = CPU_CHUNK_ELEMENTS if plan is None else plan.chunk_elements
        refused = self.memory.strict and plan is not None and plan.peak_bytes > plan.available_bytes
        # the ranks may have different free memory, but must do the same
        planned = torch.tensor([[chunk_elements, not refused]])
        gathered = self.group.gather(planned, self.group.shards(self.group.size), "plan").wait()
        smallest, fits = gathered.amin(dim=0).tolist()
        if not fits:
            residues = work.sample["aatype"].shape[-1]
            raise OutOfMemory(f"{residues} residues: {plan} of each of several devices")
        prediction = work.predict(smallest)
        return lambda: prediction

    def _plan(self, work: NetworkJob) -> MemoryPlan | None:
        """Return the memory plan of a job on this rank, and log that of rank 0; None on the CPU."""
        plan = self.memory.plan(work.network, work.sample)
        if plan is not None and self.group.rank == 0:
            logger.debug("%s: %s on each of %d devices", work.name, plan, self.memory.ranks)
        return plan


def _log_first_block(network: AlphaFold) -> None:
    """Log when the network's first block has finished, which shows a slow start; waits once for the GPU."""

    def log(block: object, inputs: object, outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        handle.remove()
        outputs[1][0, 0, 0].item()
        log_time_since_start("the first block finished")

    handle = network.evoformer.extra_msa_stack[0].register_forward_hook(log)
