"""Arrays in shared memory, which another process on this machine maps instead of receiving a copy.

The features of a job take hundreds of megabytes. Sending them through a pipe would keep a GPU waiting
between jobs. Unlike `multiprocessing.shared_memory`, this needs no room in /dev/shm, which containers limit
to 64 MB, and a process that is killed leaves no file behind.
"""

import mmap
import os
from pathlib import Path

import numpy as np

from foldcli.logs import logger


class SharedArrays:
    """Arrays in an anonymous file in memory, which is freed when the last process closes it.

    A pickled object contains the path of the file, so the original must exist until the other process has
    called `load`.
    """

    def __init__(self) -> None:
        self._layout: list[tuple[str, str, tuple[int, ...], int]] = []
        self._size = 0
        self._descriptor = os.memfd_create("foldcli")
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def empty(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Add an array of zeros, and return it to be filled.

        Raises:
            OSError: there is not enough memory.
        """
        offset, size = self._size, int(np.prod(shape)) * dtype.itemsize
        self._layout.append((name, dtype.str, shape, offset))
        if not size:
            return np.empty(shape, dtype)
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        # without the allocation, a lack of memory would raise a signal that kills the process
        os.posix_fallocate(self._descriptor, offset, pages)
        self._size += pages
        return np.frombuffer(mmap.mmap(self._descriptor, size, offset=offset), dtype).reshape(shape)

    def load(self) -> dict[str, np.ndarray]:
        """Map the arrays; changes stay in this process.

        Raises:
            OSError: the process that created them has ended or closed them.
        """
        with Path(self._path).open("rb") as stream:
            memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) if self._size else b""
            return {
                name: np.frombuffer(memory, dtype, int(np.prod(shape)), offset).reshape(shape)
                for name, dtype, shape, offset in self._layout
            }

    def keep_open(self) -> None:
        """Open the file in this process too, so that the process that created it may close it.

        Raises:
            OSError: the process that created it has ended or closed it.
        """
        self._descriptor = os.open(self._path, os.O_RDWR)
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_descriptor"}

    def __del__(self) -> None:
        if (descriptor := self.__dict__.get("_descriptor")) is not None:
            os.close(descriptor)


def load_arrays(sample: object) -> object:
    """Return the input of a job, after mapping its arrays if they are in shared memory."""
    return sample.load() if isinstance(sample, SharedArrays) else sample


def share_arrays(arrays: object) -> object:
    """Copy a dictionary of arrays into shared memory; return anything else unchanged.

    The dictionary is also returned if that fails, for example for lack of memory.
    """
    if not isinstance(arrays, dict):
        return arrays
    try:
        shared = SharedArrays()
        for name, array in arrays.items():
            shared.empty(name, array.shape, array.dtype)[...] = array
    except OSError as error:
        log_copying(error)
        return arrays
    return shared


def log_copying(error: OSError) -> None:
    """Log why arrays are copied instead of shared."""
    logger.debug("arrays are copied to other processes: %s", error)
