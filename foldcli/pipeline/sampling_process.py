"""Sampling of random features in separate processes: one process is too slow for several GPUs."""

from queue import SimpleQueue

import numpy as np

from features.sampling import SamplingSettings, sample_features
from foldcli.pipeline.cpu_kernels import prepare_features
from foldcli.pipeline.shared_arrays import SharedArrays, share_arrays
from foldcli.pipeline.worker_pool import WorkerPool

# the sample of the last call, kept until the next call, because its memory is freed with it
_last_sample: list[SharedArrays | dict[str, np.ndarray]] = []


class SamplingProcess:
    """A process that samples the random features of jobs."""

    def __init__(self) -> None:
        self._pool = WorkerPool(1, prepare_features)

    def start(self) -> None:
        """Start the process, unless it has been started."""
        self._pool.start()

    def sample(
        self, features: dict[str, np.ndarray], settings: SamplingSettings, num_samples: int, seed: int
    ) -> SharedArrays | dict[str, np.ndarray]:
        """Sample random features into memory that workers can map; see `features.sampling.sample_features`.

        Only one thread may call this.

        Raises:
            ChildProcessError: the process has ended; the next call starts another.
        """
        sample = self._pool.submit(_sample, (features, settings, num_samples, seed)).result()
        if isinstance(sample, SharedArrays):
            sample.keep_open()
        return sample

    def close(self) -> None:
        """End the process after its call."""
        self._pool.close()


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
        self, features: dict[str, np.ndarray], settings: SamplingSettings, num_samples: int, seed: int
    ) -> SharedArrays | dict[str, np.ndarray]:
        """Sample random features in a process that is free; see `SamplingProcess.sample`."""
        process = self._free.get()
        try:
            return process.sample(features, settings, num_samples, seed)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes after their calls."""
        for process in self._processes:
            process.close()


def _sample(
    task: tuple[dict[str, np.ndarray], SamplingSettings, int, int],
) -> SharedArrays | dict[str, np.ndarray]:
    _last_sample.clear()
    _last_sample.append(share_arrays(sample_features(*task)))
    return _last_sample[0]
