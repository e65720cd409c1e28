"""Blocks recorded as CUDA graphs: to queue a short protein's operations takes longer than to run them.

The first pass of a network runs as it is, so that everything is compiled, packed and loaded. In the second
each block is recorded and then replayed, so that the GPU works on one block while the next is recorded; later
passes replay. A graph reads and writes the same memory each time: inputs are copied into tensors of its own,
and results out of them. The kernels are those of the first pass, and so are the bits.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from cuda.fused.chunking import planned_budget

# residues; what longer proteins compute hides the queueing
LONGEST = 512

Tensors = tuple[torch.Tensor, ...]


class Recorded:
    """Modules called one after the other with the same arguments; the last one's result counts.

    Args:
        calls: they may write to their arguments. With hooks they are not recorded, nor without a CUDA device.
    """

    def __init__(self, calls: Iterable[nn.Module]) -> None:
        self.calls = tuple(calls)
        self.possible = True
        self._forget(None)

    def _forget(self, key: Any) -> None:
        self._key = key
        self._inputs: tuple[torch.Tensor | None, ...] = ()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._result: Tensors = ()

    def __call__(self, residues: int, *tensors: torch.Tensor | None) -> Any:
        """The result, which is no memory of a graph's.

        Args:
            residues: decides whether it is worth it.
            tensors: the arguments, None included.
        """
        if not self._worth_it(residues, tensors):
            self._forget(None)
            return _run(self.calls, tensors)
        key = (planned_budget(), *(None if x is None else (x.shape, x.dtype) for x in tensors))
        if key != self._key:
            self._forget(key)
            return _run(self.calls, tensors)
        if not self._inputs:
            self._inputs = tuple(None if x is None else x.clone() for x in tensors)
        else:
            for own, given in zip(self._inputs, tensors, strict=True):
                if own is not None and given is not None:
                    own.copy_(given)
        for index, call in enumerate(self.calls):
            if index == len(self._graphs) and not self._record(call):
                return _copied(_run(self.calls[index:], self._inputs))
            self._graphs[index].replay()
        return _copied(self._result)

    def _worth_it(self, residues: int, tensors: Sequence[torch.Tensor | None]) -> bool:
        on_gpu = all(x is None or x.is_cuda for x in tensors)
        hooked = any(call._forward_hooks or call._forward_pre_hooks for call in self.calls)
        return self.possible and on_gpu and residues <= LONGEST and not hooked

    def _record(self, call: nn.Module) -> bool:
        """Record one call; False where it cannot be."""
        graph = torch.cuda.CUDAGraph()
        try:
            pool, stream, _ = _shared()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                # other threads, such as one that copies, may go on allocating
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self._result = call(*self._inputs)
                finally:
                    graph.capture_end()
        except RuntimeError:
            # also where memory is too short for a graph's own: the call itself may still fit
            self.possible = False
            return False
        self._graphs.append(graph)
        return True


def _run(calls: Sequence[nn.Module], tensors: Sequence[torch.Tensor | None]) -> Tensors:
    result: Tensors = ()
    for call in calls:
        result = call(*tensors)
    return result


def _copied(tensors: Tensors) -> Tensors:
    return tuple(x.clone() for x in tensors)


@cache
def _shared() -> tuple[Any, torch.cuda.Stream, torch.cuda.CUDAGraph]:
    """The memory pool of all graphs, which run one after the other, and the stream they are recorded on.

    The graph keeps the pool: once no graph uses it, the allocator would take no more recordings into it.
    """
    pool, stream, keeper = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        keeper.capture_begin(pool=pool, capture_error_mode="thread_local")
        torch.zeros(1, device=stream.device)
        keeper.capture_end()
    return pool, stream, keeper
