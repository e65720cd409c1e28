"""Tables of residue types on the device that the network runs on, copied there once."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch


@cache
def on_device(table: Callable[[], np.ndarray], device: torch.device) -> torch.Tensor:
    """What the function of `model.residue_constants` gives, as a tensor that is not to be written to.

    Kept, because a copy from the CPU would make each pass wait for the one before.
    """
    return torch.from_numpy(table()).to(device)


def by_residue(table: Callable[[], np.ndarray], aatype: torch.Tensor) -> torch.Tensor:
    """Rows of a table [21, ...] by residue codes [...]."""
    return on_device(table, aatype.device)[aatype]
