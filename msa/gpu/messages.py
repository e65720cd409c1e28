"""Messages between the process of a search and the processes of its GPUs.

Both use the same installation. Requests are (number, method name, arguments). Answers are (number, failed,
value, WorkerStatus). Progress of compilation is (None, compiled, needed). Arrays that are mapped from a file
are sent as file name and position, others as they are.
"""

import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.devices import GpuUnavailable, OutOfGpuMemory


@dataclass(frozen=True)
class WorkerStatus:
    """State of a GPU's process, sent with every answer; see GpuWorker for its fields."""

    resident: bool
    seconds: dict[str, float]


@dataclass(frozen=True)
class MappedArray:
    """A one-dimensional array that is mapped read-only from a file.

    Args:
        path: the file.
        dtype: numpy dtype string.
        offset: byte of the first element.
        count: number of elements.
    """

    path: Path
    dtype: str
    offset: int
    count: int

    @classmethod
    def of(cls, array: np.ndarray) -> "MappedArray | None":
        """Locate an array [n] in the file from which it is mapped; return None if it is not mapped."""
        base: object = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or base.mode != "r":
            return None
        before = array.ctypes.data - base.ctypes.data
        return cls(Path(base.filename), array.dtype.str, base.offset + before, len(array))

    def open(self) -> np.ndarray:
        """Map the array again.

        Raises:
            OSError: if the file no longer exists.
            ValueError: if it has become shorter.
        """
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.count,))


SharedSequences = tuple[MappedArray | np.ndarray, ...]
"""The three arrays of SequenceArrays, in a form that another process of this machine can open."""


def share_sequences(sequences: SequenceArrays) -> SharedSequences:
    """Describe sequences for another process of this machine, without copying mapped arrays."""
    arrays = sequences.residues, sequences.offsets, sequences.lengths
    return tuple(MappedArray.of(array) or array for array in arrays)


def open_sequences(shared: SharedSequences) -> SequenceArrays:
    """Open sequences that another process has shared; raises like MappedArray.open."""
    return SequenceArrays(*(array.open() if isinstance(array, MappedArray) else array for array in shared))


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a GPU's process.

    Args:
        kind: name of its class.
        text: its message.
        remedy: of GpuUnavailable.
        requested_bytes: of OutOfGpuMemory.
        trace: its traceback.
    """

    kind: str
    text: str
    remedy: str
    requested_bytes: int
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "WorkerFailure":
        """Describe an exception."""
        text = error.reason if isinstance(error, GpuUnavailable) else str(error)
        trace = "".join(traceback.format_exception(error))
        remedy, requested_bytes = getattr(error, "remedy", ""), getattr(error, "requested_bytes", 0)
        return cls(type(error).__name__, text, remedy, requested_bytes, trace)

    def exception(self, gpu: int) -> Exception:
        """Return the exception to raise in the process of the search.

        Args:
            gpu: number of the GPU.
        """
        error: Exception
        if self.kind == "GpuUnavailable":
            error = GpuUnavailable(self.text, self.remedy)
        elif self.kind == "OutOfGpuMemory":
            error = OutOfGpuMemory(self.requested_bytes)
        else:
            error = RuntimeError(f"GPU {gpu}: {self.kind}: {self.text}")
        error.add_note(f"In the process of GPU {gpu}:\n{self.trace}")
        return error
