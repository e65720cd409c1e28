"""Tables of `model.residue_constants` as tensors on a device."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch


@cache
def _table_on_device(table: Callable[[], np.ndarray], device: torch.device) -> torch.Tensor:
    """Return a table as a tensor, which callers must not modify.

    Cached, because a copy from the CPU would make each pass wait for the previous one.
    """
    return torch.from_numpy(table()).to(device)


clear_device_tables = _table_on_device.cache_clear
"""Forgets the tables on all devices, such as those made in inference mode, which autograd cannot save."""


def residue_rows(table: Callable[[], np.ndarray], aatype: torch.Tensor) -> torch.Tensor:
    """Look up rows of a table by residue code [...]: [..., ...] on the codes' device.

    The table is a function of `model.residue_constants` without arguments, which returns an array [21, ...].
    """
    return _table_on_device(table, aatype.device)[aatype]
