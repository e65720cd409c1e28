"""Sampling of random features in separate processes.

A process that predicts would be slower, because it launches a GPU's kernels from Python; and one process
samples too slowly for several GPUs.
"""

from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from foldcli.pipeline.processes.worker_pool import WorkerPool

# imported by the calls: the command starts the processes before it has imported numpy and numba
if TYPE_CHECKING:
    import numpy as np

    from features.alphafold2.sampling import SamplingSettings
    from foldcli.pipeline.processes.shared_arrays import SharedArrays

Sample: TypeAlias = "SharedArrays | dict[str, np.ndarray]"


def prepare_features() -> None:
    """Make, pack, unpack and sample small features, so that numba loads or compiles their kernels."""
    from foldcli.pipeline.prepare.sampling_calls import sample_small_features

    sample_small_features()


class SamplingProcesses:
    """Processes that sample random features, each for one thread at a time."""

    def __init__(self, count: int) -> None:
        self.pools = [WorkerPool(1, prepare_features) for _ in range(count)]
        self._free: SimpleQueue[WorkerPool] = SimpleQueue()
        for pool in self.pools:
            self._free.put(pool)

    def start(self) -> None:
        """Start the processes, which takes them a while."""
        for pool in self.pools:
            pool.start()

    def sample(
        self, features: "dict[str, np.ndarray]", settings: "SamplingSettings", num_samples: int, seed: int
    ) -> Sample:
        """Sample random features into memory that others can map; see `sampling.sample_features`.

        Raises:
            ChildProcessError: the process has ended; the next call starts another.
        """
        pool = self._free.get()
        try:
            sample = pool.submit(_sample, (features, settings, num_samples, seed)).result()
            if not isinstance(sample, dict):
                # before the process frees it for its next call
                sample.keep_open()
            return sample
        finally:
            self._free.put(pool)

    def terminate(self) -> None:
        """End the processes at once; their calls fail."""
        for pool in self.pools:
            pool.terminate()


def _sample(task: "tuple[dict[str, np.ndarray], SamplingSettings, int, int]") -> Sample:
    from foldcli.pipeline.prepare.sampling_calls import sample

    return sample(*task)
