"""The parameters of a network, their gradients and their moving average in contiguous buffers."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import nn

from model.training.runtime.settings import OptimizerSettings

# every parameter starts at a multiple of this number of elements, so that kernels may read whole vectors
ALIGNMENT = 64
# the moments of Adam
MOMENTS = ("exp_avg", "exp_avg_sq")
# parameters of which a step of Adam holds intermediates at once
_STEP_ELEMENTS = 2**24


class FlatParameters:
    """A network's parameters as views of one float32 buffer, so that a step is a few operations.

    Args:
        network: a network; its parameters are replaced by views of `values`, and their gradients by views
            of `gradients`.
        device: device of the buffers.

    Attributes:
        values: [size] float32, the parameters; does not require a gradient itself.
        gradients: [size] float32.
        sums: [size + 2] float32, the gradients and what processes add up together with them: the norms of
            micro-batches, and the requests to stop.
        average: [size] float32, the moving average of the values.
        buffers: the network's tensors that are not trained, by name.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self.slices: dict[str, tuple[slice, torch.Size]] = {}
        end = 0
        for name, parameter in network.named_parameters():
            self.slices[name] = slice(end, end + parameter.numel()), parameter.shape
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.values = torch.zeros(end, device=device)
        self.sums = torch.zeros(end + 2, device=device)
        self.gradients = self.sums[:end]
        for name, (elements, shape) in self.slices.items():
            self.values[elements] = network.get_parameter(name).detach().flatten().to(device)
            module_name, _, attribute = name.rpartition(".")
            view = nn.Parameter(self.values[elements].view(shape))
            view.grad = self.gradients[elements].view(shape)
            setattr(network.get_submodule(module_name), attribute, view)
        self.average = self.values.clone()
        self.buffers = dict(network.named_buffers())
        self.num_parameters = sum(shape.numel() for _, shape in self.slices.values())

    @contextlib.contextmanager
    def using_average(self) -> Iterator[None]:
        """Use the averaged parameters in the network while the context is open."""
        current_values = self.values.clone()
        self.values.copy_(self.average)
        try:
            yield
        finally:
            self.values.copy_(current_values)

    @torch.no_grad()
    def update_average(self, decay: float, num_steps: int) -> None:
        """Move the average towards the values; `decay` is the share of it that remains.

        After few steps the share is smaller, so that the average soon forgets the initial parameters.
        """
        share = min(decay, (1.0 + num_steps) / (10.0 + num_steps))
        self.average.lerp_(self.values, 1.0 - share)

    def pack(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return a buffer's elements without the gaps between parameters, [num_parameters]."""
        return torch.cat([buffer[elements] for elements, _ in self.slices.values()])

    def unpack(self, packed: torch.Tensor, buffer: torch.Tensor) -> None:
        """Write the elements that `pack` returns, [num_parameters], into a buffer."""
        start = 0
        for elements, shape in self.slices.values():
            buffer[elements] = packed[start : start + shape.numel()].to(buffer.device, buffer.dtype)
            start += shape.numel()


@torch.no_grad()
def adam_step(
    flat: FlatParameters,
    moments: Mapping[str, torch.Tensor],
    rate: float,
    count: int,
    options: OptimizerSettings,
) -> None:
    """Make one step of Adam with the gradients of the parameters.

    `moments` are buffers by the names in MOMENTS, and `count` is the number of steps since they were zero,
    this one included.
    """
    beta1, beta2 = options.beta1, options.beta2
    buffers = (flat.values, flat.gradients, *(moments[name] for name in MOMENTS))
    for values, gradient, first, second in zip(*(x.split(_STEP_ELEMENTS) for x in buffers), strict=True):
        first.lerp_(gradient, 1.0 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        denominator = (second / (1.0 - beta2**count)).sqrt_().add_(options.epsilon)
        values.addcdiv_(first, denominator, value=-rate / (1.0 - beta1**count))
