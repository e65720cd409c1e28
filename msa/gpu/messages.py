"""Messages between the searching process and the processes of its GPUs.

Both use the same installation. Requests are (number, method name, arguments). Answers are (number, failed,
value, WorkerStatus). Progress of compilation is (None, compiled, needed). An array that is mapped from a file
is sent as a MappedArray, any other array as it is.
"""

import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.errors import OutOfGpuMemory
from msa.gpu.devices import GpuUnavailable


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
        offset: position of the first element in the file, in bytes.
        count: number of elements.
    """

    path: Path
    dtype: str
    offset: int
    count: int

    @classmethod
    def from_array(cls, array: np.ndarray) -> "MappedArray | None":
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
    return tuple(MappedArray.from_array(array) or array for array in arrays)


def open_sequences(shared: SharedSequences) -> SequenceArrays:
    """Open sequences that another process has shared; raises like MappedArray.open."""
    return SequenceArrays(*(array.open() if isinstance(array, MappedArray) else array for array in shared))


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a GPU's process.

    Args:
        kind: name of the exception's class.
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
    def from_exception(cls, error: BaseException) -> "WorkerFailure":
        """Describe an exception."""
        text = error.reason if isinstance(error, GpuUnavailable) else str(error)
        trace = "".join(traceback.format_exception(error))
        remedy, requested_bytes = getattr(error, "remedy", ""), getattr(error, "requested_bytes", 0)
        return cls(type(error).__name__, text, remedy, requested_bytes, trace)

    def to_exception(self, gpu: int) -> Exception:
        """Return the exception to raise in the searching process.

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
