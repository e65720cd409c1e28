"""The training of an all-atom network on crops of complexes: samples, passes, losses and validation."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from model.alphafold3.config import OPENBIND, AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.errors import ConfigError
from model.layers.graphs import KeptGraphs
from model.layers.kernels import best_kernels
from model.training.alphafold3.head_losses import atom_lddt
from model.training.alphafold3.initialization import copy_trained, initialize
from model.training.alphafold3.losses import AllAtomLossWeights, TrainingOutput, total_loss
from model.training.alphafold3.network import PassSettings, run_pass, trained_parameters
from model.training.alphafold3.noise import SeededTrainingDraws
from model.training.alphafold3.permutation import Crop, Experiment, best_targets
from model.training.alphafold3.targets import AtomTargets
from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import OptimizerSettings, TrainingRunSettings
from model.training.runtime.step import StepGradient, StepPlan, Terms


@dataclass(frozen=True)
class AllAtomTrainingSettings(TrainingRunSettings):
    """Settings of a training run of an all-atom network; the defaults are OpenFold3's.

    Args:
        steps: steps of the run.
        learning_rate: highest learning rate.
        warmup_steps: steps over which the rate rises from 0.
        decay_every: steps after which the rate is multiplied by `decay_factor`.
        decay_factor: see `decay_every`.
        beta1, beta2, epsilon: constants of Adam.
        clip_norm: largest norm of the gradient of a sample.
        ema_decay: decay of the moving average of the parameters, per step.
        max_skipped: consecutive steps without a finite gradient after which training stops.
        frozen: beginnings of the names of parameters that do not change.
        losses: weights of the losses.
        passes: settings of the passes.
        validation_samples: crops of held-out complexes.
    """

    network: AlphaFold3Config = OPENBIND
    steps: int = 100_000
    learning_rate: float = 1.8e-3
    warmup_steps: int = 1000
    decay_every: int = 50_000
    decay_factor: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    clip_norm: float = 10.0
    ema_decay: float = 0.999
    max_skipped: int = 20
    frozen: tuple[str, ...] = ()
    losses: AllAtomLossWeights = field(default_factory=AllAtomLossWeights)
    passes: PassSettings = field(default_factory=PassSettings)
    validation_samples: int = 50

    @property
    def total_steps(self) -> int:
        """Number of steps of the run."""
        return self.steps

    @property
    def adam(self) -> OptimizerSettings:
        """Settings of the optimiser; each sample's gradient is clipped, and no finite one is skipped."""
        return OptimizerSettings(
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            clip_norm=self.clip_norm,
            clip_each="micro_batch",
            ema_decay=self.ema_decay,
            spike_factor=math.inf,
            max_skipped=self.max_skipped,
        )

    def rate(self, step: int, moments_from: int = 0) -> float:
        """Return the learning rate of a step, counted from 0: linear warm-up, then a fall in steps."""
        warmup = min(1.0, (step + 1) / max(1, self.warmup_steps))
        return self.learning_rate * warmup * self.decay_factor ** (step // self.decay_every)


@dataclass(frozen=True)
class AllAtomTrainingSample:
    """A crop and its experimental structure.

    Args:
        inputs: the crop, on the network's device.
        crop: its molecules, on the CPU.
        experiment: the experimental structure with all copies of its molecules, on the CPU.
    """

    inputs: AlphaFold3Inputs
    crop: Crop
    experiment: Experiment


Draw = Callable[[int], AllAtomTrainingSample]
NumberedSample = tuple[int, AllAtomTrainingSample]


class AllAtomTask:
    """The training of an all-atom network.

    Args:
        settings: settings of the run.
        draw: returns the training sample of a number.
        processes: the processes that train together, which take the samples in turn.
        held_out: returns the held-out sample of a number; None without validation.
        find: returns the file of the parameters that `initial_network` names.

    Raises:
        ConfigError: the batch is not a multiple of the number of processes,
            or exceeds the samples of a validation.

    Attributes:
        network: the network, after `build`.
    """

    network: AlphaFold3
    is_compiling = False

    def __init__(
        self,
        settings: AllAtomTrainingSettings,
        draw: Draw,
        processes: TrainingProcesses,
        held_out: Draw | None = None,
        find: Callable[[str], Path] = Path,
    ) -> None:
        self.settings, self._processes = settings, processes
        self._draw, self._held_out, self._find = draw, held_out, find
        if settings.batch % processes.count:
            raise ConfigError(f"batch: must be a multiple of {processes.count}, the number of processes")
        if held_out is not None and settings.validation_samples < processes.count:
            raise ConfigError(f"validation_samples: at least {processes.count}, the number of processes")
        on_gpu = processes.device.type == "cuda"
        # as for AlphaFold2: parameters, losses and the optimiser are float32
        self._dtype = torch.bfloat16 if on_gpu else torch.float32
        self._graphs = KeptGraphs() if on_gpu else None

    def samples(self, step: int) -> Iterator[NumberedSample]:
        """Yield this process's samples from a step on, with their numbers."""
        for number in itertools.count(
            step * self.settings.batch + self._processes.rank, self._processes.count
        ):
            yield number, self._draw(number)

    def build(self, is_new: bool) -> FlatParameters:
        """Build the network; see `TrainingTask`.

        Raises:
            ConfigError: a beginning in `frozen` fits no parameter, or no parameter is left to train.
        """
        settings, device = self.settings, self._processes.device
        self.network = network = AlphaFold3(settings.network, best_kernels(device), device)
        if settings.initial_network and is_new:
            copy_trained(network, self._find(settings.initial_network))
        else:
            initialize(network, settings.seed)
        flat = FlatParameters(network.to(device), device)
        names = [name for name, _ in network.named_parameters()]
        for prefix in settings.frozen:
            if not any(name.startswith(prefix) for name in names):
                parts = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
                raise ConfigError(f"frozen: no parameter begins with {prefix!r}; the network has {parts}")
        network.requires_grad_(False)
        for name, parameter in trained_parameters(network).items():
            parameter.requires_grad_(not name.startswith(settings.frozen))
        if not any(parameter.requires_grad for parameter in network.parameters()):
            raise ConfigError("frozen: no parameter is left to train")
        if device.type == "cuda":
            network.diffusion_module.use_half_precision()
        return flat

    def start_step(self, step: int) -> StepPlan:
        """Return the number of samples of each process; the random numbers are those of each sample."""
        return StepPlan(self.settings.batch // self._processes.count)

    def backward(self, sample: NumberedSample, plan: StepPlan, gradient: StepGradient) -> Terms:
        """Add the gradient of a sample; return its losses."""
        # the logits are not kept for the backward pass
        loss, terms = self._losses(sample, self.settings.passes)[:2]
        gradient.add(loss[None])
        return {"loss": loss.detach(), **terms}

    @torch.no_grad()
    def validate(self, step: int) -> dict[str, dict[str, float]]:
        """Score the network on samples that do not change from call to call, without dropout.

        Returns:
            As `held_out` the mean of each loss, and as `lddt` that of the resolved atoms of the structures of
            the rollout.
        """
        if self._held_out is None:
            return {}
        passes, processes = replace(self.settings.passes, dropout=False), self._processes
        samples = self.settings.validation_samples
        sums: dict[str, float] = {}
        for number in range(processes.rank, samples, processes.count):
            sample = self._held_out(number)
            _, terms, output, targets = self._losses((number, sample), passes)
            lddt = atom_lddt(output.positions, sample.inputs, targets)[targets.resolved.bool()].mean()
            for name, value in {**terms, "lddt": lddt}.items():
                sums[name] = sums.get(name, 0.0) + value.item() / samples
        return {"held_out": processes.sum(sums)}

    def _losses(
        self, numbered: NumberedSample, passes: PassSettings
    ) -> tuple[torch.Tensor, Terms, TrainingOutput, AtomTargets]:
        """Return the loss of a sample, its terms, and what they compare."""
        (number, sample), settings = numbered, self.settings
        seed = settings.seed * 1_000_003 + number
        torch.manual_seed(seed)  # of dropout
        output, targets = run_pass(
            self.network,
            sample.inputs,
            lambda positions: best_targets(sample.crop, sample.experiment, positions),
            SeededTrainingDraws(seed),
            passes,
            self._dtype,
            self._graphs,
        )
        sigma_data = settings.network.diffusion.sigma_data
        loss, terms = total_loss(output, sample.inputs, targets, settings.losses, sigma_data)
        return loss, terms, output, targets
