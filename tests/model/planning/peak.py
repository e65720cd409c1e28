"""The peak of the memory that tensors take."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Peak(TorchDispatchMode):
    """Counts the bytes of all tensors that exist at once, except those of a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.now = self.most = 0
        # results of operations may be the parameters themselves
        self._alive = {x.untyped_storage().data_ptr() for x in (*module.parameters(), *module.buffers())}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else (result,):
            if isinstance(x, torch.Tensor):
                self._count(x.untyped_storage())
        self.most = max(self.most, self.now)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage.data_ptr() not in self._alive:
            self._alive.add(storage.data_ptr())
            self.now += storage.nbytes()
            weakref.finalize(storage, self._forget, storage.data_ptr(), storage.nbytes())

    def _forget(self, pointer: int, count: int) -> None:
        self._alive.discard(pointer)
        self.now -= count
