"""The settings of a training run, read from YAML with every key checked."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from model.alphafold2.modules.config import ModelConfig
from model.alphafold3.config import AlphaFold3Config
from model.dataclass_mapping import flat_values, from_mapping
from model.errors import ConfigError
from model.training.data.sampling import TrainingSampleSettings
from msa.base.hardware import available_cores

Settings = TypeVar("Settings")
Architecture = ModelConfig | AlphaFold3Config
# PyYAML reads nested brackets in quadratic time
_MAX_BRACKETS = 1000
KERNELS = ("auto", "fused", "reference")
CLIPPED = ("batch", "micro_batch")
# steps over which the learning rate rises again after Adam's moments were reset
RESTART_WARMUP = 100
# kinds of numbers, and what is wrong with others, NaN included
AT_LEAST_ONE = "at least 1 is needed"
NOT_NEGATIVE = "a number from 0 on is needed"
POSITIVE = "a positive number is needed"
BELOW_ONE = "a number from 0 to less than 1 is needed"
SHARE = "a number from 0 to 1 is needed"
_ALLOWED: dict[str, Callable[[float], bool]] = {
    AT_LEAST_ONE: lambda x: x >= 1,
    NOT_NEGATIVE: lambda x: 0 <= x < math.inf,
    POSITIVE: lambda x: 0 < x < math.inf,
    BELOW_ONE: lambda x: 0 <= x < 1,
    SHARE: lambda x: 0 <= x <= 1,
}
_NUMBERS = {
    AT_LEAST_ONE: ("batch", "optimizer.max_skipped"),
    NOT_NEGATIVE: (
        "max_recycles", "validate_every", "checkpoint_every", "validation_chains", "workers",
        "sampling.templates", "sampling.extra_rows", "optimizer.warmup_steps",
        "optimizer.final_learning_rate",
    ),
    POSITIVE: ("optimizer.learning_rate", "optimizer.epsilon", "optimizer.clip_norm"),
    BELOW_ONE: ("optimizer.beta1", "optimizer.beta2", "optimizer.ema_decay"),
    SHARE: ("memory_budget",),
}  # fmt: skip
_PHASE_NUMBERS = {
    AT_LEAST_ONE: ("steps", "crop", "micro_batch"),
    NOT_NEGATIVE: ("learning_rate_factor",),
    SHARE: ("clamped_rate",),
}


def check_numbers(settings: Any, kinds: Mapping[str, Iterable[str]], path: str = "") -> None:
    """Check that numbers of nested dataclasses are of the given kinds, and sizes of the network at least 1.

    Raises:
        ConfigError: one is not.
    """
    values = flat_values(settings)
    sizes = [key for key, x in values.items() if key.startswith("network.") and type(x) is int]
    for problem, keys in ((AT_LEAST_ONE, sizes), *kinds.items()):
        for key in keys:
            if not _ALLOWED[problem](values[key]):
                raise ConfigError(f"{path}{key}: {problem}")


def check_weights(weights: Any, name: str) -> None:
    """Raise ConfigError if a weight is negative or not finite, or none is positive."""
    # not vars(), which lacks fields that a configuration leaves out
    values = flat_values(weights).values()
    if not (min(values) >= 0 and 0 < sum(values) < math.inf):
        raise ConfigError(f"{name}: weights must not be negative, and one must be positive")


def check_seed(seed: int) -> None:
    """Raise ConfigError for a seed of which generators could not make their own."""
    if not 0 <= seed < 2**32:
        raise ConfigError("seed: a number from 0 to 4,294,967,295 is needed")


def available_workers() -> int:
    """Return the cores that this process may use, divided among the processes of torchrun on this host."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, available_cores() // processes)


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of Adam with warm-up and cosine decay.

    Args:
        learning_rate: highest learning rate.
        final_learning_rate: learning rate of the last step.
        warmup_steps: steps over which the rate rises from 0.
        beta1, beta2, epsilon: constants of Adam.
        clip_norm: largest norm of the gradient of what `clip_each` names.
        clip_each: "batch" clips the gradient of a step, "micro_batch" that of each micro-batch before they
            are averaged; with phases of `micro_batch: 1`, that of each sample, as in AlphaFold2 (1.11.3).
        ema_decay: decay of the moving average of the parameters, per step.
        spike_factor: a step whose gradient norm exceeds the recent median by this factor is skipped.
        max_skipped: consecutive skipped steps after which training stops.
    """

    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-5
    warmup_steps: int = 500
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip_norm: float = 0.1
    clip_each: str = "batch"
    ema_decay: float = 0.999
    spike_factor: float = 20.0
    max_skipped: int = 20


@dataclass(frozen=True)
class LossWeights:
    """Weights of the losses; a loss with weight 0 is not computed.

    Args:
        backbone: FAPE of the backbone frames, mean over all iterations of the structure module.
        side_chain: FAPE of all rigid groups and atoms of the last iteration.
        torsion: loss of the chi angles and of the norms of all predicted angles.
        distogram, masked_msa, predicted_lddt, predicted_aligned_error, experimentally_resolved: cross-entropy
            of the head of this name.
        violation: bonds, angles and clashes of the predicted structure.
        distance: errors of CA distances; not in AlphaFold2, but early structures unfold faster with it.
    """

    backbone: float = 0.5
    side_chain: float = 0.5
    torsion: float = 1.0
    distogram: float = 0.3
    masked_msa: float = 2.0
    predicted_lddt: float = 0.01
    predicted_aligned_error: float = 0.0
    experimentally_resolved: float = 0.0
    violation: float = 0.0
    distance: float = 0.0


@dataclass(frozen=True)
class Phase:
    """A part of the training with one crop size and one set of loss weights.

    Args:
        steps: optimiser steps.
        crop: residues of a sample.
        micro_batch: samples that one GPU computes at once.
        learning_rate_factor: factor of the learning rate.
        clamped_rate: share of the samples whose backbone FAPE is clamped at 10 Å.
        losses: weights of the losses.
    """

    steps: int = 12000
    crop: int = 128
    micro_batch: int = 16
    learning_rate_factor: float = 1.0
    clamped_rate: float = 0.9
    losses: LossWeights = field(default_factory=LossWeights)


@dataclass(frozen=True)
class TrainingRunSettings(ABC):
    """Settings of a training run that networks of all kinds have.

    Args:
        network: the shape of the network.
        data: folder of the training data, or empty.
        initial_network: parameters of the same shape that the run starts from; empty to draw them.
        seed: seed of parameters, samples, noise and dropout.
        batch: samples per step, over all GPUs.
        validate_every: steps between validations, 0 for none.
        checkpoint_every: steps between checkpoints, 0 for one at the end.
    """

    network: Architecture
    data: str = ""
    initial_network: str = ""
    seed: int = 0
    batch: int = 1
    validate_every: int = 1000
    checkpoint_every: int = 1000

    @property
    @abstractmethod
    def total_steps(self) -> int:
        """Number of steps of the run."""

    @property
    @abstractmethod
    def adam(self) -> OptimizerSettings:
        """Settings of the optimiser."""

    @abstractmethod
    def rate(self, step: int, moments_from: int = 0) -> float:
        """Return the learning rate of a step, counted from 0; Adam's moments started at `moments_from`."""


