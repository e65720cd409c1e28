"""CUDA graphs of the forward and backward pass of a micro-batch, so that small crops are not launch-bound."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from model.training.runtime.settings import Phase

Tensors = Mapping[str, torch.Tensor]
Terms = dict[str, torch.Tensor]
Backward = Callable[[Tensors, Phase, int], Terms]
# calls with the same arguments before they are captured: they compile functions and allocate workspaces
EAGER_CALLS = 2


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
        """Add the gradients of a micro-batch.

        Args:
            batch: arrays on the GPU; shapes and dtypes depend on the phase alone.
            phase: phase of the step.
            recycles: number of passes without gradients.

        Returns:
            Loss terms, which the next call does not change.
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
