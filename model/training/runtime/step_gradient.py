"""The gradient of an optimiser step: summed over micro-batches and processes, and clipped."""

import torch

from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import TrainingSettings

# keeps the factor of a gradient of zeros finite
_SMALLEST_NORM = 1e-12


class StepGradient:
    """The gradient of a step: the mean over the samples of all processes, in `FlatParameters.gradients`.

    Either its own norm is limited, or that of each micro-batch before they are averaged, which for
    micro-batches of one sample is the clipping of AlphaFold2 (supplement 1.11.3). To clip each sample of
    larger micro-batches would need a backward pass for each sample.

    Only `reduce` waits for the device.

    Args:
        flat: the parameters; backward passes add to their gradients.
        settings: settings of the run.
        processes: the processes that train together.
    """

    def __init__(
        self, flat: FlatParameters, settings: TrainingSettings, processes: TrainingProcesses
    ) -> None:
        self._flat, self._processes, self._batch = flat, processes, settings.batch
        self._clip_norm = settings.optimizer.clip_norm
        self._clips_micro_batches = settings.optimizer.clip_each == "micro_batch"
        # what the processes add up: the gradient, the norms of the micro-batches, and the requests to stop
        self._sums = torch.zeros(len(flat.gradients) + 2, device=flat.gradients.device)
        self._stop_votes = torch.zeros(())

    @property
    def stop_requested(self) -> bool:
        """True if a process had requested a stop by the last call of `reduce`."""
        return bool(self._stop_votes > 0)

    def reset(self) -> None:
        """Begin a step."""
        self._flat.gradients.zero_()
        self._sums.zero_()

    def add(self, losses: torch.Tensor) -> None:
        """Add the gradient of the losses of a micro-batch, [number of samples]."""
        gradient = self._flat.gradients
        if not self._clips_micro_batches:
            (losses.sum() / self._batch).backward()
            return
        gradient.zero_()
        losses.mean().backward()
        share = len(losses) / self._batch
        norm = torch.linalg.vector_norm(gradient)
        factor = (self._clip_norm / (norm + _SMALLEST_NORM)).clamp(max=1.0)
        self._sums[:-2].addcmul_(gradient, factor * share)
        self._sums[-2] += norm * share

    def reduce(self, stop: bool) -> float:
        """Sum the gradient over all processes; return its norm before clipping.

        If micro-batches are clipped, it is the mean of their norms: the mean of the clipped gradients would
        not show spikes.

        Args:
            stop: True if this process requests a stop.
        """
        gradient = self._flat.gradients
        if not self._clips_micro_batches:
            self._sums[:-2] = gradient
        self._sums[-1] = float(stop)
        # takes about a millisecond per step, so it does not overlap with the backward pass
        self._processes.add(self._sums)
        gradient.copy_(self._sums[:-2])
        self._stop_votes = self._sums[-1].clone()
        return float(self._sums[-2] if self._clips_micro_batches else torch.linalg.vector_norm(gradient))

    def clip(self, norm: float) -> None:
        """Clip the gradient unless its micro-batches have been clipped."""
        if not self._clips_micro_batches:
            self._flat.gradients.mul_(min(1.0, self._clip_norm / (norm + _SMALLEST_NORM)))
