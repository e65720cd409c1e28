"""Settings of clipping, and the gradients of micro-batches."""

from dataclasses import replace

import torch

from model.training.runtime.settings import TrainingSettings
from model.training.runtime.step import StepGradient, StepPlan, Terms
from model.training.runtime.trainer import Trainer


def clipping(settings: TrainingSettings, clip_each: str, clip_norm: float = 0.1) -> TrainingSettings:
    """Return settings with another clipping and without validation."""
    optimizer = replace(settings.optimizer, clip_each=clip_each, clip_norm=clip_norm)
    return replace(settings, optimizer=optimizer, validate_every=0)


def record_gradients(trainer: Trainer) -> list[torch.Tensor]:
    """Make the trainer record the gradient of the mean loss of each of its micro-batches, in float64."""
    recorded: list[torch.Tensor] = []
    backward = trainer.task.backward

    def record(batch: dict[str, torch.Tensor], plan: StepPlan, gradient: StepGradient) -> Terms:
        trainer.flat.gradients.zero_()
        terms = backward(batch, plan, gradient)
        scale = trainer.settings.batch // plan.phase.micro_batch
        recorded.append(trainer.flat.gradients.double() * scale)
        return terms

    trainer.task.backward = record  # type: ignore[method-assign, assignment]
    return recorded
