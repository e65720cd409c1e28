"""Estimates for `fold --dry-run` and `predict --dry-run`: memory as planned, seconds as measured.

On a GPU, seconds are unknown unless something comparable was measured: the same kind of GPU, precision and
kernels, and at least as many residues and alignment rows. On a CPU, they are a rough estimate: the operations
of a pass, at a share of the speed of matrix products that is measured first.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

import torch

from foldcli.families.base import Estimate, PlanHeading
from foldcli.families.protocols import DeviceMemory
from foldcli.families.settings import PredictSettings
from foldcli.params.parameters import ParameterSource
from foldcli.units import format_count
from model.alphafold2.modules.config import ModelConfig, StackConfig
from model.checkpoints.alphafold2 import expected_shapes
from model.planning.memory_plan import CPU_CHUNK_ELEMENTS, PassSize, estimate_peak_bytes, plan_memory

# GPU → (residues, seconds) of one pass of 48 blocks in bfloat16 with fused kernels and 508 + 5,120 rows, as
# measured by benchmarks/network_pass.py (docs/performance.md)
SECONDS_PER_PASS = {
    "NVIDIA H200": ((256, 0.111), (512, 0.294), (1024, 1.044), (2048, 4.518), (2560, 7.620), (4096, 24.94)),
}
_MEASURED_BLOCKS, _MEASURED_ROWS, _MEASURED_EXTRA_ROWS = 48, 512, 5120
_ELEMENT_BYTES = {"bf16": 2, "fp32": 4}
# share of the speed of matrix products that a pass on a CPU reaches: model_1_ptm on 1 and 2 cores
_CPU_EFFICIENCY = 0.55
# memory of the process without parameters and activations
_CPU_PROCESS_BYTES = 2**29
_MATRIX_SIZE, _MATRIX_PRODUCTS = 1024, 5


def estimate_gpu(
    residues: int,
    num_jobs: int,
    sources: Sequence[ParameterSource],
    loaded: Sequence[ParameterSource],
    settings: PredictSettings,
    memory: DeviceMemory,
) -> Estimate:
    """Return the estimated cost of a target on a GPU.

    Args:
        residues: length of the target.
        num_jobs: number of seeds.
        sources: the models that predict it.
        loaded: all models of the run; their parameters stay on the GPU.
        settings: settings of its networks.
        memory: the GPU.
    """
    gpu, available = memory.device_name(), memory.available_bytes()
    parameters = sum(parameter_bytes(source.config, settings) for source in loaded)
    configs = [source.config for source in sources]
    peak = max(
        peak_bytes(config, settings, residues, available - parameters, memory.ranks) for config in configs
    )
    estimates = [seconds_per_pass(gpu, config, settings, residues) for config in configs]
    known = [seconds for seconds in estimates if seconds is not None]
    is_complete = len(known) == len(estimates)
    seconds = settings.num_passes * num_jobs * sum(known) if is_complete else None
    return Estimate(peak + parameters, seconds)


def estimate_cpu(
    residues: int,
    sources: Sequence[ParameterSource],
    loaded: Sequence[ParameterSource],
    settings: PredictSettings,
) -> Estimate:
    """Return the rough cost of a target on this CPU; see `estimate_gpu`."""
    speed = _CPU_EFFICIENCY * measure_matrix_products()
    # networks stay loaded, in float32
    parameters = sum(parameter_bytes(source.config, replace(settings, precision="fp32")) for source in loaded)
    configs = [source.config for source in sources]
    sizes = [_pass_size(config, settings, residues) for config in configs]
    peak = max(
        estimate_peak_bytes(config, size, CPU_CHUNK_ELEMENTS)
        for config, size in zip(configs, sizes, strict=True)
    )
    operations = sum(pass_operations(config, size) for config, size in zip(configs, sizes, strict=True))
    num_passes = settings.num_passes * settings.num_seeds
    memory_bytes = _CPU_PROCESS_BYTES + parameters + peak
    return Estimate(memory_bytes, num_passes * operations / speed, is_rough=True)


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


def seconds_per_pass(gpu: str, config: ModelConfig, settings: PredictSettings, residues: int) -> float | None:
    """Return an upper estimate of the seconds of one pass; None if nothing comparable was measured.

    Seconds are interpolated between the measured lengths, on logarithmic scales. For lengths below the
    shortest measured one, its seconds are returned.
    """
    measured = SECONDS_PER_PASS.get(gpu)
    comparable = (
        config.multimer is None
        and config.evoformer.blocks == _MEASURED_BLOCKS
        and (settings.precision, settings.kernels) == ("bf16", "fused")
        and settings.max_seq <= _MEASURED_ROWS
        and settings.max_extra_seq <= _MEASURED_EXTRA_ROWS
    )
    return interpolate_seconds(measured, residues) if measured is not None and comparable else None


def interpolate_seconds(measured: Sequence[tuple[int, float]], size: int) -> float | None:
    """Return seconds for a size, between measured ones on logarithmic scales; None beyond the largest.

    Args:
        measured: sizes, ascending, and seconds; smaller sizes take as long as the smallest.
        size: the size.
    """
    if size > measured[-1][0]:
        return None
    if size <= measured[0][0]:
        return measured[0][1]
    index = next(i for i, (length, _) in enumerate(measured) if length >= size)
    (shorter, low), (longer, high) = measured[index - 1], measured[index]
    fraction = math.log(size / shorter) / math.log(longer / shorter)
    return math.exp(math.log(low) + fraction * math.log(high / low))


def peak_bytes(
    config: ModelConfig, settings: PredictSettings, residues: int, available_bytes: int, ranks: int = 1
) -> int:
    """Return the peak memory of each GPU in a pass with as many rows as the settings allow.

    Parameters are not counted.
    """
    return plan_memory(config, _pass_size(config, settings, residues, ranks), available_bytes).peak_bytes


def _pass_size(config: ModelConfig, settings: PredictSettings, residues: int, ranks: int = 1) -> PassSize:
    """Return the sizes of a pass with as many rows as the settings allow."""
    return PassSize(
        residues,
        settings.max_seq,
        settings.max_extra_seq,
        element_bytes=_ELEMENT_BYTES[settings.precision],
        in_place=settings.kernels == "fused",
        ranks=ranks,
        alignment_rows=0 if config.multimer is None else settings.max_seq + settings.max_extra_seq,
    )


def parameter_bytes(config: ModelConfig, settings: PredictSettings) -> int:
    """Return the bytes of a network's parameters in the trunk's precision."""
    count = sum(math.prod(shape) for shape in expected_shapes(config).values())
    return count * _ELEMENT_BYTES[settings.precision]


def plan_heading(
    models: Sequence[tuple[ParameterSource, PredictSettings]], settings: PredictSettings, memory: DeviceMemory
) -> PlanHeading:
    """Return the plan's heading about the device and the networks."""
    device = f"{memory.device_name()}, {settings.precision}, {settings.kernels} kernels"
    limit = "at most " if settings.stop_at_score < 100 else ""
    parts = []
    for _, pairs in groupby(models, lambda model: model[0].family):
        own_settings = [own for _, own in pairs]
        count, seeds = (
            format_count(len(own_settings), "model"),
            format_count(settings.num_seeds, "seed"),
        )
        passes = format_count(own_settings[0].num_passes, "pass", "passes")
        parts.append(f"{limit}{count}, {seeds}, at most {passes} each")
    line = f"network: {device}; per target: {'; per complex: '.join(parts)}"
    values = {
        "device": memory.device_name(),
        "precision": settings.precision,
        "kernels": settings.kernels,
        "models": [source.label for source, _ in models],
        "seeds": settings.seeds(),
        "max_passes": max(own.num_passes for _, own in models),
        "stop_at_score": settings.stop_at_score,
    }
    return PlanHeading(line, "network", values)
