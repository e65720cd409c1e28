"""Options of running the differentiable network: dtype, kernels, checkpointing and compilation."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from model.errors import ConfigError
from model.layers.kernels import best_kernels
from model.training.runtime.settings import TrainingSettings


class Execution:
    """Options of running the network: dtype, checkpointing and compilation.

    Args:
        dtype: dtype of the trunk's activations.
        checkpoint_blocks: recompute each Evoformer block in the backward pass instead of storing its
            intermediates.
        compile: compile the functions that take most of the time. Each is compiled once for all blocks that
            have the same shapes.
    """

    def __init__(
        self, dtype: torch.dtype = torch.float32, checkpoint_blocks: bool = False, compile: bool = False
    ) -> None:
        self.dtype, self.checkpoint_blocks, self.compile = dtype, checkpoint_blocks, compile
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}

    def compile_if_enabled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the compiled form of a function if compilation is enabled, otherwise the function."""
        if not self.compile:
            return function
        if function not in self._compiled:
            # static shapes: a new size is compiled anew instead of making the size a variable
            self._compiled[function] = torch.compile(function, dynamic=False)
        return self._compiled[function]

    def run_block(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a block's function on its module and tensors, compiled and checkpointed as the options say."""
        runner = self.compile_if_enabled(function)
        if self.checkpoint_blocks and torch.is_grad_enabled():
            return checkpoint(runner, *arguments, use_reentrant=False)
        return runner(*arguments)


def configure_compiler() -> None:
    """Set options of torch.compile for the network's blocks."""
    # deferred: it takes a second to import
    from torch._inductor import config

    torch._dynamo.config.recompile_limit = 64
    # the gradients of LayerNorm's rows and weights in one pass need sums that take longer than a second pass
    config.triton.mix_order_reduction = False


def make_execution(settings: TrainingSettings, device: torch.device) -> Execution:
    """Return the options for a device: bfloat16 activations on a GPU, float32 on the CPU."""
    if settings.compile:
        configure_compiler()
        if settings.memory_budget < 1.0:
            torch._functorch.config.activation_memory_budget = settings.memory_budget
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return Execution(dtype, settings.checkpoint_blocks, settings.compile)


def kernels_for_device(settings: TrainingSettings, device: torch.device) -> str:
    """Return the name of the kernels to use on a device, as `model.layers.kernels.select_kernels` takes it.

    Raises:
        ConfigError: fused kernels are requested, but the device is not a GPU.
    """
    if settings.kernels == "auto":
        return best_kernels(device)
    if settings.kernels == "fused" and device.type != "cuda":
        raise ConfigError("kernels: fused kernels need a GPU")
    return settings.kernels
