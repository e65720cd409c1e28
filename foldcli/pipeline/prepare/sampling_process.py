"""Sampling of random features in separate processes.

A process that predicts would be slower, because it launches a GPU's kernels from Python; and one process
samples too slowly for several GPUs.
"""

from concurrent.futures import wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from foldcli.pipeline.processes.background import run_concurrently
from foldcli.pipeline.processes.worker_pool import WorkerPool

# imported by the calls: the command starts the processes before it has imported numpy and numba
if TYPE_CHECKING:
    import numpy as np

    from features.alphafold2.sampling import SamplingSettings
    from foldcli.pipeline.processes.shared_arrays import SharedArrays

Sample: TypeAlias = "SharedArrays | dict[str, np.ndarray]"

# the sample of the last call, kept until the next call, because its memory is freed with it
_last_sample: "list[SharedArrays]" = []


def prepare_features() -> None:
    """Make, pack, unpack and sample small features, so that numba loads or compiles their kernels."""
    from features.alphafold2.deterministic import make_features
    from features.alphafold2.sampling import SamplingSettings, sample_features
    from features.cache.encoding import decode, encode
    from msa.alignments.files import parse_alignment

    blocks, layout = encode(make_features([parse_alignment(b">a\nAC\n>b\nAG\n>c\nCC\n")]))
    features = decode({name: memoryview(block) for name, block in blocks.items()}, layout)
    sample_features(features, SamplingSettings(max_seq=2, max_extra_seq=1), 1, 0)


class SamplingProcess:
    """A process that samples the random features of jobs."""

    def __init__(self) -> None:
        self._pool = WorkerPool(1, prepare_features)

    def start(self) -> None:
        """Start the process, unless it has been started."""
        self._pool.start()

    def sample(
        self, features: "dict[str, np.ndarray]", settings: "SamplingSettings", num_samples: int, seed: int
    ) -> Sample:
        """Sample random features into memory that others can map; see `sampling.sample_features`.

        Only one thread may call this.

        Raises:
            ChildProcessError: the process has ended; the next call starts another.
        """
        sample = self._pool.submit(_sample, (features, settings, num_samples, seed)).result()
        if not isinstance(sample, dict):
            sample.keep_open()
        return sample

    def terminate(self) -> None:
        """End the process at once."""
        self._pool.terminate()


class SamplingProcesses:
    """Processes that sample random features, each for one thread at a time.

    Args:
        count: number of processes.
    """

    def __init__(self, count: int) -> None:
        self._processes = [SamplingProcess() for _ in range(count)]
        self._free: SimpleQueue[SamplingProcess] = SimpleQueue()
        for process in self._processes:
            self._free.put(process)

    def start(self) -> None:
        """Start the processes, which takes them a while."""
        for process in self._processes:
            process.start()

    def sample(
        self, features: "dict[str, np.ndarray]", settings: "SamplingSettings", num_samples: int, seed: int
    ) -> Sample:
        """Sample random features in a process that is free; see `SamplingProcess.sample`."""
        process = self._free.get()
        try:
            return process.sample(features, settings, num_samples, seed)
        finally:
            self._free.put(process)

    def terminate(self) -> None:
        """End the processes at once; their calls fail."""
        wait(run_concurrently([process.terminate for process in self._processes], len(self._processes)))


def _sample(task: "tuple[dict[str, np.ndarray], SamplingSettings, int, int]") -> Sample:
    from features.alphafold2.sampling import sample_features
    from foldcli.pipeline.processes.shared_arrays import SharedArrays, log_copying

    _last_sample.clear()
    try:
        shared = SharedArrays()
        sample_features(*task, shared.empty)
    except OSError as error:
        log_copying(error)
        return sample_features(*task)
    _last_sample.append(shared)
    return shared
