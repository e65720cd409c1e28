"""Modules replayed as CUDA graphs.

For short proteins, launching the kernels takes longer than running them. Replaying a graph avoids that.

The blocks of a stack differ only in their weights. One block is captured, with separate memory for weights,
and replayed for all blocks: before each replay, a block's weights are copied to that memory, which takes the
GPU about as long as one small kernel. The iterations of the structure module even share their weights. A
protein of a new length therefore costs the capture of one block or iteration.

A graph always uses the same memory: inputs are copied into its own tensors, and results out of them. Graphs
run the same kernels as normal calls, with bit-identical results.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from cuda.fused.chunking import planned_budget
from cuda.fused.weights import prepared_tensors, separate_cache

# for longer proteins the kernels run long enough to hide the launches
MAX_GRAPH_RESIDUES = 512
# failed captures after which no more are tried
MAX_FAILURES = 3

Tensors = tuple[torch.Tensor, ...]


class GraphedModules:
    """Modules of one structure, called one after another with the same arguments, as CUDA graphs if possible.

    Graphs are used in inference mode, for tensors on a GPU and modules without hooks; otherwise the modules
    are called normally. A normal call is also needed for each module whose weights have not been prepared for
    the kernels yet (`cuda.fused.weights.cached_weights`).

    Args:
        modules: modules that take tensors or None and may modify them, and return one tensor or a tuple.
        repeats: how often all modules are called.
        max_residues: length up to which graphs are used; None for MAX_GRAPH_RESIDUES.
        share_error: returns the error of a step of the capture, empty if it succeeded, or that of another
            process whose modules communicate with these. Either of them ends the capture in all processes.

    Attributes:
        error: the error of the last failed capture since `release`, or an empty string.
    """

    def __init__(
        self,
        modules: Iterable[nn.Module],
        repeats: int = 1,
        max_residues: int | None = None,
        share_error: Callable[[str], str] = str,
    ) -> None:
        self.modules, self._repeats, self._max_residues = tuple(modules), repeats, max_residues
        self.enabled, self.error = True, ""
        self._failures, self._share_error = 0, share_error
        self._shared: SharedModule | None = None
        self._reset(None)

    def _reset(self, key: Any) -> None:
        self._key = key
        self._inputs: tuple[torch.Tensor | None, ...] = ()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensors = ()

    def __call__(self, residues: int, *tensors: torch.Tensor | None) -> Any:
        """Call the modules on tensors; return the last one's tensors, which never share memory with a graph.

        Graphs are used up to a number of residues.
        """
        if not self._use_graphs(residues, tensors):
            self._reset(None)
            return self._call_modules(tensors)
        key = (planned_budget(), *(None if x is None else (x.shape, x.dtype) for x in tensors))
        if key != self._key:
            self._reset(key)
        shared = self._shared = self._shared or SharedModule(self.modules)
        graph = self._graph = self._graph or self._capture(shared, tensors)
        if graph is None:
            return self._call_modules(tensors)
        self._set_inputs(tensors)
        result: Tensors = ()
        for index in [*range(len(self.modules))] * self._repeats:
            if shared.load(index):
                graph.replay()
                result = self._result
            else:
                # its weights have changed
                result = _as_tuple(self.modules[index](*self._inputs))
        return tuple(x.clone() for x in result)

    def release(self) -> None:
        """Release the graphs and all their memory, which other tensors can use then."""
        if self._shared is not None:
            self._shared, self.error = None, ""
            self._reset(None)
            # no new graph keeps the memory of these ones
            _capture_resources.cache_clear()

    def _use_graphs(self, residues: int, tensors: Sequence[torch.Tensor | None]) -> bool:
        on_gpu = all(x is None or x.is_cuda for x in tensors)
        has_hooks = any(map(module_has_hooks, self.modules))
        is_short = residues <= (self._max_residues or MAX_GRAPH_RESIDUES)
        return self.enabled and is_short and on_gpu and not has_hooks and torch.is_inference_mode_enabled()

    def _call_modules(self, tensors: Sequence[torch.Tensor | None]) -> Tensors:
        """Call the modules normally; return the last one's tensors."""
        result: Tensors = ()
        for module in self.modules * self._repeats:
            result = _as_tuple(module(*tensors))
        return result

    def _set_inputs(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """Copy arguments to the tensors that the graph uses."""
        if not self._inputs:
            self._inputs = tuple(None if x is None else x.clone() for x in tensors)
            return
        for buffer, tensor in zip(self._inputs, tensors, strict=True):
            if buffer is not None and tensor is not None:
                buffer.copy_(tensor)

    def _capture(
        self, shared: "SharedModule", tensors: Sequence[torch.Tensor | None]
    ) -> torch.cuda.CUDAGraph | None:
        """Capture a module unless weights have to be prepared first; if that fails often, disable graphs.

        Processes whose modules communicate take the same branches, because each knows the errors of all.
        """
        self._set_inputs(tensors)
        # loads the kernels, and prepares what they need for these shapes
        shared.module(*self._inputs)
        if self._share_error("" if shared.is_prepared() else "weights have to be prepared"):
            return None
        graph, error = None, ""
        try:
            with capturing(next(x.device for x in self._inputs if x is not None)) as graph:
                self._result = _as_tuple(shared.module(*self._inputs))
        except RuntimeError as failure:
            # includes lack of memory for the graph's own tensors; a normal call may still fit
            error = str(failure) or type(failure).__name__
        if error := self._share_error(error):
            graph, self._result, self.error = None, (), error
            self._failures += 1
            self.enabled = self._failures < MAX_FAILURES
        return graph


class GraphedFunction:
    """A function of tensors of the same shapes, replayed as a CUDA graph from its second or first call on.

    The result is overwritten by the next call. On a CPU, and if the capture fails, the function is called
    normally.

    Args:
        function: launches the same kernels in each call, and never waits for the GPU.
        is_loaded: whether the kernels were loaded and the weights prepared before.

    Attributes:
        error: the error of the last failed capture, or an empty string.
    """

    def __init__(self, function: Callable[..., torch.Tensor], is_loaded: bool = False) -> None:
        self._function, self._is_loaded, self.error = function, is_loaded, ""
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Tensors = ()
        self._result: torch.Tensor | None = None

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Call the function."""
        self._calls += 1
        may_capture = self._graph is None and self._calls in ((1, 2) if self._is_loaded else (2,))
        if may_capture and all(x.is_cuda for x in tensors):
            try:
                self._inputs = tuple(x.clone() for x in tensors)
                with capturing(tensors[0].device) as graph:
                    self._result = self._function(*self._inputs)
                self._graph = graph
            except RuntimeError as error:
                self.error = str(error) or type(error).__name__
        if self._graph is None or self._result is None:
            return self._function(*tensors)
        for buffer, tensor in zip(self._inputs, tensors, strict=True):
            buffer.copy_(tensor)
        self._graph.replay()
        return self._result


class KeptGraphs:
    """The graphs of a function that is called several times with each state of weights that change.

    The first graph prepares the weights and calls the function, the second one calls it with what the first
    one prepared. They are captured when `hold` gets tensors of the same shapes for the second time in a row.
    """

    def __init__(self) -> None:
        self._reset(())

    def _reset(self, key: tuple[Any, ...]) -> None:
        self._key = key
        self._held: Any = None
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._inputs: Tensors = ()
        self._results: Tensors = ()

    def hold(self, values: Any) -> Any:
        """Return what the function shall read: the values, or copies of them in the memory of the graphs.

        Values are tensors and others in tuples and dataclasses.
        """
        leaves = list(_leaves(values))
        key = tuple((x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in leaves)
        if key != self._key:
            self._reset(key)
            return values
        if self._held is None:
            self._held = deepcopy(values)
        for buffer, leaf in zip(_leaves(self._held), leaves, strict=True):
            if isinstance(leaf, torch.Tensor):
                buffer.copy_(leaf)
        return self._held

    def __call__(self, function: Callable[..., torch.Tensor], is_loaded: bool) -> Callable[..., torch.Tensor]:
        """Return the function as graphs, for calls with this state of the weights; see `GraphedFunction`."""
        otherwise = GraphedFunction(function, is_loaded)
        calls = 0

        def call(*tensors: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            if self._held is None or not self._capture(function, tensors):
                return otherwise(*tensors)
            for buffer, tensor in zip(self._inputs, tensors, strict=True):
                buffer.copy_(tensor)
            number, calls = min(calls, 1), calls + 1
            self._graphs[number].replay()
            return self._results[number]

        return call

    def _capture(self, function: Callable[..., torch.Tensor], tensors: Tensors) -> bool:
        """Capture both graphs unless they are there; return False if that is not possible."""
        if not self._graphs and all(x.is_cuda for x in tensors):
            self._inputs, graphs, results = tuple(x.clone() for x in tensors), [], []
            # other graphs may use the memory of the prepared weights when these two have run
            with suppress(RuntimeError), separate_cache():
                for _ in range(2):
                    with capturing(tensors[0].device) as graph:
                        results.append(function(*self._inputs))
                    graphs.append(graph)
                self._graphs, self._results = graphs, tuple(results)
        if not self._graphs:
            self._held = None
        return bool(self._graphs)


def _leaves(x: Any) -> Iterator[Any]:
    """Yield the tensors and other values in tuples and dataclasses."""
    if isinstance(x, tuple):
        for part in x:
            yield from _leaves(part)
    elif is_dataclass(x):
        for item in fields(x):
            yield from _leaves(getattr(x, item.name))
    else:
        yield x


class SharedModule:
    """A module with separate memory for its weights, to which the weights of other modules are copied.

    Its weights are inference tensors. Changing them does not invalidate the tensors prepared from them, so
    those are copied too. If there is only one module, it is used directly, without copies.

    Attributes:
        module: the module to call or capture.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.module = modules[0] if len(modules) == 1 else deepcopy(modules[0])
        self._weights = [tuple(module.parameters()) for module in modules]
        self._shared_weights = tuple(self.module.parameters())
        self._prepared_tensors: dict[tuple[int, str], Tensors] = {}
        self._copies: dict[int, _Copies] = {}

    def is_prepared(self) -> bool:
        """Return True if all modules have the prepared tensors that calls of the shared one have used."""
        if len(self._weights) == 1:
            return True
        prepared = prepared_tensors(self._shared_weights)
        if prepared.keys() != self._prepared_tensors.keys():
            self._prepared_tensors = prepared
            self._copies.clear()
        return all(self._find_copies(index) is not None for index in range(len(self._weights)))

    def load(self, index: int) -> bool:
        """Copy the weights of a module, and the tensors prepared from them.

        Returns:
            False if the module itself must be called first, to prepare its weights.
        """
        if len(self._weights) == 1:
            return True
        copies = self._find_copies(index)
        if copies is not None:
            copies.make()
        return copies is not None

    def _find_copies(self, index: int) -> "_Copies | None":
        """Return the copies that load a module; None if its weights have to be prepared first."""
        weights = self._weights[index]
        versions = [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in weights]
        copies = self._copies.get(index)
        if copies is None or copies.versions != versions:
            prepared = prepared_tensors(weights)
            if not self._prepared_tensors.keys() <= prepared.keys():
                return None
            targets = [
                *self._shared_weights,
                *(x for key in self._prepared_tensors for x in self._prepared_tensors[key]),
            ]
            sources = [*weights, *(x for key in self._prepared_tensors for x in prepared[key])]
            copies = self._copies[index] = _Copies(versions, _by_dtype(targets, sources))
        return copies


class _Copies:
    """The copies of tensors that load a module, a graph from the second time on."""

    def __init__(
        self,
        versions: list[tuple[int, int]],
        groups: list[tuple[list[torch.Tensor], list[torch.Tensor]]],
    ) -> None:
        self.versions, self._groups = versions, groups
        self._graph: torch.cuda.CUDAGraph | None = None
        self._may_capture = all(x.is_cuda for targets, _ in groups for x in targets)

    def make(self) -> None:
        """Copy all sources to their targets."""
        if self._graph is not None:
            self._graph.replay()
            return
        self._copy()
        if self._may_capture:
            # another failure would be no different
            self._may_capture = False
            with suppress(RuntimeError):
                with capturing(self._groups[0][0][0].device) as graph:
                    self._copy()
                self._graph = graph

    def _copy(self) -> None:
        for targets, sources in self._groups:
            torch._foreach_copy_(targets, sources)


def _by_dtype(
    targets: Iterable[torch.Tensor], sources: Iterable[torch.Tensor]
) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Group targets and sources by dtype: one kernel can copy the tensors of one dtype."""
    groups: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = defaultdict(lambda: ([], []))
    for target, source in zip(targets, sources, strict=True):
        for tensors, tensor in zip(groups[target.dtype], (target, source), strict=True):
            tensors.append(tensor)
    return list(groups.values())


def module_has_hooks(module: nn.Module) -> bool:
    """Return True if a module, or one that it directly contains, has hooks."""
    return any(each._forward_hooks or each._forward_pre_hooks for each in (module, *module.children()))


def _as_tuple(result: torch.Tensor | Tensors) -> Tensors:
    return result if isinstance(result, tuple) else (result,)


@contextmanager
def capturing(device: torch.device) -> Iterator[torch.cuda.CUDAGraph]:
    """Capture what the context launches on a GPU as a graph; all errors of the capture are RuntimeErrors."""
    try:
        pool, stream, _ = _capture_resources(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            # thread_local: other threads, such as one that copies features, may allocate during capture
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                yield graph
            finally:
                graph.capture_end()
    except Exception as error:
        # the stream or the pool of a failed capture may be unusable
        _capture_resources.cache_clear()
        if isinstance(error, RuntimeError):
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


@cache
def _capture_resources(device: torch.device) -> tuple[Any, torch.cuda.Stream, torch.cuda.CUDAGraph]:
    """Return a GPU's memory pool of all graphs, stream to capture on, and graph that keeps the pool alive.

    Graphs can share a pool because they run one after another. Without the third value the allocator would
    retire the pool as soon as no other graph uses it.
    """
    pool, stream, pool_keeper = (
        torch.cuda.graph_pool_handle(),
        torch.cuda.Stream(device),
        torch.cuda.CUDAGraph(),
    )
    with torch.cuda.stream(stream):
        pool_keeper.capture_begin(pool=pool, capture_error_mode="thread_local")
        torch.zeros(1, device=stream.device)
        pool_keeper.capture_end()
    return pool, stream, pool_keeper
