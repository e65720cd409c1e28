"""The training loop of an all-atom network: steps, moving average, checkpoints.

Each step depends on the settings, the samples and its number alone, so that a run goes on from a checkpoint
bit for bit on the same kind of device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.errors import ConfigError, TrainingDiverged
from model.layers.graphs import KeptGraphs
from model.training.alphafold3.head_losses import atom_lddt
from model.training.alphafold3.losses import AllAtomLossWeights, TrainingOutput, total_loss
from model.training.alphafold3.network import PassSettings, run_pass, trained_parameters
from model.training.alphafold3.noise import SeededTrainingDraws
from model.training.alphafold3.permutation import Crop, Experiment, best_targets
from model.training.alphafold3.targets import AtomTargets
from model.training.runtime.checkpoint import FULL_NAME, Progress, load_full, save_full
from model.training.runtime.parameters import MOMENTS, FlatParameters, adam_step
from model.training.runtime.processes import TrainingProcesses

# keeps the factor of a gradient of zeros finite
_SMALLEST_NORM = 1e-12


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of a training run; the defaults are OpenFold3's.

    Args:
        seed: seed of samples, noise and dropout.
        batch: samples of a step.
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
    """

    seed: int = 0
    batch: int = 1
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

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        warmup = min(1.0, (step + 1) / max(1, self.warmup_steps))
        return self.learning_rate * warmup * self.decay_factor ** (step // self.decay_every)


@dataclass(frozen=True)
class TrainerSample:
    """A crop and its experimental structure.

    Args:
        inputs: the crop.
        crop: its molecules, on the CPU.
        experiment: the experimental structure with all copies of its molecules, on the CPU.
    """

    inputs: AlphaFold3Inputs
    crop: Crop
    experiment: Experiment


@dataclass(frozen=True)
class AllAtomReport:
    """The results of a step.

    Args:
        step: number of steps done, this one included.
        terms: mean of each loss over the samples, and their weighted sum as `loss`.
        gradient_norm: mean norm of the samples' gradients before clipping.
        learning_rate: learning rate of the step.
        skipped: True if nothing changed, because a gradient was not finite.
        stop_requested: True if a process requested a stop before the step.
    """

    step: int
    terms: dict[str, float]
    gradient_norm: float
    learning_rate: float
    skipped: bool
    stop_requested: bool


class AllAtomTrainer:
    """A training run of a network from its initial parameters.

    `draw` returns the sample of a number, its inputs on the network's device. The processes train together,
    by default this one alone.

    Raises:
        ConfigError: a beginning in `frozen` fits no parameter, no parameter is left to train, or the batch is
            not a multiple of the number of processes.

    Attributes:
        progress: the progress of the run.
        flat: the parameters.
    """

    def __init__(
        self,
        network: AlphaFold3,
        draw: Callable[[int], TrainerSample],
        settings: TrainerSettings,
        processes: TrainingProcesses | None = None,
    ) -> None:
        self.network, self.settings, self._draw = network, settings, draw
        device = network.linear_z.weight.device
        self._processes = processes or TrainingProcesses(0, 1, device)
        if settings.batch % self._processes.count:
            raise ConfigError(
                f"batch: must be a multiple of {self._processes.count}, the number of processes"
            )
        self.flat = FlatParameters(network, device)
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
        # as for AlphaFold2: parameters, losses and the optimiser are float32
        self._dtype = torch.bfloat16 if self.flat.values.is_cuda else torch.float32
        if self.flat.values.is_cuda:
            network.diffusion_module.use_half_precision()
            # as for AlphaFold2, and in predictions with half-precision operands
            torch.set_float32_matmul_precision("high")
        self.moments = {name: torch.zeros_like(self.flat.values) for name in MOMENTS}
        self.progress = Progress()
        self._graphs = KeptGraphs() if self.flat.values.is_cuda else None
        self._skipped = 0

    def step(self, stop: bool = False) -> AllAtomReport:
        """Make one step.

        Args:
            stop: True if this process requests a stop.

        Raises:
            TrainingDiverged: too many consecutive steps had a gradient that is not finite.
        """
        settings, step, processes = self.settings, self.progress.step, self._processes
        gradients = self.flat.gradients
        total = torch.zeros_like(gradients) if settings.batch > processes.count else gradients
        sums: dict[str, float] = {}
        norms = 0.0
        first = step * settings.batch
        for number in range(first + processes.rank, first + settings.batch, processes.count):
            gradients.zero_()
            for name, value in self._backward(number).items():
                sums[name] = sums.get(name, 0.0) + value / settings.batch
            norm = float(torch.linalg.vector_norm(gradients))
            factor = min(1.0, settings.clip_norm / (norm + _SMALLEST_NORM)) / settings.batch
            if total is gradients:
                total.mul_(factor)
            else:
                total.add_(gradients, alpha=factor)
            norms += norm / settings.batch
        gradients.copy_(total)
        if processes.count > 1:
            processes.add(gradients)
            shared = torch.tensor([norms, float(stop), *sums.values()], device=gradients.device)
            processes.add(shared)
            norms, votes, *values = shared.tolist()
            stop, sums = votes > 0, dict(zip(sums, values, strict=True))
        rate, skipped = settings.rate(step), not math.isfinite(norms)
        if skipped:
            self._skip(step)
        else:
            self._skipped = 0
            count = step + 1 - self.progress.moments_from
            adam_step(self.flat, self.moments, rate, count, settings.beta1, settings.beta2, settings.epsilon)
            self.flat.update_average(settings.ema_decay, step + 1)
        self.progress = replace(self.progress, step=step + 1, samples=self.progress.samples + settings.batch)
        return AllAtomReport(step + 1, sums, norms, rate, skipped, stop)

    def _backward(self, number: int) -> dict[str, float]:
        """Add the gradient of a sample; return its losses."""
        # the logits are not kept for the backward pass
        loss, terms = self._losses(self._draw(number), number, self.settings.passes)[:2]
        loss.backward()
        return {"loss": loss.item()} | {name: term.item() for name, term in terms.items()}

    @torch.no_grad()
    def validate(self, draw: Callable[[int], TrainerSample], samples: int) -> dict[str, float]:
        """Score the averaged network on samples that do not change from call to call, without dropout.

        Returns:
            The mean of each loss, and as `lddt` that of the resolved atoms of the structures of the rollout.
        """
        passes, processes = replace(self.settings.passes, dropout=False), self._processes
        sums: dict[str, float] = {}
        with self.flat.using_average():
            for number in range(processes.rank, samples, processes.count):
                sample = draw(number)
                _, terms, output, targets = self._losses(sample, number, passes)
                lddt = atom_lddt(output.positions, sample.inputs, targets)[targets.resolved.bool()].mean()
                for name, value in {**terms, "lddt": lddt}.items():
                    sums[name] = sums.get(name, 0.0) + value.item() / samples
        if processes.count > 1:
            shared = torch.tensor([*sums.values()], device=self.flat.values.device)
            processes.add(shared)
            sums = dict(zip(sums, shared.tolist(), strict=True))
        return sums

    def _losses(
        self, sample: TrainerSample, number: int, passes: PassSettings
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor], TrainingOutput, AtomTargets]:
        """Return the loss of a sample, its terms, and what they compare."""
        settings = self.settings
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
        sigma_data = self.network.config.diffusion.sigma_data
        loss, terms = total_loss(output, sample.inputs, targets, settings.losses, sigma_data)
        return loss, terms, output, targets

    def _skip(self, step: int) -> None:
        self._skipped += 1
        if self._skipped > self.settings.max_skipped:
            raise TrainingDiverged(
                f"{self._skipped} steps in a row had a gradient that was not finite, the last one at {step}"
            )

    def save(self, run: Path) -> None:
        """Write a checkpoint to a folder, atomically replacing the previous one; the first process does."""
        if self._processes.rank:
            return
        run.mkdir(parents=True, exist_ok=True)
        save_full(run, self.flat, self.moments, self.network.config, self.progress)

    def load(self, run: Path) -> None:
        """Continue from the checkpoint in a folder; without one, from the beginning.

        Raises:
            DataError: it belongs to another network.
        """
        if (run / FULL_NAME).exists():
            self.progress = load_full(run, self.flat, self.moments, self.network.config)
