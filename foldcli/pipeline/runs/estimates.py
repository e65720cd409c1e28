"""Estimates for `fold --dry-run` and `predict --dry-run`: memory as planned, seconds as measured.

On a GPU, seconds are unknown unless something comparable was measured: the same kind of GPU, precision and
kernels, and at least as many residues and alignment rows. On a CPU, they are a rough estimate: the operations
of a pass, at a share of the speed of matrix products that is measured first.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from features.cache.cache import read_entry
from features.chemistry.residues import check_foldable
from foldcli.inputs.cached_targets import CachedTarget, read_complex_entry
from foldcli.inputs.complexes import Complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.inputs.targets import TargetInput, is_complex
from foldcli.params.parameters import sources_of
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.network.template_copies import TemplateCopier
from foldcli.pipeline.runs.dry_run import (
    DONE,
    RESUMED,
    TO_DO,
    Estimate,
    Inspection,
    PlanHeading,
    plan_targets,
    print_plan,
)
from foldcli.pipeline.targets.identity import TargetIdentities, requested_seeds
from foldcli.pipeline.targets.plan import plan_target, read_finished
from foldcli.pipeline.targets.settings import OutputSettings, PredictSettings
from model.alphafold2.modules.config import ModelConfig, StackConfig
from model.alphafold2.parameters import expected_shapes
from model.planning.memory_plan import CPU_CHUNK_ELEMENTS, PassSize, estimate_peak_bytes, plan_memory
from msa.io.fasta import FastaRecord
from msa.search.search import check_query

# GPU → (residues, seconds) of one pass of 48 blocks in bfloat16 with fused kernels and 508 + 5,120 rows, as
# measured by benchmarks/network_gpu.py (docs/performance.md)
SECONDS_PER_PASS = {
    "NVIDIA H200": ((256, 0.111), (512, 0.294), (1024, 1.044), (2048, 4.518), (2560, 7.620), (4096, 24.94)),
}
_MEASURED_BLOCKS, _MEASURED_ROWS, _MEASURED_EXTRA_ROWS = 48, 512, 5120
_ELEMENT_BYTES = {"bf16": 2, "fp32": 4}
# share of the speed of matrix products that a pass on a CPU reaches: model_1_ptm on 1 and 2 cores
_CPU_EFFICIENCY = 0.55
# of the process without parameters and activations
_CPU_PROCESS_BYTES = 2**29
_MATRIX_SIZE, _MATRIX_PRODUCTS = 1024, 5


def print_prediction_plan(
    targets: Sequence[tuple[str, TargetInput]],
    identities: TargetIdentities,
    predictor: Predictor | TemplateCopier,
    output: OutputSettings,
    failures: Failures,
    headings: tuple[PlanHeading, ...] = (),
    as_json: bool = False,
) -> None:
    """Print the plan of `foldcli fold` or `foldcli predict`.

    Args:
        targets: names and inputs of the targets of all shards.
        identities: identities of the targets.
        predictor: the networks that would run.
        output: settings of the results.
        failures: the failed targets and the files that could not be read.
        headings: further headings of the plan, such as about the database.
        as_json: print one JSON object instead of a table.

    Raises:
        SomeTargetsFailed, TargetFailed: there are failures.
    """
    planned = plan_targets(
        targets,
        lambda name, target_input: inspect_target(name, target_input, identities, output),
        output.shard,
        failures,
        estimator(predictor),
    )
    print_plan(planned, [_network_heading(predictor), *headings], failures, as_json)


def inspect_target(
    name: str, target_input: TargetInput, identities: TargetIdentities, output: OutputSettings
) -> Inspection:
    """Return the number of residues of a target, and the action of a run.

    Raises:
        InputError: its alignments cannot be read, its query cannot be searched with, or the run would refuse
            to replace finished results.
        OSError: a file cannot be read.
    """
    files = output.files(name)
    residues = _residues(target_input)
    unfinished = RESUMED if files.work_folder.is_dir() else TO_DO
    if isinstance(target_input, FastaRecord | Complex) and identities.request is None:
        # the database does not exist yet, so no fingerprint is known
        return residues, TO_DO if output.overwrite else unfinished
    if output.overwrite:
        finished = read_finished(files)
        count = 0 if finished is None else len(finished.ranking)
        return residues, f"{TO_DO}, replaces {format_count(count, 'model')}" if count else TO_DO
    plan = plan_target(files, target_input, identities, output)
    return residues, DONE if plan.is_finished else unfinished


def _residues(target_input: TargetInput) -> int:
    if isinstance(target_input, Complex):
        for chain in target_input.chains:
            check_query(chain)
            check_foldable(chain.sequence)
        return target_input.residues
    if isinstance(target_input, FastaRecord):
        check_query(target_input)
        check_foldable(target_input.sequence)
        return len(target_input.sequence)
    if isinstance(target_input, CachedTarget):
        return target_input.residues()
    file = target_input.files[0]
    if file.endswith(ENTRY_SUFFIX):
        if target_input.is_complex:
            return read_complex_entry(file).residues
        return int(read_entry(file)["msa"].shape[1])
    if target_input.is_complex:
        rows = target_input.parse_complex(target_input.read_contents())
        assert rows is not None
        return rows.residues
    query = target_input.read()[0].query
    check_foldable(query)
    return len(query)


def estimator(predictor: Predictor | TemplateCopier) -> Callable[[int, TargetInput], Estimate | None]:
    """Return a function that estimates a target's cost from its residues and input.

    Copies of templates have no estimate: they take no time.
    """
    if isinstance(predictor, TemplateCopier):
        return lambda residues, target_input: None
    memory, settings = predictor.memory, predictor.settings
    if memory.device == "cpu":
        return _cpu_estimator(predictor)
    gpu, available = memory.device_name(), memory.available_bytes()
    # the parameters of all models stay on the GPU
    parameters = sum(parameter_bytes(source.config, settings) for source in predictor.sources)

    def estimate(residues: int, target_input: TargetInput) -> Estimate:
        sources = sources_of(predictor.sources, is_complex(target_input))
        network_settings = settings.for_network(sources[0].is_multimer)
        configs = [source.config for source in sources]
        peak = max(
            peak_bytes(config, network_settings, residues, available - parameters, memory.ranks)
            for config in configs
        )
        estimates = [seconds_per_pass(gpu, config, network_settings, residues) for config in configs]
        known = [seconds for seconds in estimates if seconds is not None]
        seeds = settings.seeds(requested_seeds(target_input))
        num_passes = network_settings.num_passes * len(seeds)
        is_complete = len(known) == len(estimates)
        return Estimate(peak + parameters, num_passes * sum(known) if is_complete else None)

    return estimate


def _cpu_estimator(predictor: Predictor) -> Callable[[int, TargetInput], Estimate]:
    speed = _CPU_EFFICIENCY * measure_matrix_products()
    settings = predictor.settings
    # networks stay loaded, in float32
    parameters = sum(
        parameter_bytes(source.config, replace(settings, precision="fp32")) for source in predictor.sources
    )

    def estimate(residues: int, target_input: TargetInput) -> Estimate:
        sources = sources_of(predictor.sources, is_complex(target_input))
        network_settings = settings.for_network(sources[0].is_multimer)
        configs = [source.config for source in sources]
        sizes = [_pass_size(config, network_settings, residues) for config in configs]
        peak = max(
            estimate_peak_bytes(config, size, CPU_CHUNK_ELEMENTS)
            for config, size in zip(configs, sizes, strict=True)
        )
        operations = sum(pass_operations(config, size) for config, size in zip(configs, sizes, strict=True))
        num_passes = network_settings.num_passes * network_settings.num_seeds
        memory_bytes = _CPU_PROCESS_BYTES + parameters + peak
        return Estimate(memory_bytes, num_passes * operations / speed, is_rough=True)

    return estimate


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
    """Return the floating-point operations of the matrix products in both stacks of a pass.

    Args:
        config: the network.
        size: the sizes of the pass.
    """
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

    Args:
        gpu: name of the GPU.
        config: the network.
        settings: settings of the prediction.
        residues: length of the query.
    """
    measured = SECONDS_PER_PASS.get(gpu)
    comparable = (
        config.multimer is None
        and config.evoformer.blocks == _MEASURED_BLOCKS
        and (settings.precision, settings.kernels) == ("bf16", "fused")
        and settings.max_seq <= _MEASURED_ROWS
        and settings.max_extra_seq <= _MEASURED_EXTRA_ROWS
    )
    if measured is None or not comparable or residues > measured[-1][0]:
        return None
    if residues <= measured[0][0]:
        return measured[0][1]
    index = next(i for i, (length, _) in enumerate(measured) if length >= residues)
    (shorter, low), (longer, high) = measured[index - 1], measured[index]
    fraction = math.log(residues / shorter) / math.log(longer / shorter)
    return math.exp(math.log(low) + fraction * math.log(high / low))


