"""How much memory a pass takes on a GPU, and how many rows the heavy operations work on at once.

Counts the tensors that are alive together; whatever grows with less than residues², or less than rows times
residues, is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cuda.fused.chunking import CPU_BUDGET
from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.embedders import EXTRA_MSA_TYPES, MSA_FEATURES, RECYCLED_BINS
from model.graphs import LONGEST
from model.heads import PAE_BINS
from model.kernels import REFERENCE
from model.structure_module import attention_elements
from model.templates import PAIR_FEATURES

GIB = 2**30
# Elements of intermediates alive at once. With fewer than the least a launch is not worth its while; up to
# USUAL more of them fill the GPU better.
LEAST = 2**22
USUAL = 2**29
# what is usual on the CPU, where memory is not planned
ON_CPU = CPU_BUDGET
# of what is free, what fragments and the libraries' own workspaces may take
MARGIN = 0.05


@dataclass(frozen=True)
class PassSize:
    """The sizes of one pass.

    Args:
        residues: N.
        msa_rows: S, template rows included.
        extra_rows: E.
        templates: those that are embedded.
        element_bytes: of the trunk's activations, 2 or 4.
        in_place: whether the kernels add updates without having them in memory, as the fused ones do.
    """

    residues: int
    msa_rows: int
    extra_rows: int
    templates: int = 0
    element_bytes: int = 2
    in_place: bool = True

    @classmethod
    def of(cls, network: AlphaFold, features: Mapping[str, np.ndarray]) -> "PassSize":
        """The size of a network's passes over features with a leading axis of iterations."""
        _, rows, residues, _ = features["msa_feat"].shape
        none = np.zeros((1, 0))
        present = features.get("template_mask", none) if network.config.template else none
        return cls(
            residues,
            rows + present.shape[1],
            features["extra_msa"].shape[1],
            int(present[0].sum()),
            network.evoformer.single_activations.bias.element_size(),
            network.kernels != REFERENCE,
        )


@dataclass(frozen=True)
class MemoryPlan:
    """What was chosen for one length.

    Args:
        chunk_elements: for `cuda.fused.chunking.chunk_budget`.
        peak_bytes: expected at the highest, parameters apart.
        available_bytes: what it was chosen for.
    """

    chunk_elements: int
    peak_bytes: int
    available_bytes: int

    def __str__(self) -> str:
        return (
            f"chunks of {self.chunk_elements / 2**20:.0f} Mi elements, {self.peak_bytes / GIB:.1f} GiB "
            f"expected at the peak, {self.available_bytes / GIB:.1f} GiB free"
        )


def plan_memory(config: ModelConfig, size: PassSize, available_bytes: int) -> MemoryPlan:
    """The largest chunks that are of use and fit.

    Triangle multiplication holds two factors and their product, so chunks that take as much as it are free.
    Where not even the smallest chunks fit, those are planned: the allocator has the last word.

    Args:
        config: the network.
        size: of its passes.
        available_bytes: what the pass may take, parameters apart.
    """
    pair = config.evoformer.pair
    wanted = max(USUAL, 2 * size.residues**2 * pair.multiplication_channels)
    room = int(available_bytes * (1 - MARGIN))
    while wanted > LEAST and peak_bytes(config, size, wanted) > room:
        wanted //= 2
    chunk = max(LEAST, wanted)
    return MemoryPlan(chunk, peak_bytes(config, size, chunk), available_bytes)


def peak_bytes(config: ModelConfig, size: PassSize, chunk_elements: int) -> int:
    """Bytes alive at the highest point of a pass, parameters apart."""
    return _resident(config, size) + max(_steps(config, size, chunk_elements).values())


def _resident(config: ModelConfig, size: PassSize) -> int:
    """What lives through the whole pass: features of this and the next one, both passes' representations.

    Short proteins' blocks are recorded, and then have representations of their own, which are copied.
    """
    length, b = size.residues, size.element_bytes
    features = 4 * MSA_FEATURES * size.msa_rows * length + (8 + 4 + 4) * size.extra_rows * length
    pair = length**2 * config.evoformer.pair.channels * b
    msa = size.msa_rows * length * config.evoformer.msa.channels * b
    extra_msa = size.extra_rows * length * config.extra_msa.msa.channels * b
    recorded = 2 * (extra_msa + msa + 2 * pair) if length <= LONGEST else 0
    return 2 * features + 2 * pair + msa + recorded


def _steps(config: ModelConfig, size: PassSize, chunk_elements: int) -> dict[str, int]:
    """Bytes that each step of a pass has beside what is resident; a chunk is never larger than its whole."""
    length, b, squared = size.residues, size.element_bytes, size.residues**2
    stack, extra, structure = config.evoformer, config.extra_msa, config.structure
    pair = squared * stack.pair.channels * b
    msa = size.msa_rows * length * stack.msa.channels * b
    extra_msa = size.extra_rows * length * extra.msa.channels * b
    update, msa_update, extra_update = (0, 0, 0) if size.in_place else (pair, msa, extra_msa)

    def chunk(rows: int, per_row: int) -> int:
        return min(max(chunk_elements, per_row), rows * per_row) * b

    attention = stack.pair.attention_heads * stack.pair.attention_channels
    row_attention = stack.msa.attention_heads * stack.msa.attention_channels
    extra_attention = extra.msa.attention_heads * extra.msa.attention_channels
    steps = {
        "embedding": pair + squared * RECYCLED_BINS[2] * (4 + b + 3),
        "extra MSA": extra_msa
        + chunk(size.extra_rows, length * (2 * (EXTRA_MSA_TYPES + 2) + extra.msa.channels)),
        "extra row attention": extra_msa
        + extra_update
        + squared * extra.msa.attention_heads * b
        + chunk(size.extra_rows, 5 * length * extra_attention),
        "extra column attention": 2 * extra_msa,
        "extra outer product mean": extra_msa
        + 2 * size.extra_rows * length * extra.msa.outer_channels * b
        + update,
        "row attention": msa_update
        + squared * stack.msa.attention_heads * b
        + chunk(size.msa_rows, 5 * length * row_attention),
        "outer product mean": 2 * size.msa_rows * length * stack.msa.outer_channels * b + update,
        "triangle multiplication": 3 * squared * stack.pair.multiplication_channels * b + update,
        "triangle attention": update
        + squared * stack.pair.attention_heads * b
        + chunk(length, 5 * length * attention),
        "structure module": 4 * squared * (stack.pair.channels + 2 * structure.heads)
        + chunk(length, length * attention_elements(structure) * 4 // b),
    }
    for name in ("triangle multiplication", "triangle attention"):
        steps[f"extra {name}"] = steps[name] + extra_msa
    if config.predicted_aligned_error:
        steps["aligned error"] = 4 * squared + chunk(length, 16 * length * PAE_BINS)
    if config.template is not None and size.templates:
        one = squared * config.template.pair.channels * b
        # one-hot features in float32, the template being embedded, and those that were, in a list and stacked
        steps["templates"] = 4 * 2 * squared * PAIR_FEATURES + 4 * one + 2 * size.templates * one
    return steps
