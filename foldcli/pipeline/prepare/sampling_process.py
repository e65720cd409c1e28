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

# in the process: the sample of the last call, kept until the next call, because its memory is freed with it
_last_sample: "list[SharedArrays]" = []

Sample: TypeAlias = "SharedArrays | dict[str, np.ndarray]"


def prepare_features() -> None:
    """Make and sample small features, so that numba loads or compiles their kernels."""
    from features.alphafold2.deterministic import make_features  # imports numpy, as the others do
    from features.alphafold2.sampling import SamplingSettings, sample_features
    from msa.alignments.files import parse_alignment

    features = make_features([parse_alignment(b">a\nAC\n>b\nAG\n>c\nCC\n")])
    sample_features(features, SamplingSettings(max_seq=2, max_extra_seq=1), 1, 0)


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
    """Sample random features into memory that other processes can map, if there is room for it."""
    from features.alphafold2.sampling import sample_features  # imports numpy
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
