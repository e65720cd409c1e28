"""Estimates of a pass's GPU memory, and the choice of a chunk size that fits.

The estimate counts the tensors that exist at the same time. Tensors smaller than residues² or
rows × residues are neglected.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cuda.fused.chunking import CPU_BUDGET
from model.alphafold2.modules.config import ModelConfig, MsaConfig, PairConfig, StackConfig
from model.alphafold2.modules.embedders import MSA_FEATURES, extra_msa_elements, recycling_elements
from model.alphafold2.modules.heads import PAE_BINS
from model.alphafold2.modules.point_attention import point_attention_elements
from model.alphafold2.modules.templates import attention_elements, embedding_elements
from model.alphafold2.multimer.inputs import distinct_slots
from model.alphafold2.multimer.templates import GEOMETRY_FEATURES
from model.alphafold2.network import AlphaFold
from model.layers.graphs import MAX_GRAPH_RESIDUES
from model.parallel.communication import Shards, exchange_pieces
from model.parallel.triangle import exchanged_elements
from msa.base.residues import NUM_MASKED_CODES

GIB = 2**30
# Chunk sizes in intermediate elements. Below the minimum, kernel launches take longer than the kernels; the
# default fills any GPU.
MIN_CHUNK_ELEMENTS = 2**22
DEFAULT_CHUNK_ELEMENTS = 2**29
# chunk size on the CPU, where memory is not planned
CPU_CHUNK_ELEMENTS = CPU_BUDGET
# Fraction of the free memory reserved for fragmentation and the libraries' workspaces. With several ranks,
# representations move to new memory in each block, so that more of it is fragmented.
MARGIN, RANKS_MARGIN = 0.05, 0.12


@dataclass(frozen=True)
class PassSize:
    """The sizes that determine the memory of one pass.

    Args:
        residues: number of residues N.
        msa_rows: number of MSA rows S, including template rows.
        extra_rows: number of extra MSA rows E.
        templates: number of templates that are embedded.
        element_bytes: bytes per element of the trunk's activations, 2 or 4.
        in_place: whether the kernels add updates without storing them first; the fused kernels do.
        alignment_rows: number of alignment rows that multimer networks sample from; 0 for others.
        ranks: number of devices that a pass is divided among (`model.parallel`).
        graphs: whether blocks of short proteins are replayed as CUDA graphs.
    """

    residues: int
    msa_rows: int
    extra_rows: int
    templates: int = 0
    element_bytes: int = 2
    in_place: bool = True
    alignment_rows: int = 0
    ranks: int = 1
    graphs: bool = True

    def per_rank(self, count: int) -> int:
        """Return the largest number of elements that a rank has of an axis of `count` elements."""
        return Shards(count, self.ranks).max_count

    @property
    def uses_graphs(self) -> bool:
        """True if blocks are replayed as CUDA graphs on GPUs."""
        if not self.graphs:
            return False
        if self.ranks == 1:
            return self.residues <= MAX_GRAPH_RESIDUES
        return exchange_pieces(self.residues, self.ranks) == 1

    @classmethod
    def from_features(
        cls, network: AlphaFold, features: Mapping[str, np.ndarray], ranks: int = 1
    ) -> "PassSize":
        """Return the sizes of a network's passes, given the features that `recycling.predict` takes."""
        shared: dict[str, Any] = {
            "element_bytes": network.evoformer.single_activations.bias.element_size(),
            "in_place": network.kernels.fused,
            "ranks": ranks,
        }
        if (multimer := network.config.multimer) is not None:
            alignment, residues = features["msa"].shape
            slots, _ = distinct_slots(features)
            rows = min(alignment, multimer.msa_rows)
            template_rows = int(features["template_all_atom_mask"].any(axis=(1, 2)).sum())
            extra_rows = max(1, min(alignment - rows, multimer.extra_rows))
            sizes = (residues, rows + template_rows, extra_rows, len(slots))
            return cls(*sizes, alignment_rows=alignment, **shared)
        _, rows, residues, _ = features["msa_feat"].shape
        masks = features if network.config.template else {}
        template_mask = masks.get("template_mask", np.zeros((1, 0)))
        extra_rows, templates = features["extra_msa"].shape[1], int(template_mask[0].sum())
        return cls(residues, rows + template_mask.shape[1], extra_rows, templates, **shared)


@dataclass(frozen=True)
class MemoryPlan:
    """The chunk size for a pass, and the memory that the pass is expected to need.

    Args:
        chunk_elements: argument of `cuda.fused.chunking.chunk_budget`.
        peak_bytes: expected peak memory without parameters.
        available_bytes: free memory that the plan is based on.
        graphs: whether several ranks may use CUDA graphs.
    """

    chunk_elements: int
    peak_bytes: int
    available_bytes: int
    graphs: bool = True

    def __str__(self) -> str:
        return (
            f"chunks of {self.chunk_elements / 2**20:.0f} Mi elements, {self.peak_bytes / GIB:.1f} GiB "
            f"expected at the peak, {self.available_bytes / GIB:.1f} GiB free"
        )


