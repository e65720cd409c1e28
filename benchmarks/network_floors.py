"""Lower bounds on the cost of a pass by operation, target times, and measurements of other programs.

For model_3_ptm with masks of all ones. Operations are multiplications and additions.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
from fused_timing import Floors

from model.config import ModelConfig, MsaConfig, PairConfig

ROWS, EXTRA_ROWS = 508, 5120
BYTES = 2

# Seconds and GiB of a pass by residues: alphafold-colabfold 2.3.27 with colabfold-kernels 0.9 (use_pallas),
# model_3_ptm, same MSA rows, bf16, without compilation, one NVIDIA H200. Peaks up to 2,048 residues are upper
# bounds.
COLABFOLD = {
    256: (0.207, 3.5),
    512: (0.572, 7.5),
    1024: (1.866, 17.8),
    2048: (7.75, 47.3),
    2560: (12.85, 38.5),
    3072: (19.6, 54.7),
    4096: (38.8, 90.8),
}
# Seconds of a whole prediction: FastFold on eight A100, as published; ColabFold, four of the passes above.
FASTFOLD = {2560: 133.0, 4096: 548.0}
COLABFOLD_PREDICTION = {2560: 51.0, 4096: 155.0}
# Targets of this network: seconds and GiB of a pass, seconds of a prediction.
PASS_TARGETS = {
    256: (0.14, 3.0),
    512: (0.38, 5.0),
    1024: (1.25, 9.0),
    2048: (5.2, 25.0),
    2560: (8.6, 38.0),
    4096: (26.0, 75.0),
    6144: (float("inf"), 135.0),
}
PREDICTION_TARGETS = {2560: 36.0, 4096: 106.0}


@dataclass
class Cost:
    """Work of one kind of operation in a pass. Bytes count one read and one write of each tensor."""

    operations: float = 0.0
    bytes: float = 0.0
    exponentials: float = 0.0

    def add(self, operations: float, elements: float, exponentials: float = 0.0) -> None:
        """Add the work of one operation; elements are those read and written."""
        self.operations += operations
        self.bytes += BYTES * elements
        self.exponentials += exponentials

    def floors(self, gpu: Floors) -> dict[str, float]:
        """Return lower bounds in milliseconds set by this GPU's memory, matrix products and exponentials."""
        properties = torch.cuda.get_device_properties(0)
        # 16 per clock and multiprocessor; clock_rate is in kHz
        per_ms = 16 * properties.multi_processor_count * properties.clock_rate
        times = gpu.of(self.bytes, self.operations)
        return times | {"exponential floor": self.exponentials / per_ms}


def costs(config: ModelConfig, length: int) -> dict[str, Cost]:
    """Return the costs of a pass by the names of `model.kernels.Kernels`."""
    result: dict[str, Cost] = defaultdict(Cost)
    for stack, rows in ((config.extra_msa, EXTRA_ROWS), (config.evoformer, ROWS)):
        for _ in range(stack.blocks):
            _add_msa(result, stack.msa, stack.pair, rows, length)
            _add_pair(result, stack.pair, length)
    return dict(result)


def _add_attention(
    result: dict[str, Cost], batch: int, length: int, channels: int, heads: int, width: int
) -> None:
    inner, positions = heads * width, batch * length
    operations = 10 * positions * channels * inner + 4 * positions * length * inner
    result["add_attention"].add(operations, 2 * positions * channels, positions * length * heads)


def _add_pair_bias(result: dict[str, Cost], pairs: int, channels: int, heads: int) -> None:
    result["pair_bias"].add(2 * pairs * channels * heads, pairs * (channels + heads))


def _add_msa(result: dict[str, Cost], msa: MsaConfig, pair: PairConfig, rows: int, length: int) -> None:
    positions, pairs = rows * length, length**2
    heads, width, channels = msa.attention_heads, msa.attention_channels, msa.channels
    _add_attention(result, rows, length, channels, heads, width)
    _add_pair_bias(result, pairs, pair.channels, heads)
    if msa.global_column_attention:
        # one query per column: gates and output are most of the work
        operations = 4 * positions * channels * heads * width
        result["global_attention"].add(operations, 2 * positions * channels)
    else:
        _add_attention(result, length, rows, channels, heads, width)
    factor = msa.transition_factor
    result["add_transition"].add(4 * factor * positions * channels**2, 2 * positions * channels)
    outer = msa.outer_channels
    operations = 4 * positions * channels * outer + 2 * pairs * outer**2 * (rows + pair.channels)
    result["add_outer_product_mean"].add(operations, positions * channels + 2 * pairs * pair.channels)


def _add_pair(result: dict[str, Cost], pair: PairConfig, length: int) -> None:
    pairs, channels, inner = length**2, pair.channels, pair.multiplication_channels
    for _ in range(2):
        operations = 2 * pairs * (5 * channels * inner + channels**2) + 2 * pairs * length * inner
        result["add_triangle_multiplication"].add(operations, 2 * pairs * channels)
        _add_pair_bias(result, pairs, channels, pair.attention_heads)
        _add_attention(result, length, length, channels, pair.attention_heads, pair.attention_channels)
    result["add_transition"].add(4 * pair.transition_factor * pairs * channels**2, 2 * pairs * channels)
