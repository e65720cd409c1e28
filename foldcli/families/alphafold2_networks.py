"""Networks of AlphaFold2's architecture: loading, jobs within the available memory, warm-up, estimates."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

import numpy as np
import torch

from features.alphafold2.deterministic import make_features
from features.complexes.features import complex_features
from foldcli.families.protocols import DeviceMemory, NetworkJob, PartsPlan
from foldcli.families.reporting import Estimate, PlanHeading
from foldcli.families.settings import AlphaFold2Settings
from foldcli.logs import log_time_since_start, logger
from foldcli.params.parameters import ParameterSource
from foldcli.progress import Progress
from foldcli.units import format_count
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict, start_prediction
from model.checkpoints.alphafold2 import build_network, expected_shapes, load_folder, load_npz
from model.checkpoints.deepmind import read_arrays
from model.errors import OutOfMemory
from model.layers.kernels import compiled_kernels
from model.parallel.communication import RankGroup
from model.parallel.network import ParallelAlphaFold
from model.planning.memory_plan import (
    CPU_CHUNK_ELEMENTS,
    MemoryPlan,
    PassSize,
    estimate_peak_bytes,
    plan_memory,
)
from model.planning.pass_time import interpolate_seconds, measure_matrix_products, pass_operations
from model.prediction import Prediction
from model.refinement.refine import refine
from msa.alignments.files import parse_alignment
from msa.base.network_inputs import MONOMER

# the features of a chain or a complex by name, as their families sample them
AlphaFold2Job: TypeAlias = NetworkJob[dict[str, np.ndarray], AlphaFold2Settings]
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
# after memory has run out, chunks are this many times smaller
CHUNK_REDUCTION = 8
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


@dataclass(eq=False)
class AlphaFold2Network:
    """A loaded network of AlphaFold2's architecture; see `foldcli.families.protocols.Network`.

    Args:
        model: the network, or one that several processes share.
        predict_together: runs the passes of a job on several ranks; None on one device.
    """

    model: AlphaFold
    own_settings: Callable[[AlphaFold2Settings], AlphaFold2Settings]
    predict_together: "Callable[[AlphaFold2Network, AlphaFold2Job], Prediction] | None" = None
    _started: bool = False

    def start(self, work: AlphaFold2Job, memory: DeviceMemory) -> Callable[[], tuple[Prediction, ...]]:
        """Start a job within the available memory; see `start_within`. Several ranks also finish it."""
        if self.predict_together is not None:
            prediction = self.predict_together(self, work)
            return lambda: (self.refined(prediction, work.settings),)
        self.log_first_block()
        collect = start_within(
            memory, work.name, self.model, work.sample, self.recycling(work), work.progress
        )
        return lambda: (self.refined(collect(), work.settings),)

    def shared(self, group: RankGroup, predict_together: Callable[..., Prediction]) -> "AlphaFold2Network":
        """Return the network as one of several ranks; see `SharedNetwork`."""
        return replace(self, model=ParallelAlphaFold(self.model, group), predict_together=predict_together)

    def arrays(self, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sample, which has nothing else."""
        return sample

    def plan_parts(self, work: AlphaFold2Job, memory: DeviceMemory) -> PartsPlan:
        """Return the chunk size of the passes, and 1 if CUDA graphs fit; see `SharedNetwork`."""
        plan = plan_passes(memory, self.model, work.sample)
        if plan is None:
            return PartsPlan([CPU_CHUNK_ELEMENTS, 1])
        refused = memory.strict and plan.peak_bytes > plan.available_bytes
        return PartsPlan(
            [plan.chunk_elements, int(plan.graphs)],
            f"{work.sample['aatype'].shape[-1]} residues: {plan}",
            not refused,
        )

    def predict(self, work: AlphaFold2Job, parts: Sequence[int]) -> Prediction:
        """Run the passes of a job, without refinement; see `SharedNetwork`."""
        chunk_elements, graphs_fit = parts
        assert isinstance(self.model, ParallelAlphaFold)
        trunk = self.model.parallel_trunk
        trunk.graphs_fit = bool(graphs_fit)
        try:
            return predict(self.model, work.sample, self.recycling(work), work.progress, chunk_elements)
        finally:
            # the next plan must find their memory free
            if (error := trunk.release_graphs()) and trunk.group.rank == 0:
                logger.warning("no CUDA graphs, so several GPUs are slower: %s", error.splitlines()[0])

    def recycling(self, work: AlphaFold2Job) -> RecyclingSettings:
        """Return the settings of a job's recycling."""
        settings = self.own_settings(work.settings)
        return RecyclingSettings(
            settings.num_recycles,
            settings.recycle_early_stop_tolerance,
            frozenset(settings.extras),
            work.job.seed,
            settings.dropout,
        )

    def refined(self, prediction: Prediction, settings: AlphaFold2Settings) -> Prediction:
        """Return a prediction with regular bonds, if the settings request that."""
        if not settings.refine:
            return prediction
        return refine(prediction)

    def warm_up(self, residues: int) -> None:
        """Run a pass on a made-up protein; see `foldcli.families.protocols.Network`."""
        sample = warm_up_sample(residues, self.model.config.multimer is not None)
        predict(self.model, sample, RecyclingSettings(0))

    def log_first_block(self) -> None:
        """Log once when the network's first block has finished, which shows a slow start."""
        if not self._started and logger.isEnabledFor(logging.DEBUG):
            _log_first_block(self.model)
        self._started = True


