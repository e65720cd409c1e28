"""Calls of the processes that sample random features."""

import numpy as np

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.cache.encoding import decode, encode
from foldcli.pipeline.processes.shared_arrays import SharedArrays, log_copying
from msa.alignments.files import parse_alignment

# the sample of the last call, kept until the next call, because its memory is freed with it
_last_sample: list[SharedArrays] = []


def sample_small_features() -> None:
    """See `sampling_process.prepare_features`."""
    blocks, layout = encode(make_features([parse_alignment(b">a\nAC\n>b\nAG\n>c\nCC\n")]))
    features = decode({name: memoryview(block) for name, block in blocks.items()}, layout)
    sample_features(features, SamplingSettings(max_seq=2, max_extra_seq=1), 1, 0)


def sample(
    features: dict[str, np.ndarray], settings: SamplingSettings, num_samples: int, seed: int
) -> SharedArrays | dict[str, np.ndarray]:
    """Sample random features into memory that other processes can map, if there is room for it."""
    _last_sample.clear()
    try:
        shared = SharedArrays()
        sample_features(features, settings, num_samples, seed, shared.empty)
    except OSError as error:
        log_copying(error)
        return sample_features(features, settings, num_samples, seed)
    _last_sample.append(shared)
    return shared
