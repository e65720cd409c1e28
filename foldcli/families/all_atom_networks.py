"""All-atom networks: loading, and one job within the available memory."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from features.assembly.tokens import JobSize
from foldcli.families.protocols import DeviceMemory, NetworkJob, PartsPlan
from foldcli.families.settings import AllAtomSettings
from foldcli.logs import logger
from foldcli.outputs.all_atom.prediction import build_predictions, copy_samples
from foldcli.params.openfold3 import DEEPMIND_TERMS
from model.alphafold3.config import DEEPMIND, OPENBIND, P2
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3, Samples
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.openfold3 import read_checkpoint
from model.errors import OutOfMemory
from model.layers.dropout import dropout
from model.parallel.all_atom import ParallelAlphaFold3
from model.parallel.communication import RankGroup
from model.planning.alphafold3 import SMALLEST, AllAtomMemoryPlan, PredictionSize, plan_prediction
from model.planning.memory_plan import CPU_CHUNK_ELEMENTS
from model.planning.pass_time import interpolate_seconds, measure_matrix_products
from model.prediction import Prediction

if TYPE_CHECKING:
    from foldcli.families.all_atom_inputs import AllAtomSample

AllAtomJob: TypeAlias = "NetworkJob[AllAtomSample, AllAtomSettings]"

# GPU → tokens, seconds of a cycle and of a denoising step of five samples in bfloat16, with 1,024 rows and
# 8 atoms per token, as measured by benchmarks/all_atom_gpu.py
MEASURED_SECONDS = {
    "NVIDIA H200": (
        (256, (0.029, 0.0027)),
        (512, (0.095, 0.0052)),
        (1024, (0.459, 0.0100)),
        (2048, (2.73, 0.0234)),
    ),
}
MEASURED_SAMPLES = 5
# share of the speed of matrix products that the network reaches on a CPU
_CPU_EFFICIENCY = 0.8
# of the authors' program with their parameters
_DEEPMIND_RECYCLES = 10


@dataclass(frozen=True, eq=False)
class AllAtomNetwork:
    """A loaded network; see `foldcli.families.protocols.SharedNetwork`."""

    model: AlphaFold3
    device: str
    predict_together: Callable[["AllAtomNetwork", AllAtomJob], Samples] | None = None

    def start(self, work: AllAtomJob, memory: DeviceMemory) -> Callable[[], tuple[Prediction, ...]]:
        """Start the samples of a job as planned, then once more in small parts if memory runs out.

        The next job may be started while a GPU computes the scores of this one.

        Raises:
            OutOfMemory: the job does not fit, or memory ran out twice.
        """
        together, settings = self.predict_together, work.settings
        samples = self._predict_within(work, memory) if together is None else together(self, work)
        copied = copy_samples(samples)
        structure, chain_numbers = work.sample.structure, work.sample.chain_numbers
        return lambda: tuple(
            build_predictions(structure, chain_numbers, copied(), settings.num_recycles, settings.extras)
        )

    def warm_up(self, residues: int) -> None:
        """Do nothing: the network has no kernels to compile."""

    def shared(self, group: RankGroup, predict_together: Callable[..., Samples]) -> "AllAtomNetwork":
        """Return the network as one of several ranks; see `SharedNetwork`."""
        return replace(self, model=ParallelAlphaFold3(self.model, group), predict_together=predict_together)

    def arrays(self, sample: "AllAtomSample | dict[str, np.ndarray]") -> dict[str, np.ndarray]:
        """Return the network's inputs; see `SharedNetwork`."""
        return sample if isinstance(sample, dict) else sample.features

    def plan_parts(self, work: AllAtomJob, memory: DeviceMemory) -> PartsPlan:
        """Return chunk size and samples at once; see `SharedNetwork`."""
        if not memory.is_planned:
            return PartsPlan([CPU_CHUNK_ELEMENTS, work.settings.num_samples])
        plan = self._plan(work, memory)
        return PartsPlan([plan.chunk_elements, plan.samples_at_once], str(plan), plan.fits)

    def predict(self, work: AllAtomJob, parts: Sequence[int]) -> Samples:
        """Run a job; see `SharedNetwork`."""
        return self._predict(work, *parts)

    def _predict_within(self, work: AllAtomJob, memory: DeviceMemory) -> Samples:
        if not memory.is_planned:
            return self._predict(work, None, None)
        plan = self._plan(work, memory)
        if not plan.fits:
            raise OutOfMemory(str(plan))
        logger.debug("%s: %s", work.name, plan)
        shortage = ""
        for parts in ((plan.chunk_elements, plan.samples_at_once), SMALLEST):
            try:
                return self._predict(work, *parts)
            except torch.OutOfMemoryError as error:
                # only the text: the error's traceback would keep the tensors of the failed attempt
                message = str(error)
            shortage = memory.describe_shortage(message)
            if parts != SMALLEST:
                logger.warning(
                    "%s: memory ran out (%s); trying once more in smaller parts", work.name, shortage
                )
        tokens = len(work.sample.features["token_mask"])
        raise OutOfMemory(f"{tokens} tokens, {shortage}; tried twice, in smaller parts the second time")

    def _plan(self, work: AllAtomJob, memory: DeviceMemory) -> AllAtomMemoryPlan:
        features, settings = self.arrays(work.sample), work.settings
        rows, tokens = features["msa_mask"].shape[-2:]
        half = self.model.linear_z.weight.dtype == torch.bfloat16
        size = PredictionSize(
            tokens,
            features["atom_mask"].shape[-1],
            rows,
            settings.num_samples,
            features["template_restype"].shape[-3],
            half,
            ranks=memory.ranks,
        )
        return plan_prediction(self.model.config, size, memory.available_bytes())

    def _predict(self, work: AllAtomJob, chunk_elements: int | None, samples_at_once: int | None) -> Samples:
        settings = work.settings
        inputs = AlphaFold3Inputs.from_arrays(self.arrays(work.sample), self.device)
        inputs = inputs.for_network(self.model.config)
        cycles, total = settings.num_recycles + 1, settings.num_passes
        # kernels are launched on the current device
        dropping = dropout(self.model, work.job.seed) if settings.dropout else nullcontext()
        with nullcontext() if self.device == "cpu" else torch.cuda.device(self.device), dropping:
            samples = self.model.predict(
                inputs,
                SeededDraws(work.job.seed),
                cycles=cycles,
                steps=settings.num_steps,
                samples=settings.num_samples,
                progress=lambda steps: work.progress(cycles + steps, total),
                chunk_elements=chunk_elements,
                samples_at_once=samples_at_once,
            )
        error, self.model.graph_error = self.model.graph_error, ""
        if error and (not isinstance(self.model, ParallelAlphaFold3) or self.model.group.rank == 0):
            logger.warning("no CUDA graphs, so predictions are slower: %s", error.splitlines()[0])
        return samples