def plan_memory(config: ModelConfig, size: PassSize, available_bytes: int) -> MemoryPlan:
    """Choose the largest useful chunk size that fits into memory, of which `available_bytes` are free.

    Triangle multiplication stores two factors of the pair representation's size in any case, so chunks as
    large as both do not raise the peak. Several ranks use CUDA graphs if these fit with such chunks. If even
    the smallest chunks do not fit, the plan uses them anyway: the estimate may be too high, and otherwise the
    allocator reports the failure.
    """
    pair = config.evoformer.pair
    factors = 2 * size.per_rank(size.residues) * size.residues * pair.multiplication_channels
    chunk = max(DEFAULT_CHUNK_ELEMENTS, factors)
    limit = usable_bytes(size, available_bytes)
    if size.ranks > 1 and estimate_peak_bytes(config, size, chunk) > limit:
        size = replace(size, graphs=False)
    while chunk > MIN_CHUNK_ELEMENTS and estimate_peak_bytes(config, size, chunk) > limit:
        chunk //= 2
    chunk = max(MIN_CHUNK_ELEMENTS, chunk)
    return MemoryPlan(chunk, estimate_peak_bytes(config, size, chunk), available_bytes, size.graphs)


def usable_bytes(size: PassSize, available_bytes: int) -> int:
    """Return the part of the available memory that the tensors of a pass may occupy."""
    return int(available_bytes * (1 - (MARGIN if size.ranks == 1 else RANKS_MARGIN)))


def estimate_peak_bytes(config: ModelConfig, size: PassSize, chunk_elements: int) -> int:
    """Estimate the peak memory of a pass in bytes, without parameters."""
    largest_step = max(_step_bytes(config, size, chunk_elements).values())
    # graphs keep the memory of a block from other steps, which matters for the lengths of several ranks
    steps = 2 if size.ranks > 1 and size.uses_graphs else 1
    return _resident_bytes(config, size) + steps * largest_step


def _resident_bytes(config: ModelConfig, size: PassSize) -> int:
    """Return the bytes of the tensors that exist during the whole pass.

    These are the features of this and the next pass, the representations, and, for short proteins, the copies
    of the representations that CUDA graphs work on.
    """
    length, itemsize = size.residues, size.element_bytes
    features = 4 * MSA_FEATURES * size.msa_rows * length + (8 + 4 + 4) * size.extra_rows * length
    # int8 codes, float32 deletions and mask
    alignment = (1 + 4 + 4) * size.alignment_rows * length
    pair = size.per_rank(length) * length * config.evoformer.pair.channels * itemsize
    msa = size.per_rank(size.msa_rows) * length * config.evoformer.msa.channels * itemsize
    extra_msa = size.per_rank(size.extra_rows) * length * config.extra_msa.msa.channels * itemsize
    graphs = 2 * (extra_msa + msa + 2 * pair) if size.uses_graphs else 0
    return 2 * features + alignment + pair + msa + graphs


