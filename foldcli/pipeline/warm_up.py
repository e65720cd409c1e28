"""The preparation of a GPU by passes on a made-up protein, before the first job is ready."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from features.complexes.features import complex_features
from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from model.alphafold import AlphaFold
from msa.io.alignments import parse_alignment


class WarmUpEnded(Exception):
    """The end of a warm-up because the first job is ready, which does the rest itself."""


def warm_up_sample(residues: int, is_multimer: bool) -> Any:
    """Return the network's features of an alignment of two sequences of alanine, for two passes.

    Args:
        residues: length of the sequences.
        is_multimer: whether the network is one of AlphaFold-Multimer, which samples rows itself.
    """
    sequence = b"A" * residues
    alignment = parse_alignment(b">a\n" + sequence + b"\n>b\n" + sequence + b"\n")
    features: dict[str, Any] = make_features([alignment])
    if is_multimer:
        return complex_features([features])
    return sample_features(features, SamplingSettings(), 2, 0)


@contextmanager
def ended_at_blocks(network: AlphaFold, event: Event) -> Iterator[None]:
    """Let passes of a network raise WarmUpEnded at the next block of the trunk once an event is set.

    Graphs are not used meanwhile.
    """

    def check(block: object, inputs: object) -> None:
        if event.is_set():
            raise WarmUpEnded("the first job is ready")

    trunk = network.evoformer
    blocks = [*trunk.extra_msa_stack, *trunk.evoformer_iteration]
    handles = [block.register_forward_pre_hook(check) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
