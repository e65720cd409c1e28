"""What goes between the process of a search and those of its GPUs, both from the same installation.

Requests are (number, name, arguments), answers (number, whether it failed, value, `Status`); progress of
compilation has no number. Arrays that are mapped from a file go by name and place, others as they are.
"""

import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.devices import GpuUnavailable


@dataclass(frozen=True)
class Status:
    """What a GPU's process says of itself with every answer; see msa.gpu.gpu_worker.Member."""

    stays: bool
    seconds: dict[str, float]


@dataclass(frozen=True)
class Mapped:
    """An array that is mapped read-only from a file.

    Args:
        path: the file.
        dtype: its numbers' type.
        offset: first byte.
        count: numbers.
    """

    path: Path
    dtype: str
    offset: int
    count: int

    @classmethod
    def of(cls, array: np.ndarray) -> "Mapped | None":
        """Where an array [n] lies, None if in no file."""
        base: object = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or base.mode != "r":
            return None
        before = array.ctypes.data - base.ctypes.data
        return cls(Path(base.filename), array.dtype.str, base.offset + before, len(array))

    def open(self) -> np.ndarray:
        """The array, mapped again.

        Raises:
            OSError: the file is gone.
            ValueError: it is shorter than it was.
        """
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.count,))


@dataclass(frozen=True)
class Database:
    """The arrays of SequenceArrays, where they are."""

    residues: Mapped | np.ndarray
    offsets: Mapped | np.ndarray
    lengths: Mapped | np.ndarray

    @classmethod
    def of(cls, targets: SequenceArrays) -> "Database":
        """How to find some targets in another process of this machine."""
        arrays = targets.residues, targets.offsets, targets.lengths
        return cls(*(Mapped.of(array) or array for array in arrays))

    def open(self) -> SequenceArrays:
        """The targets; see Mapped.open."""
        arrays = self.residues, self.offsets, self.lengths
        return SequenceArrays(*(array.open() if isinstance(array, Mapped) else array for array in arrays))


@dataclass(frozen=True)
class Failure:
    """An exception in a GPU's process.

    Args:
        kind: its class.
        text: what it says.
        remedy: of GpuUnavailable.
        asked: of OutOfGpuMemory.
        trace: its traceback.
    """

    kind: str
    text: str
    remedy: str
    asked: int
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """What is to be known of an exception."""
        text = error.reason if isinstance(error, GpuUnavailable) else str(error)
        trace = "".join(traceback.format_exception(error))
        remedy, asked = getattr(error, "remedy", ""), getattr(error, "asked", 0)
        return cls(type(error).__name__, text, remedy, asked, trace)

    def error(self, gpu: int) -> Exception:
        """The exception as the process of the search raises it.

        Args:
            gpu: the GPU's number.
        """
        error: Exception
        if self.kind == "GpuUnavailable":
            error = GpuUnavailable(self.text, self.remedy)
        elif self.kind == "OutOfGpuMemory":
            # numba comes with it
            from msa.gpu.memory import OutOfGpuMemory

            error = OutOfGpuMemory(self.asked)
        else:
            error = RuntimeError(f"GPU {gpu}: {self.kind}: {self.text}")
        error.add_note(f"In the process of GPU {gpu}:\n{self.trace}")
        return error