@dataclass(frozen=True)
class TrainingSettings(TrainingRunSettings):
    """Settings of a training run of an AlphaFold2 network.

    `initial_network` is the folder of a packaged network, "compact" for the one in the package, or DeepMind's
    params_model_*.npz of a monomer network.

    Args:
        max_recycles: largest number of passes before the one that is trained; the number is drawn uniformly.
        phases: phases of the run, in order.
        sampling: settings of the training samples.
        optimizer: settings of the optimiser.
        validation_chains: number of chains of each held-out set to score; the first ones are taken.
        checkpoint_blocks: recompute each block in the backward pass to save memory.
        memory_budget: fraction of the intermediates that compiled blocks store for the backward pass; the
            others are recomputed. 1 stores all that are slow to recompute.
        compile: compile the network's blocks.
        cuda_graphs: capture the passes of a micro-batch, so that a GPU does not wait for launches; excludes
            `checkpoint_blocks`.
        kernels: "fused" for GPU kernels, "reference" for plain PyTorch, or "auto", which is "fused" on a GPU.
        workers: processes that make samples, for each GPU; by default as many as this process has cores.
        training_data: the training data in words, for the manifest of `foldcli train --package`.
        licence: licence of the network, for this manifest.
    """

    network: ModelConfig = field(default_factory=lambda: ModelConfig("compact"))
    batch: int = 64
    max_recycles: int = 2
    phases: tuple[Phase, ...] = (Phase(),)
    sampling: TrainingSampleSettings = field(default_factory=TrainingSampleSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    validate_every: int = 500
    validation_chains: int = 150
    checkpoint_blocks: bool = False
    memory_budget: float = 1.0
    compile: bool = True
    cuda_graphs: bool = False
    kernels: str = "auto"
    workers: int = field(default_factory=available_workers)
    training_data: str = "unspecified data"
    licence: str = "unspecified licence"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not self.phases:
            raise ConfigError("phases: at least one is needed")
        check_numbers(self, _NUMBERS)
        rates = [key for key, x in flat_values(self.sampling).items() if type(x) is float]
        check_numbers(self.sampling, {SHARE: rates}, "sampling.")
        for number, phase in enumerate(self.phases):
            check_numbers(phase, _PHASE_NUMBERS, f"phases[{number}].")
            check_weights(phase.losses, f"phases[{number}].losses")
            if phase.losses.predicted_aligned_error and not self.network.predicted_aligned_error:
                problem = "needs network.predicted_aligned_error"
                raise ConfigError(f"phases[{number}].losses.predicted_aligned_error: {problem}")
            if self.batch % phase.micro_batch:
                raise ConfigError(f"phases[{number}].micro_batch: must divide the batch of {self.batch}")
        if self.sampling.clusters < 1:
            raise ConfigError("sampling.msa_rows: must exceed the template slots")
        if self.cuda_graphs and self.checkpoint_blocks:
            # recomputing a block reads the state of the random generator, which a capture may not
            raise ConfigError("cuda_graphs: not together with checkpoint_blocks")
        if self.kernels not in KERNELS:
            raise ConfigError(f"kernels: expected one of {', '.join(KERNELS)}, got {self.kernels!r}")
        if self.optimizer.clip_each not in CLIPPED:
            raise ConfigError(
                f"optimizer.clip_each: expected one of {', '.join(CLIPPED)}, got {self.optimizer.clip_each!r}"
            )
        if not self.optimizer.spike_factor > 0:  # infinite: no step is skipped
            raise ConfigError(f"optimizer.spike_factor: {POSITIVE}")
        if self.network.evoformer.pair.channels != self.network.extra_msa.pair.channels:
            raise ConfigError("network.extra_msa.pair.channels: must be those of network.evoformer.pair")
        if (self.network.template is None) != (self.sampling.templates == 0):
            raise ConfigError("sampling.templates: must be 0 for a network without templates, and only there")

    @property
    def total_steps(self) -> int:
        """Steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    def phase_at(self, step: int) -> Phase:
        """Return the phase of a step, counted from 0; the last phase for steps after its end."""
        for phase in self.phases:
            if step < phase.steps:
                return phase
            step -= phase.steps
        return self.phases[-1]

    @property
    def adam(self) -> OptimizerSettings:
        """Settings of the optimiser."""
        return self.optimizer

    def rate(self, step: int, moments_from: int = 0) -> float:
        """Return the learning rate of a step, counted from 0: linear warm-up, then a cosine.

        The rate rises again from the step at which Adam's moments started from zero.
        """
        options = self.optimizer
        warmup = min(1.0, (step + 1) / max(1, options.warmup_steps))
        if moments_from:
            warmup *= min(1.0, (step - moments_from + 1) / RESTART_WARMUP)
        progress = min(1.0, step / max(1, self.total_steps))
        span = options.learning_rate - options.final_learning_rate
        rate = options.final_learning_rate + span * 0.5 * (1.0 + math.cos(math.pi * progress))
        return rate * warmup * self.phase_at(step).learning_rate_factor


def settings_of(settings_type: type[Settings], content: Any, path: Path) -> Settings:
    """Return the settings in the content of a YAML file.

    Raises:
        ConfigError: an unknown key or a value of the wrong type.
    """
    try:
        return from_mapping(settings_type, content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_content(path: Path) -> Any:
    """Return the content of a YAML file, which is a mapping in a configuration.

    Raises:
        ConfigError: it is not YAML.
    """
    try:
        text = path.read_text()
        if text.count("[") + text.count("{") > _MAX_BRACKETS:
            raise ValueError("too many brackets")
        return yaml.safe_load(text) or {}
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
    # invalid UTF-8, and numbers, dates or characters that do not exist, raise ValueError or OverflowError
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: not YAML ({' '.join(str(error).split()):.300})") from error