def peak_bytes(
    config: ModelConfig, settings: PredictSettings, residues: int, available_bytes: int, ranks: int = 1
) -> int:
    """Return the peak memory of each GPU in a pass with as many rows as the settings allow.

    Parameters are not counted.

    Args:
        config: the network.
        settings: settings of the prediction.
        residues: length of the query.
        available_bytes: GPU memory available to the pass, which determines the size of its chunks.
        ranks: number of GPUs that the pass is divided among.
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


def _network_heading(predictor: Predictor | TemplateCopier) -> PlanHeading:
    """Return the plan's heading about the device and the networks."""
    if isinstance(predictor, TemplateCopier):
        line = "network: none; the best template of each target is copied"
        return PlanHeading(line, "network", {"models": [source.label for source in predictor.sources]})
    settings = predictor.settings
    device = f"{predictor.memory.device_name()}, {settings.precision}, {settings.kernels} kernels"
    kinds = [source.is_multimer for source in predictor.sources]
    limit = "at most " if settings.stop_at_score < 100 else ""
    parts = []
    for is_multimer in dict.fromkeys(kinds):
        models, seeds = (
            format_count(kinds.count(is_multimer), "model"),
            format_count(settings.num_seeds, "seed"),
        )
        passes = format_count(settings.for_network(is_multimer).num_passes, "pass", "passes")
        parts.append(f"{limit}{models}, {seeds}, at most {passes} each")
    line = f"network: {device}; per target: {'; per complex: '.join(parts)}"
    values = {
        "device": predictor.memory.device_name(),
        "precision": settings.precision,
        "kernels": settings.kernels,
        "models": [source.label for source in predictor.sources],
        "seeds": settings.seeds(),
        "max_passes": max(settings.for_network(is_multimer).num_passes for is_multimer in kinds),
        "stop_at_score": settings.stop_at_score,
    }
    return PlanHeading(line, "network", values)


def format_count(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "2 models"; the default plural has an "s"."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
