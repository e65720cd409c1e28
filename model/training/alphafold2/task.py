"""The training of an AlphaFold2 network on chains: samples, passes, losses and validation."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

from model.alphafold2.network import AlphaFold
from model.errors import ConfigError
from model.layers.kernels import select_kernels
from model.training.alphafold2.features import load_tables, make_targets, network_features
from model.training.alphafold2.losses import mean_terms, total_loss
from model.training.alphafold2.network import initial_recycled_batch, run_network
from model.training.alphafold2.validation import validate
from model.training.data.data import ChainSet, Split
from model.training.data.sampling import MicroBatch, Sampler, load_batches
from model.training.runtime.execution import Execution, kernels_for_device, make_execution
from model.training.runtime.initialization import copy_trained, initialize
from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase, TrainingSettings
from model.training.runtime.step import StepGradient, StepGraphs, StepPlan, Tensors, Terms


class ChainTask:
    """The training of a network on chains, divided by `split` into training and held-out ones.

    Args:
        settings: settings of the run.
        chains: the chains.
        split: their division.
        processes: the processes that train together.
        on_compilation: called before a step that compiles, with the residues of its crops.

    Raises:
        ConfigError: the micro-batches of the processes do not divide the batch.

    Attributes:
        is_compiling: True while the current pass has to compile, which may take minutes.
        network: the network, after `build`.
    """

    network: AlphaFold
    _execution: Execution

    def __init__(
        self,
        settings: TrainingSettings,
        chains: ChainSet,
        split: Split,
        processes: TrainingProcesses,
        on_compilation: Callable[[int], None] = lambda residues: None,
    ) -> None:
        self.settings, self._processes, self._on_compilation = settings, processes, on_compilation
        self.is_compiling = False
        # sizes that were compiled for
        self._compiled: set[object] = set()
        self._graphs: StepGraphs | None = None
        for number, phase in enumerate(settings.phases):
            if settings.batch % (phase.micro_batch * processes.count):
                raise ConfigError(
                    f"phases[{number}].micro_batch: {processes.count} × {phase.micro_batch} samples do not "
                    f"divide the batch of {settings.batch}"
                )
        self.sampler = Sampler(chains, split, settings.sampling, settings.seed)
        limit = settings.validation_chains
        sets = ("without_relative", split.without_relative), ("distant_template", split.distant_template)
        self._held_out = {name: chosen for name, found in sets if len(chosen := found[:limit])}

    def samples(self, step: int) -> Iterator[dict[str, torch.Tensor]]:
        """Start the worker processes that make micro-batches, and return these from a step on."""
        on_gpu = self._processes.device.type == "cuda"
        return load_batches(self.sampler, self.plan(step), self.settings.workers, pin_memory=on_gpu)

    def plan(self, step: int) -> Iterator[MicroBatch]:
        """Yield this process's micro-batches from a step on."""
        count, rank, batch = self._processes.count, self._processes.rank, self.settings.batch
        while True:
            phase = self.settings.phase_at(step)
            for start in range(rank * phase.micro_batch, batch, count * phase.micro_batch):
                first = step * batch + start
                yield MicroBatch(first, phase.micro_batch, phase.crop, phase.clamped_rate)
            step += 1

    def build(self, is_new: bool) -> FlatParameters:
        """Build the network; see `TrainingTask`."""
        settings, device = self.settings, self._processes.device
        self._execution = make_execution(settings, device)
        load_tables(device)
        kernels = select_kernels(kernels_for_device(settings, device), device)
        self.network = AlphaFold(settings.network, kernels)
        initialize(self.network, settings.seed)
        if settings.initial_network and is_new:
            copy_trained(self.network, settings.network, settings.initial_network)
        if settings.cuda_graphs and device.type == "cuda":
            self._graphs = StepGraphs(self._add_gradients, device)
        return FlatParameters(self.network, device)

    def start_step(self, step: int) -> StepPlan:
        """Seed dropout, and draw the number of recycles of a step."""
        settings, processes = self.settings, self._processes
        phase = settings.phase_at(step)
        # dropout depends only on seed, step and process, so checkpoints need no state of a generator
        torch.manual_seed((settings.seed * 1_000_003 + step) * 1_009 + processes.rank)
        recycles = int(np.random.default_rng([settings.seed, step]).integers(settings.max_recycles + 1))
        return StepPlan(settings.batch // (phase.micro_batch * processes.count), phase, recycles)

    def backward(self, sample: Tensors, plan: StepPlan, gradient: StepGradient) -> Terms:
        """Copy a micro-batch to the device, and add its gradients; return its mean loss terms."""
        assert plan.phase is not None and plan.recycles is not None
        with self._compilation(plan.phase, "recycled" if plan.recycles else "single pass"):
            device = self._processes.device
            tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in sample.items()}
            add_gradients = self._graphs or self._add_gradients
            return add_gradients(tensors, plan.phase, plan.recycles, gradient)

    def _add_gradients(self, tensors: Tensors, phase: Phase, recycles: int, gradient: StepGradient) -> Terms:
        """Add the gradients of a micro-batch on the device; return its mean loss terms."""
        execution = self._execution
        dropout = torch.ones((), device=self._processes.device)
        with torch.no_grad():
            features, targets = network_features(tensors, execution.dtype), make_targets(tensors)
            recycled = initial_recycled_batch(self.network, features, execution.dtype)
            for _ in range(recycles):
                recycled = run_network(self.network, features, recycled, dropout, execution).recycled
        output = run_network(self.network, features, recycled, dropout, execution)
        losses, terms = total_loss(output, targets, phase.losses, execution)
        gradient.add(losses)
        return mean_terms({"loss": losses, **terms})

    def validate(self, step: int) -> dict[str, dict[str, float]]:
        """Score the network on the held-out chains; sets without chains are left out."""
        phase, processes = self.settings.phase_at(max(0, step - 1)), self._processes
        with self._compilation(phase, "validation"):
            return {
                name: validate(self.network, self.sampler, held_out, phase, self._execution, processes)
                for name, held_out in self._held_out.items()
            }

    @contextlib.contextmanager
    def _compilation(self, phase: Phase, variant: str) -> Iterator[None]:
        """Say that the network is compiled in this context, if this is the first one of its sizes."""
        key = phase.crop, phase.micro_batch, variant
        compiles = self._execution.compile or self._processes.device.type == "cuda"
        if not compiles or key in self._compiled:
            yield
            return
        self._on_compilation(phase.crop)
        self.is_compiling = True
        try:
            yield
        finally:
            self.is_compiling = False
        self._compiled.add(key)