def load_network(
    source: ParameterSource,
    settings: AlphaFold2Settings,
    device: str,
    preloaded: "Future[dict[str, np.ndarray]] | None" = None,
) -> AlphaFold:
    """Load the network of a parameter file.

    Raises:
        ParametersError: the file lacks a key, has an unknown one, or a shape is wrong.
    """
    config = limit_rows(source.config, settings)
    plddt_shift = 0.0
    if source.folder is not None and source.manifest is not None:
        arrays, plddt_shift = load_folder(source.folder, source.manifest), source.manifest.plddt_shift
    else:
        assert source.file is not None
        read_file = read_arrays if preloaded is None else lambda _: preloaded.result()
        arrays = load_npz(source.file, config, read_file)
    return build_network(config, arrays, device, DTYPES[settings.precision], settings.kernels, plddt_shift)


def limit_rows(config: ModelConfig, settings: AlphaFold2Settings) -> ModelConfig:
    """Return a network's configuration with at most as many rows as the settings of its family allow."""
    if config.multimer is None:
        return config
    rows = replace(
        config.multimer,
        msa_rows=min(config.multimer.msa_rows, settings.max_seq),
        extra_rows=min(config.multimer.extra_rows, settings.max_extra_seq),
    )
    return replace(config, multimer=rows)


def plan_passes(
    memory: DeviceMemory, network: AlphaFold, features: Mapping[str, np.ndarray]
) -> MemoryPlan | None:
    """Return the plan that splits a target's passes into chunks; None on the CPU."""
    if not memory.is_planned:
        return None
    size = PassSize.from_features(network, features, memory.ranks)
    return plan_memory(network.config, size, memory.available_bytes())


