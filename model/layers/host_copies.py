"""Copies of a GPU's results in host memory, for which nothing waits before they are needed."""

from collections.abc import Mapping

import numpy as np
import torch


class HostCopies:
    """Copies of tensors in host memory, which a GPU makes once it has computed them.

    Args:
        tensors: tensors of one device; they may be freed at once.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._copies = {name: _copy_to_host(x) for name, x in tensors.items()}
        self._copied: torch.cuda.Event | None = None
        for device in {x.device for x in tensors.values() if x.is_cuda}:
            self._copied = torch.cuda.current_stream(device).record_event()

    def wait(self) -> dict[str, np.ndarray]:
        """Wait until the copies are complete, and return them; may be called by any thread."""
        if self._copied is not None:
            self._copied.synchronize()
        # copied once more, because page-locked memory is scarce and reused
        return {name: x.numpy().copy() for name, x in self._copies.items()}


def _copy_to_host(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
