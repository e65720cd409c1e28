"""Arrays in shared memory, which another process on this machine maps instead of receiving a copy.

The features of a job take hundreds of megabytes. Sending them through a pipe would keep a GPU waiting
between jobs.
"""

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from foldcli.logs import logger

_ALIGNMENT = 64


class SharedArrays:
    """Arrays in an anonymous file in memory, which is freed when the last process closes it.

    A pickled object contains the path of the file, so the original must exist until the other process has
    called `load`.

    Args:
        arrays: the arrays to copy into the file.

    Raises:
        OSError: there is not enough memory, or the system has no such files.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._layout, size = [], 0
        for name, array in arrays.items():
            self._layout.append((name, array.dtype.str, array.shape, size))
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._size = max(size, 1)
        self._descriptor = os.memfd_create("foldcli")
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        # without the allocation, a lack of memory would raise a signal that kills the process
        os.posix_fallocate(self._descriptor, 0, self._size)
        with mmap.mmap(self._descriptor, self._size) as memory:
            for name, array in self._views(memory).items():
                array[...] = arrays[name]
                del array

    def load(self) -> dict[str, np.ndarray]:
        """Map the arrays; changes stay in this process.

        Raises:
            OSError: the process that created them has ended or closed them.
        """
        with Path(self._path).open("rb") as stream:
            return self._views(mmap.mmap(stream.fileno(), self._size, access=mmap.ACCESS_COPY))

    def keep_open(self) -> None:
        """Open the file in this process too, so that the process that created it may close it.

        Raises:
            OSError: the process that created it has ended or closed it.
        """
        self._descriptor = os.open(self._path, os.O_RDWR)
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def _views(self, memory: mmap.mmap) -> dict[str, np.ndarray]:
        views = {}
        for name, dtype, shape, offset in self._layout:
            count = int(np.prod(shape))
            views[name] = np.frombuffer(memory, np.dtype(dtype), count, offset).reshape(shape)
        return views

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_descriptor"}

    def __del__(self) -> None:
        if (descriptor := self.__dict__.get("_descriptor")) is not None:
            os.close(descriptor)


def share_arrays(arrays: dict[str, np.ndarray]) -> SharedArrays | dict[str, np.ndarray]:
    """Copy arrays into shared memory; return them unchanged if that fails, for example for lack of memory."""
    try:
        return SharedArrays(arrays)
    except OSError as error:
        logger.debug("arrays are copied to other processes: %s", error)
        return arrays