def load_network(path: Path, settings: AllAtomSettings, device: str) -> AllAtomNetwork:
    """Load a network on a device.

    With bfloat16 on a GPU, the trunk uses fused kernels, and products of float32 matrices TF32.
    """
    config, tensors = read_checkpoint(path)
    if config.variant == DEEPMIND.variant:
        logger.info("%s", DEEPMIND_TERMS)
        if settings.num_recycles != _DEEPMIND_RECYCLES:
            recycles = settings.num_recycles, _DEEPMIND_RECYCLES
            logger.info("%d recycles; DeepMind's program has %d (--num-recycle)", *recycles)
    half = settings.precision == "bf16"
    if device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = half
    # in float32, plain PyTorch is faster than the kernels
    kernels = settings.kernels if half else "reference"
    dtype = torch.bfloat16 if half else torch.float32
    return AllAtomNetwork(AlphaFold3.load(config, tensors, kernels, device, dtype), device)


def estimate_bytes(
    variant: str, size: JobSize, rows: int, settings: AllAtomSettings, memory: DeviceMemory
) -> int:
    """Return the peak memory of a job with its parameters; see `model.planning.alphafold3`."""
    config = P2 if variant == "p2" else OPENBIND
    half, on_gpu = settings.precision == "bf16", memory.device != "cpu"
    prediction = PredictionSize(
        size.tokens, size.atoms, rows, settings.num_samples, half=half, on_gpu=on_gpu, ranks=memory.ranks
    )
    available = memory.available_bytes() if on_gpu else 0
    plan = plan_prediction(config, prediction, available)
    return plan.needed + plan.loaded


def estimate_seconds(tokens: int, settings: AllAtomSettings, memory: DeviceMemory) -> float | None:
    """Return an estimate of the seconds of one seed; None if nothing comparable was measured."""
    cycles, steps = settings.num_recycles + 1, settings.num_steps * settings.num_samples / MEASURED_SAMPLES
    if memory.device == "cpu":
        # multiply-adds of a cycle with 1,024 rows and of a step, as counted from 256 to 2,048 tokens
        operations = 1e12 * (
            cycles * (7.5e-5 * tokens**2 + 7.7e-8 * tokens**3)
            + steps * (2.2e-3 * tokens + 9.2e-7 * tokens**2)
        )
        return operations / (_CPU_EFFICIENCY * measure_matrix_products())
    measured = MEASURED_SECONDS.get(memory.device_name())
    if measured is None or settings.precision != "bf16":
        return None
    cycle, step = (
        interpolate_seconds([(size, times[index]) for size, times in measured], tokens) for index in (0, 1)
    )
    return None if cycle is None or step is None else cycles * cycle + steps * step
