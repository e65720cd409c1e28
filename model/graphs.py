"""Modules captured as CUDA graphs.

For short proteins, launching the kernels takes longer than running them. Replaying a graph avoids that.

The first pass calls the modules normally, to compile and load kernels and to pack weights. The second pass
captures each module and replays it, so that the GPU computes one module while the next is captured. Later
passes only replay. A graph always uses the same memory: inputs are copied into its own tensors, and results
out of them. Graphs run the same kernels as normal calls, with bit-identical results.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from cuda.fused.chunking import planned_budget

# for longer proteins the kernels run long enough to hide the launches
MAX_GRAPH_RESIDUES = 512

Tensors = tuple[torch.Tensor, ...]


class GraphedModules:
    """Modules called one after another with the same arguments, captured as CUDA graphs if possible.

    Modules with hooks are always called normally, and so are all modules if a tensor is not on a GPU.

    Args:
        modules: modules that take tensors or None and may modify them; the last one's result is returned.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.modules = tuple(modules)
        self.enabled = True
        self._reset(None)

    def _reset(self, key: Any) -> None:
        self._key = key
        self._inputs: tuple[torch.Tensor | None, ...] = ()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._result: Tensors = ()

    def __call__(self, residues: int, *tensors: torch.Tensor | None) -> Any:
        """Call the modules and return the last one's result, which never shares memory with a graph.

        Args:
            residues: length of the protein, which decides whether graphs are used.
            tensors: arguments of each module.
        """
        if not self._use_graphs(residues, tensors):
            self._reset(None)
            return _call_all(self.modules, tensors)
        key = (planned_budget(), *(None if x is None else (x.shape, x.dtype) for x in tensors))
        if key != self._key:
            self._reset(key)
            return _call_all(self.modules, tensors)
        if not self._inputs:
            self._inputs = tuple(None if x is None else x.clone() for x in tensors)
        else:
            for buffer, tensor in zip(self._inputs, tensors, strict=True):
                if buffer is not None and tensor is not None:
                    buffer.copy_(tensor)
        for index, module in enumerate(self.modules):
            if index == len(self._graphs) and not self._capture(module):
                return _clone_all(_call_all(self.modules[index:], self._inputs))
            self._graphs[index].replay()
        return _clone_all(self._result)

    def _use_graphs(self, residues: int, tensors: Sequence[torch.Tensor | None]) -> bool:
        on_gpu = all(x is None or x.is_cuda for x in tensors)
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in self.modules)
        return self.enabled and on_gpu and residues <= MAX_GRAPH_RESIDUES and not hooked

    def _capture(self, module: nn.Module) -> bool:
        """Capture one module; return False if that fails, and disable graphs from then on."""
        graph = torch.cuda.CUDAGraph()
        try:
            pool, stream, _ = _capture_resources()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                # thread_local: other threads, such as one that copies features, may allocate during capture
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self._result = module(*self._inputs)
                finally:
                    graph.capture_end()
        except RuntimeError:
            # includes lack of memory for the graph's own tensors; a normal call may still fit
            self.enabled = False
            return False
        self._graphs.append(graph)
        return True


def _call_all(modules: Sequence[nn.Module], tensors: Sequence[torch.Tensor | None]) -> Tensors:
    result: Tensors = ()
    for module in modules:
        result = module(*tensors)
    return result


def _clone_all(tensors: Tensors) -> Tensors:
    return tuple(x.clone() for x in tensors)


@cache
def _capture_resources() -> tuple[Any, torch.cuda.Stream, torch.cuda.CUDAGraph]:
    """Return the graphs' common memory pool, the stream to capture on, and a graph that keeps the pool alive.

    Graphs can share a pool because they run one after another. Without the third value the allocator would
    retire the pool as soon as no other graph uses it.
    """
    pool, stream, keeper = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        keeper.capture_begin(pool=pool, capture_error_mode="thread_local")
        torch.zeros(1, device=stream.device)
        keeper.capture_end()
    return pool, stream, keeper
