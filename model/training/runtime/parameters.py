"""The parameters of a network, their gradients and their moving average in contiguous buffers."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from model.alphafold2.network import AlphaFold

# every parameter starts at a multiple of this number of elements, so that kernels may read whole vectors
ALIGNMENT = 64


class FlatParameters:
    """A network's parameters as views of one float32 buffer, so that a step is a few operations.

    Args:
        network: the network; its parameters are replaced by views of `values`, and their gradients by views
            of `gradients`.
        device: device of the buffers.

    Attributes:
        values: [size] float32, the parameters; does not require a gradient itself.
        gradients: [size] float32.
        average: [size] float32, the moving average of the values.
    """

    def __init__(self, network: AlphaFold, device: torch.device) -> None:
        self.slices: dict[str, tuple[slice, torch.Size]] = {}
        end = 0
        for name, parameter in network.named_parameters():
            self.slices[name] = slice(end, end + parameter.numel()), parameter.shape
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.values = torch.zeros(end, device=device)
        self.gradients = torch.zeros_like(self.values)
        for name, (elements, shape) in self.slices.items():
            self.values[elements] = network.get_parameter(name).detach().flatten().to(device)
            module_name, _, attribute = name.rpartition(".")
            view = nn.Parameter(self.values[elements].view(shape))
            view.grad = self.gradients[elements].view(shape)
            setattr(network.get_submodule(module_name), attribute, view)
        self.average = self.values.clone()
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

    def pack(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return a buffer's elements without the gaps between parameters, [num_parameters]."""
        return torch.cat([buffer[elements] for elements, _ in self.slices.values()])

    def unpack(self, packed: torch.Tensor, buffer: torch.Tensor) -> None:
        """Write the elements that `pack` returns, [num_parameters], into a buffer."""
        start = 0
        for elements, shape in self.slices.values():
            buffer[elements] = packed[start : start + shape.numel()].to(buffer.device, buffer.dtype)
            start += shape.numel()