def _step_bytes(config: ModelConfig, size: PassSize, chunk_elements: int) -> dict[str, int]:
    """Return the bytes that each step of a pass needs in addition to the resident tensors.

    With several ranks these are the bytes of one rank.
    """
    length, itemsize = size.residues, size.element_bytes
    rows, extra_rows = size.per_rank(length), size.per_rank(size.extra_rows)
    stack, extra, structure = config.evoformer, config.extra_msa, config.structure
    pair = rows * length * stack.pair.channels * itemsize
    msa = size.per_rank(size.msa_rows) * length * stack.msa.channels * itemsize
    extra_msa = extra_rows * length * extra.msa.channels * itemsize

    def chunk(rows: int, per_row: int) -> int:
        """Return the bytes of one chunk: at least one row, at most all rows."""
        return min(max(chunk_elements, per_row), rows * per_row) * itemsize

    extra_attention = extra.msa.attention_heads * extra.msa.attention_channels
    extra_steps = {
        "MSA": chunk(extra_rows, length * extra_msa_elements(extra.msa.channels)),
        "column attention": extra_msa
        + chunk(rows, 4 * size.extra_rows * (2 * extra.msa.channels + 3 * extra_attention)) // 4,
        **_stack_step_bytes(extra, size, size.extra_rows, chunk),
    }
    steps = {
        # the previous pass's pair representation
        "embedding": pair + chunk(rows, length * recycling_elements(stack.pair.channels)),
        "structure module": 4 * rows * length * (stack.pair.channels + 2 * structure.heads)
        + chunk(rows, length * point_attention_elements(structure) * 4 // itemsize),
        **_stack_step_bytes(stack, size, size.msa_rows, chunk),
        **{f"extra {name}": extra_msa + step for name, step in extra_steps.items()},
    }
    if size.ranks > 1:
        # rows, columns, and parts of them that are sent or received
        exchanges = {"extra exchange": 3 * extra_msa, "MSA exchange": 2 * msa}
        steps |= {name: 2 * pair + step for name, step in exchanges.items()}
    steps |= _score_step_bytes(config, size, chunk)
    steps |= _template_step_bytes(config, size, chunk)
    if config.multimer is not None:
        steps["sampling"] = _sampling_bytes(size, chunk)
    return steps


def _stack_step_bytes(
    stack: StackConfig, size: PassSize, num_rows: int, chunk: Callable[[int, int], int]
) -> dict[str, int]:
    """Return the bytes of the steps of a stack with MSA rows; see `_template_step_bytes`."""
    length, itemsize = size.residues, size.element_bytes
    rows, msa_rows = size.per_rank(length), size.per_rank(num_rows)
    pair = rows * length * stack.pair.channels * itemsize
    multiplication = stack.pair.multiplication_channels
    multiplied = 3 * rows * length * multiplication + exchanged_elements(size.ranks, length, multiplication)
    update = 0 if size.in_place else pair
    msa_update = 0 if size.in_place else msa_rows * length * stack.msa.channels * itemsize
    # residues whose factors a rank receives
    gathered = 0 if size.ranks == 1 else length - rows

    def attention(rows: int, module: MsaConfig | PairConfig) -> int:
        """Return the bytes of attention along rows with a pair bias, which fused kernels copy."""
        bias = length**2 * module.attention_heads * itemsize * (2 if size.in_place else 1)
        # columns of pairs, and parts of rows or columns that are sent or received
        pair_columns = 0 if size.ranks == 1 else 2 * pair
        channels = module.attention_heads * module.attention_channels
        return bias + pair_columns + chunk(rows, 5 * length * channels)

    return {
        "row attention": msa_update + attention(msa_rows, stack.msa),
        "outer product mean": update + (2 * rows + gathered) * num_rows * stack.msa.outer_channels * itemsize,
        "triangle multiplication": update + multiplied * itemsize,
        "triangle attention": update + attention(rows, stack.pair),
    }


def _sampling_bytes(size: PassSize, chunk: Callable[[int, int], int]) -> int:
    """Return the bytes that a multimer network needs to sample rows; see `_template_step_bytes`."""
    others = max(0, size.alignment_rows - size.msa_rows)
    # codes and profiles of the sampled rows; int8 codes, deletions and masks of the others
    rows_bytes = (4 * 2 * NUM_MASKED_CODES * size.msa_rows + 9 * others) * size.residues
    # all of it is float32
    return rows_bytes + chunk(others, 2 * (size.residues + size.msa_rows)) * 4 // size.element_bytes


def _score_step_bytes(
    config: ModelConfig, size: PassSize, chunk: Callable[[int, int], int]
) -> dict[str, int]:
    """Return the bytes of the steps that score pairs of residues; see `_template_step_bytes`."""
    if not config.predicted_aligned_error:
        return {}
    length, squared = size.residues, size.residues**2
    per_row = 16 * length * PAE_BINS
    steps = {"aligned error": 4 * squared + chunk(size.per_rank(length), per_row)}
    if config.multimer is not None:
        # a second copy of the PAE, and the pair representation of all ranks
        pair_bytes = squared * config.evoformer.pair.channels * size.element_bytes
        whole_pair = 0 if size.ranks == 1 else pair_bytes
        steps["complex scores"] = 2 * 4 * squared + whole_pair + chunk(length, per_row)
    return steps


def _template_step_bytes(
    config: ModelConfig, size: PassSize, chunk: Callable[[int, int], int]
) -> dict[str, int]:
    """Return the bytes of the steps that embed templates; see `_step_bytes`.

    `chunk` returns the bytes of one chunk, given the number of rows and the elements per row.
    """
    if config.template is None or not size.templates:
        return {}
    pair, template = config.evoformer.pair, config.template.pair
    rows = size.per_rank(size.residues)
    positions = rows * size.residues
    template_pair = positions * template.channels * size.element_bytes
    multiplication = 3 * positions * template.multiplication_channels * size.element_bytes
    if config.multimer is None:
        embedded, attention = size.templates * template_pair, config.template
        exchanges = 0
        if size.ranks > 1:
            exchanged = exchanged_elements(size.ranks, size.residues, template.multiplication_channels)
            exchanges = 2 * template_pair + exchanged * size.element_bytes
        channels = template.attention_heads * template.attention_channels
        bias = size.residues**2 * template.attention_heads * size.element_bytes
        pointwise = attention_elements(
            size.templates, template.channels, attention.attention_heads * attention.attention_channels
        )
        return {
            "template features": embedded
            + chunk(rows, size.residues * embedding_elements(template.channels)),
            "template multiplication": embedded + multiplication + exchanges,
            "template triangle attention": embedded
            + exchanges
            + bias
            + chunk(rows, 5 * size.residues * channels),
            "template attention": embedded
            + positions * pair.channels * size.element_bytes
            + chunk(rows, size.residues * pointwise),
        }
    features = 3 * template.channels + 2 * pair.channels + 6 * GEOMETRY_FEATURES
    # the mean over templates, the template being embedded, and the intermediates of embedding it
    embedding = max(multiplication, chunk(rows, size.residues * features))
    return {
        "templates": 2 * template_pair + embedding,
        "template output": template_pair + positions * pair.channels * size.element_bytes,
    }
