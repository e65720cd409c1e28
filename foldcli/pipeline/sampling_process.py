"""Sampling of random features in separate processes: one process is too slow for several GPUs."""

import numpy as np

from features.sampling import SamplingSettings, sample_features
from foldcli.pipeline.shared_arrays import SharedArrays, share_arrays
from foldcli.pipeline.worker_pool import WorkerPool

# the sample of the last call, kept until the next call, because its memory is freed with it
_last_sample: list[SharedArrays | dict[str, np.ndarray]] = []


class SamplingProcess:
    """A process that samples the random features of one device's jobs; the first job starts it."""

    def __init__(self) -> None:
        self._pool = WorkerPool(1)

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


def _sample(
    task: tuple[dict[str, np.ndarray], SamplingSettings, int, int],
) -> SharedArrays | dict[str, np.ndarray]:
    _last_sample.clear()
    _last_sample.append(share_arrays(sample_features(*task)))
    return _last_sample[0]
