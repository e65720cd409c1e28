"""The networks of a run."""

import atexit
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np

from foldcli.families.base import AnyFamily
from foldcli.families.protocols import AnyJob, Network, NetworkJob, SharedNetwork
from foldcli.families.registry import family_of
from foldcli.families.settings import Job, JobSettings, Source
from foldcli.logs import log_time_since_start, logger
from foldcli.outputs.model_files import ModelOrigin
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.kernels import KernelCompilation
from foldcli.pipeline.processes.background import run_in_background
from foldcli.progress import Progress
from model.errors import OutOfMemory
from model.parallel.communication import RankGroup
from model.prediction import Prediction

# seconds that the end of a process waits for the GPU's preparation
_WARM_UP_GRACE = 5.0


@dataclass(frozen=True)
class PredictedSample:
    """One of the models that a job gives."""

    tag: str
    prediction: Prediction
    origin: ModelOrigin


class Predictor:
    """The networks of one run; each is loaded when first used, and kept.

    `warm_up_residues` is the size of the target that a GPU is prepared with.

    Args:
        sources: models in the order in which they run.
        memory: the device, and the memory that may be used there.
        arrays: future arrays of the first source's file, if it is being read already.
        compilation: future compilation of the kernels, which predictions wait for.
    """

    warm_up_residues = 256

    def __init__(
        self,
        sources: Sequence[Source],
        settings: JobSettings,
        memory: NetworkMemory,
        arrays: "Future[object] | None" = None,
        compilation: "Future[KernelCompilation | None] | None" = None,
        networks: dict[Source, Network] | None = None,
    ) -> None:
        self._compilation = compilation
        self.sources, self.settings, self.memory = list(sources), settings, memory
        self._arrays = {} if arrays is None else {sources[0]: arrays}
        self._networks: dict[Source, Network] = {} if networks is None else networks
        self._warm_up: Future[None] | None = None
        self._has_jobs = False

    @property
    def family(self) -> AnyFamily:
        """The family of the first model."""
        return family_of(self.sources[0])

    @property
    def is_untrained(self) -> bool:
        """True if any of the networks is untrained."""
        return any(source.is_untrained for source in self.sources)

    def network(self, source: Source) -> Network:
        """Return the network of a model (`foldcli.families.protocols.Network`), loading it at the first call.

        Raises:
            ParametersError: the file lacks a key, has an unknown one, or a shape is wrong.
        """
        if source not in self._networks:
            arrays = self._arrays.pop(source, None)
            # arrays that were read ahead for another network would stay in memory
            self._arrays.clear()
            device = self.memory.device
            self._networks[source] = family_of(source).load(source, self.settings, device, arrays)
        return self._networks[source]

    def _read_ahead(self, source: Source) -> None:
        """Begin to read the file of the network after this one in a thread, unless it has been read."""
        following = dict(pairwise(self.sources)).get(source)
        if following is None or following.file is None:
            return
        if following not in self._networks and following not in self._arrays:
            read_file = family_of(following).read_file
            self._arrays[following] = run_in_background(partial(read_file, following))

    def warm_up(self, source: Source) -> None:
        """Begin to load a network and to prepare a GPU for it, in a thread; other calls do nothing.

        The first passes of a process load kernels and prepare weights, which takes longer than the passes.
        The first job does this itself if it need not wait for its features. On a CPU, nothing is prepared.
        Errors are ignored here; the first job reports them.
        """
        if self._warm_up is None and self.memory.device != "cpu":
            self._warm_up = run_in_background(lambda: self._run_passes(source))
            # Python must not end while the thread works on the GPU
            atexit.register(wait, [self._warm_up], _WARM_UP_GRACE)

    def end_warm_up(self) -> None:
        """Wait for the end of `warm_up`, if it was called, and log its error."""
        if self._warm_up is not None and (error := self._warm_up.exception()) is not None:
            logger.debug("the GPU was not warmed up: %s", error)

    def _run_passes(self, source: Source) -> None:
        """Run passes of a network on a made-up target, until there is a job."""
        network = self.network(source)
        log_time_since_start("the network is loaded")
        self.wait_for_kernels()
        for _ in range(2):  # the second one captures and replays graphs
            if self._has_jobs:
                return
            network.warm_up(self.warm_up_residues)
        log_time_since_start("the GPU is warmed up")

    def start(
        self, name: str, job: Job, sample: object, progress: Progress
    ) -> Callable[[], tuple[PredictedSample, ...]]:
        """Start a job within the available memory; see `foldcli.families.protocols.Network.start`.

        Returns:
            A function that waits for the models and returns them; any thread may call it, once.
        """
        self._has_jobs = True
        self.end_warm_up()
        network, family = self.network(job.source), family_of(job.source)
        self.wait_for_kernels()
        collect = network.start(NetworkJob(name, job, sample, self.settings, progress), self.memory)
        self._read_ahead(job.source)

        def finish() -> tuple[PredictedSample, ...]:
            return tuple(
                PredictedSample(tag, model, family.origin(name, job, sample, model, self.settings))
                for tag, model in zip(job.tags, collect(), strict=True)
            )

        return finish

    def wait_for_kernels(self) -> None:
        """Wait until the kernels are compiled; may be called by any thread."""
        compilation = None if self._compilation is None else self._compilation.result()
        if compilation is not None:
            compilation.wait()


class RankPredictor(Predictor):
    """The predictor of one of several ranks, which run the same jobs together; see `Predictor`."""

    def __init__(
        self,
        sources: Sequence[Source],
        settings: JobSettings,
        memory: NetworkMemory,
        group: RankGroup,
        arrays: "Future[object] | None" = None,
        compilation: "Future[KernelCompilation | None] | None" = None,
    ) -> None:
        super().__init__(sources, settings, memory, arrays, compilation)
        self.group = group

    def warm_up(self, source: Source) -> None:
        """Do nothing, because all ranks run each pass together."""

    def network(self, source: Source) -> SharedNetwork:
        """Return the network of a model, loading it at the first call; see `Predictor.network`."""
        if source not in self._networks:
            network = cast(SharedNetwork, super().network(source))
            self._networks[source] = network.shared(self.group, self._predict_together)
        return cast(SharedNetwork, self._networks[source])

    def predict_received(self, job: Job, arrays: dict[str, np.ndarray]) -> None:
        """Take part in a job of rank 0, given the arrays of its sample."""
        work = NetworkJob("", job, arrays, self.settings, lambda done, total: None)
        self._predict_together(self.network(job.source), work)

    def _predict_together(self, network: SharedNetwork, work: AnyJob) -> object:
        """Run a job on all ranks; see `SharedNetwork.shared`.

        Raises:
            OutOfMemory: the job does not fit into the memory of a rank; raised on all of them.
        """
        plan = network.plan_parts(work, self.memory)
        # the ranks may have different free memory, but must do the same
        *parts, fits = self.group.least([*plan.parts, plan.fits])
        if not fits:
            raise OutOfMemory(f"{plan.text} of each of several devices")
        if self.group.rank == 0:
            logger.debug("%s: %s on each of %d devices", work.name, plan.text, self.memory.ranks)
        return network.predict(work, parts)
