"""Blocks of a stack with gradients, replayed as CUDA graphs.

A processor launches the kernels of a block more slowly than a GPU runs them. One block of a structure is
captured, once forward and once with its backward pass, which computes the inside again, and is replayed for
all blocks: before each replay, the weights of a block are copied to those of the captured one, in the dtype
of the activations. Random numbers are arguments, so that both passes see the same.
"""

from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from model.layers.graphs import capturing

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., Any]
# structures and shapes whose graphs are kept: all kinds of blocks of samples of one size
KEPT = 4

_graphs: OrderedDict[tuple[Any, ...], "_BlockGraphs"] = OrderedDict()
_spans: WeakKeyDictionary[nn.Module, "Span"] = WeakKeyDictionary()


def run_module(
    function: Function, module: nn.Module, tensors: Tensors, constants: tuple[torch.Tensor | None, ...]
) -> Any:
    """Call function(module, *tensors, *constants); a backward pass computes the inside again.

    Graphs are used for parameters on a GPU that are views of one buffer, and have gradients in another; see
    `model.training.runtime.parameters.FlatParameters`. The function returns a tensor or several, and must not
    wait for the GPU or draw random numbers. Only `tensors` may have gradients.
    """
    span = span_of(module)
    if span is not None and span.values.is_cuda and not torch.is_inference_mode_enabled():
        return run_graphed(span, function, module, tensors, constants)
    if not torch.is_grad_enabled():
        return function(module, *tensors, *constants)
    return checkpoint(function, module, *tensors, *constants, use_reentrant=False)


def run_graphed(
    span: "Span",
    function: Function,
    module: nn.Module,
    tensors: Tensors,
    constants: tuple[torch.Tensor | None, ...],
) -> Any:
    """Call a function as graphs; see `run_module`."""
    shapes = tuple(None if x is None else (x.shape, x.dtype) for x in (*tensors, *constants))
    trained = tuple(x.requires_grad for x in module.parameters())
    key = (function, type(module), span.buffer, span.layout, trained, shapes)
    if key not in _graphs:
        while len(_graphs) >= KEPT:
            _graphs.popitem(last=False)
        _graphs[key] = _BlockGraphs(function, module, span, tensors, constants)
    _graphs.move_to_end(key)
    graphs = _graphs[key]
    if torch.is_grad_enabled():
        # some parameter, so that the results have gradients
        anchor = next((x for x in module.parameters() if x.requires_grad), None)
        results = _Replay.apply(graphs, span, anchor, len(tensors), *tensors, *constants)
    else:
        results = graphs.forward(span, (*tensors, *constants))
    return results if len(results) > 1 else results[0]


class Span:
    """The part of a buffer of parameters that those of a module fill.

    Attributes:
        values: [size], the parameters and gaps between them.
        gradients: [size], their gradients.
        buffer: address of the buffer.
        layout: first element and shape of each parameter.
    """

    def __init__(self, values: torch.Tensor, gradients: torch.Tensor, layout: tuple[Any, ...]) -> None:
        self.values, self.gradients, self.layout = values, gradients, layout
        self.buffer = values.untyped_storage().data_ptr()


@torch.no_grad()
def span_of(module: nn.Module) -> Span | None:
    """Return the span of a module, or None if its parameters or gradients are apart."""
    parameters = list(module.parameters())
    known = _spans.get(module)
    if known is not None and known.values.data_ptr() == parameters[0].data_ptr():
        return known
    gradients = [x.grad for x in parameters if x.grad is not None]
    if not parameters or len(gradients) < len(parameters):
        return None
    for tensors in (parameters, gradients):
        if len({x.untyped_storage().data_ptr() for x in tensors}) > 1:
            return None
    starts, others = ([x.storage_offset() for x in y] for y in (parameters, gradients))
    if starts != others:
        return None
    layout = tuple((start - starts[0], x.shape) for start, x in zip(starts, parameters, strict=True))
    size = max(start + shape.numel() for start, shape in layout)
    values, gradient = (x[0].as_strided((size,), (1,), starts[0]) for x in (parameters, gradients))
    _spans[module] = Span(values.detach(), gradient, layout)
    return _spans[module]