def start_within(
    memory: DeviceMemory,
    name: str,
    network: AlphaFold,
    features: Mapping[str, np.ndarray],
    settings: RecyclingSettings,
    progress: Progress,
) -> Callable[[], Prediction]:
    """Call `recycling.start_prediction` with chunks planned for the memory, then with smaller ones.

    Raises:
        OutOfMemory: memory ran out twice, or `memory` is strict and the target is not expected to fit.
    """
    plan = plan_passes(memory, network, features)
    residues = features["aatype"].shape[-1]
    if plan is not None:
        logger.debug("%s: %s", name, plan)
        if memory.strict and plan.peak_bytes > plan.available_bytes:
            raise OutOfMemory(f"{residues} residues: {plan}")
    chunk_elements = CPU_CHUNK_ELEMENTS if plan is None else plan.chunk_elements
    compiled_before = len(compiled_kernels())
    for elements in (chunk_elements, chunk_elements // CHUNK_REDUCTION):
        try:
            collect = start_prediction(network, features, settings, progress, elements)
            if compiled := compiled_kernels()[compiled_before:]:
                logger.debug("%s: %d kernels were compiled: %s", name, len(compiled), ", ".join(compiled))
            return collect
        except torch.OutOfMemoryError as error:
            # only the text: the error's traceback would keep the tensors of the failed attempt
            message = str(error)
        shortage = memory.describe_shortage(message)
        if elements == chunk_elements:
            logger.warning("%s: memory ran out (%s); trying once more with smaller chunks", name, shortage)
    raise OutOfMemory(f"{residues} residues, {shortage}; tried twice, with smaller chunks the second time")


def _log_first_block(network: AlphaFold) -> None:
    """Log when the network's first block has finished, which shows a slow start; waits once for the GPU."""

    def log(block: object, inputs: object, outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        handle.remove()
        outputs[1][0, 0, 0].item()
        log_time_since_start("the first block finished")

    handle = network.evoformer.extra_msa_stack[0].register_forward_hook(log)


def warm_up_sample(residues: int, is_multimer: bool) -> dict[str, np.ndarray]:
    """Return the network's features of a protein of alanine without relatives, for two passes.

    Values do not matter to the preparation. For networks that do not sample rows themselves, this therefore
    needs no compiled kernels, which worker processes would have to load.

    Args:
        residues: length of the protein.
        is_multimer: whether the network is one of AlphaFold-Multimer, which samples rows itself.
    """
    if is_multimer:
        return complex_features([make_features([parse_alignment(b">a\n" + b"A" * residues + b"\n")])])
    sizes = {"N": residues, "S": 1, "E": 1}
    return {
        name: np.full((2, *array.shape(sizes)), name.endswith("mask"), array.dtype)
        for name, array in MONOMER.items()
        if not name.startswith("template_")
    }


def estimate_gpu(
    residues: int,
    num_seeds: int,
    sources: Sequence[ParameterSource],
    loaded: Sequence[ParameterSource],
    settings: AlphaFold2Settings,
    memory: DeviceMemory,
) -> Estimate:
    """Return the estimated cost of a target on a GPU: memory as planned, seconds as measured.

    Seconds are unknown unless something comparable was measured: the same kind of GPU, precision and kernels,
    and at least as many residues and alignment rows.

    Args:
        residues: length of the target.
        num_seeds: number of seeds; the target's input may give its own.
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
    seconds = settings.num_passes * num_seeds * sum(known) if is_complete else None
    return Estimate(peak + parameters, seconds)


def estimate_cpu(
    residues: int,
    num_seeds: int,
    sources: Sequence[ParameterSource],
    loaded: Sequence[ParameterSource],
    settings: AlphaFold2Settings,
) -> Estimate:
    """Return the rough cost of a target on this CPU, by the operations of a pass; see `estimate_gpu`."""
    speed = _CPU_EFFICIENCY * measure_matrix_products()
    # networks stay loaded, in float32
    parameters = sum(parameter_bytes(source.config, replace(settings, precision="fp32")) for source in loaded)
    configs = [source.config for source in sources]
    sizes = [(config, _pass_size(config, settings, residues)) for config in configs]
    peak = max(estimate_peak_bytes(*size, CPU_CHUNK_ELEMENTS) for size in sizes)
    operations = sum(pass_operations(*size) for size in sizes)
    seconds = num_seeds * settings.num_passes * operations / speed
    return Estimate(_CPU_PROCESS_BYTES + parameters + peak, seconds, is_rough=True)


def seconds_per_pass(
    gpu: str, config: ModelConfig, settings: AlphaFold2Settings, residues: int
) -> float | None:
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


def peak_bytes(
    config: ModelConfig, settings: AlphaFold2Settings, residues: int, available_bytes: int, ranks: int = 1
) -> int:
    """Return the peak memory of each GPU in a pass with as many rows as the settings allow.

    Parameters are not counted.
    """
    return plan_memory(config, _pass_size(config, settings, residues, ranks), available_bytes).peak_bytes


def _pass_size(config: ModelConfig, settings: AlphaFold2Settings, residues: int, ranks: int = 1) -> PassSize:
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


def parameter_bytes(config: ModelConfig, settings: AlphaFold2Settings) -> int:
    """Return the bytes of a network's parameters in the trunk's precision."""
    count = sum(math.prod(shape) for shape in expected_shapes(config).values())
    return count * _ELEMENT_BYTES[settings.precision]


def plan_heading(
    models: Sequence[tuple[ParameterSource, AlphaFold2Settings]],
    settings: AlphaFold2Settings,
    memory: DeviceMemory,
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
