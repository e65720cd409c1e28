"""The gradient of an optimiser step, and the CUDA graphs of its micro-batches.

The gradient is summed over micro-batches and processes, and clipped. With graphs, small crops are not bound
by kernel launches.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase, TrainingSettings

# keeps the factor of a gradient of zeros finite
_SMALLEST_NORM = 1e-12

Tensors = Mapping[str, torch.Tensor]
Terms = dict[str, torch.Tensor]
Backward = Callable[[Tensors, Phase, int], Terms]
# calls with the same arguments before they are captured: they compile functions and allocate workspaces
EAGER_CALLS = 2


class StepGradient:
    """The gradient of a step: the mean over the samples of all processes, in `FlatParameters.gradients`.

    Backward passes add to these gradients. Either the gradient's own norm is limited, or that of each
    micro-batch before they are averaged, which for micro-batches of one sample is the clipping of AlphaFold2
    (supplement 1.11.3). To clip each sample of larger micro-batches would need a backward pass for each
    sample.

    Only `reduce` waits for the device.
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


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    terms: Terms


class StepGraphs:
    """A function that adds the gradients of a micro-batch, captured once per phase and number of recycles.

    Results are those of calling the function itself, random numbers included: a replay reads the seed and
    the offset of the default generator, as the launches would. Graphs share one memory pool, since only one
    of them runs at a time.

    Args:
        backward: adds gradients to tensors that stay in the same memory, and returns loss terms. It may
            neither wait for the GPU nor copy from the CPU.
        device: the GPU.
    """

    def __init__(self, backward: Backward, device: torch.device) -> None:
        self._backward = backward
        # capturing needs a stream other than the default one, and autograd must have seen no other
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._calls: Counter[tuple[Phase, int]] = Counter()
        self._graphs: dict[tuple[Phase, int], _Captured] = {}

    def __call__(self, batch: Tensors, phase: Phase, recycles: int) -> Terms:
        """Add the gradients of a micro-batch; return loss terms, which the next call does not change.

        Shapes and dtypes of the batch, which is on the GPU, depend on the phase alone; `recycles` is the
        number of passes without gradients.
        """
        key = phase, recycles
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            if self._calls[key] < EAGER_CALLS:
                self._calls[key] += 1
                terms = self._backward(batch, phase, recycles)
            else:
                if key not in self._graphs:
                    self._graphs[key] = self._capture(batch, phase, recycles)
                captured = self._graphs[key]
                for name, tensor in captured.inputs.items():
                    tensor.copy_(batch[name])
                captured.graph.replay()
                terms = {name: value.clone() for name, value in captured.terms.items()}
        current.wait_stream(self._stream)
        for value in (*batch.values(), *terms.values()):
            value.record_stream(self._stream)
            value.record_stream(current)
        return terms

    def _capture(self, batch: Tensors, phase: Phase, recycles: int) -> _Captured:
        inputs = {name: tensor.clone() for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        # thread_local: the thread that pins the next batch's memory may go on during the capture
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            terms = self._backward(inputs, phase, recycles)
        return _Captured(graph, inputs, terms)