class _BlockGraphs:
    """The graphs of the blocks of one structure, for arguments of some shapes."""

    def __init__(
        self,
        function: Function,
        module: nn.Module,
        span: Span,
        tensors: Tensors,
        constants: tuple[torch.Tensor | None, ...],
    ) -> None:
        self._function, self._module = function, deepcopy(module)
        # the address of the buffer is no other network's while it is referred to
        self._source = span.values
        self._values = span.values.to(tensors[0].dtype, copy=True)
        self._gradient = torch.zeros_like(self._values)
        self._parameters: list[tuple[torch.Tensor, torch.Tensor]] = []
        names = [name for name, _ in module.named_parameters()]
        for name, (start, shape) in zip(names, span.layout, strict=True):
            owner, _, attribute = name.rpartition(".")
            view = nn.Parameter(self._values[start : start + shape.numel()].view(shape))
            view.requires_grad_(module.get_parameter(name).requires_grad)
            setattr(self._module.get_submodule(owner), attribute, view)
            self._parameters.append((view, self._gradient[start : start + shape.numel()].view(shape)))
        self._wanted = [x.detach().clone().requires_grad_() for x in tensors]
        self._inputs = [*self._wanted, *(None if x is None else x.clone() for x in constants)]
        self._results: list[torch.Tensor] = []
        self._result_gradients: list[torch.Tensor] = []
        self._input_gradients: list[torch.Tensor | None] = []
        self._replay_forward = self._recorded(self._forward)
        self._result_gradients = self._results  # which are not needed after they were copied
        self._replay_backward = self._recorded(self._backward)

    def _recorded(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a graph of a function, or the function on a CPU."""
        function()  # loads kernels and libraries
        if not self._values.is_cuda:
            return function
        with capturing(self._values.device) as graph:
            function()
        return graph.replay

    @torch.enable_grad()  # without, layers would prepare weights once for all calls
    def _forward(self) -> None:
        results = self._function(self._module, *self._inputs)
        self._results = [x.detach() for x in (results if isinstance(results, tuple) else (results,))]

    @torch.enable_grad()
    def _backward(self) -> None:
        results = self._function(self._module, *self._inputs)
        results = results if isinstance(results, tuple) else (results,)
        trained = [(x, y) for x, y in self._parameters if x.requires_grad]
        wanted = [*self._wanted, *(x for x, _ in trained)]
        found = torch.autograd.grad(results, wanted, self._result_gradients, allow_unused=True)
        count = len(self._wanted)
        self._input_gradients = list(found[:count])
        pairs = zip((buffer for _, buffer in trained), found[count:], strict=True)
        known = [(buffer, gradient) for buffer, gradient in pairs if gradient is not None]
        with torch.no_grad():
            torch._foreach_copy_([buffer for buffer, _ in known], [gradient for _, gradient in known])

    def _load(self, span: Span, tensors: tuple[torch.Tensor | None, ...]) -> None:
        with torch.no_grad():
            self._values.copy_(span.values)
            for buffer, tensor in zip(self._inputs, tensors, strict=True):
                if buffer is not None and tensor is not None:
                    buffer.copy_(tensor)

    def forward(self, span: Span, tensors: tuple[torch.Tensor | None, ...]) -> Tensors:
        """Return the results for a block."""
        self._load(span, tensors)
        self._replay_forward()
        return tuple(x.clone() for x in self._results)

    def backward(
        self, span: Span, tensors: tuple[torch.Tensor | None, ...], gradients: tuple[torch.Tensor | None, ...]
    ) -> list[torch.Tensor | None]:
        """Add to the gradients of a block's parameters; return those of its arguments."""
        self._load(span, tensors)
        with torch.no_grad():
            for buffer, gradient in zip(self._result_gradients, gradients, strict=True):
                buffer.zero_() if gradient is None else buffer.copy_(gradient)
            self._replay_backward()
            span.gradients.add_(self._gradient)
        return [None if x is None else x.clone() for x in self._input_gradients]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, graphs: _BlockGraphs, span: Span, anchor: Any, count: int, *arguments: Any
    ) -> Tensors:
        ctx.graphs, ctx.span, ctx.constants = graphs, span, len(arguments) - count
        ctx.save_for_backward(*arguments)
        return graphs.forward(span, arguments)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor | None, ...]:
        found = ctx.graphs.backward(ctx.span, ctx.saved_tensors, gradients)
        return None, None, None, None, *found, *[None] * ctx.constants
