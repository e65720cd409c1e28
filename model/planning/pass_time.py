"""The time of a pass: operations of its matrix products, the speed of a CPU, and measured seconds."""

import math
import time
from collections.abc import Sequence
from functools import cache

import torch

from model.alphafold2.modules.config import ModelConfig, StackConfig
from model.planning.memory_plan import PassSize

_MATRIX_SIZE, _MATRIX_PRODUCTS = 1024, 5


@cache
def measure_matrix_products() -> float:
    """Return the floating-point operations per second of this CPU's matrix products, with torch's threads."""
    matrix = torch.ones(_MATRIX_SIZE, _MATRIX_SIZE)
    best = math.inf
    for _ in range(_MATRIX_PRODUCTS):
        start = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - start)
    return 2 * _MATRIX_SIZE**3 / best


def pass_operations(config: ModelConfig, size: PassSize) -> int:
    """Return the floating-point operations of the matrix products in both stacks of a pass."""
    stacks = (config.evoformer, size.msa_rows), (config.extra_msa, size.extra_rows)
    return sum(
        stack.blocks * (_msa_operations(stack, rows, size.residues) + _pair_operations(stack, size.residues))
        for stack, rows in stacks
    )


def _msa_operations(stack: StackConfig, rows: int, residues: int) -> int:
    """Return the operations of the MSA half of a block: attention, transition and outer product mean."""
    msa, positions = stack.msa, rows * residues
    width = msa.attention_heads * msa.attention_channels
    # queries, keys, values, gates and output; scores and sums; global attention has one query per column
    row_attention = 10 * positions * msa.channels * width + 4 * positions * residues * width
    projections = 6 if msa.global_column_attention else 10
    column_attention = projections * positions * msa.channels * width
    if not msa.global_column_attention:
        column_attention += 4 * positions * rows * width
    transition = 4 * msa.transition_factor * positions * msa.channels**2
    outer = residues**2 * msa.outer_channels**2 * 2 * (rows + stack.pair.channels)
    return row_attention + column_attention + transition + outer


def _pair_operations(stack: StackConfig, residues: int) -> int:
    """Return the operations of the pair half of a block: triangle updates and the transition."""
    pair, pairs = stack.pair, residues**2
    product, width = pair.multiplication_channels, pair.attention_heads * pair.attention_channels
    # two gated factors, output and its gate; the product over the third residue
    multiplication = (
        2 * pairs * pair.channels * (5 * product + pair.channels) + 2 * pairs * residues * product
    )
    attention = 10 * pairs * pair.channels * width + 4 * pairs * residues * width
    transition = 4 * pair.transition_factor * pairs * pair.channels**2
    return 2 * (multiplication + attention) + transition


def interpolate_seconds(measured: Sequence[tuple[int, float]], size: int) -> float | None:
    """Return seconds for a size, between measured ones on logarithmic scales; None beyond the largest.

    Measured sizes ascend; smaller ones take as long as the smallest.
    """
    if size > measured[-1][0]:
        return None
    if size <= measured[0][0]:
        return measured[0][1]
    index = next(i for i, (length, _) in enumerate(measured) if length >= size)
    (shorter, low), (longer, high) = measured[index - 1], measured[index]
    fraction = math.log(size / shorter) / math.log(longer / shorter)
    return math.exp(math.log(low) + fraction * math.log(high / low))
