"""The process of a GPU: a LocalWorker that serves the searching process.

On a second socket, a process that scores candidates may request alignments. An array that is mapped from a
file is sent as a MappedArray, any other array as it is.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msa.base.services.process import serve
from msa.base.switch_interval import shorten_switch_interval
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import Gpu, find_gpu
from msa.gpu.worker.interface import GpuSettings
from msa.profile.pssm import QueryProfile

if TYPE_CHECKING:
    from msa.gpu.worker.local_worker import LocalAlignmentBatch, LocalWorker


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


def open_sequences(shared: SharedSequences, mapped: dict[MappedArray, np.ndarray]) -> SequenceArrays:
    """Open sequences that another process has shared; raises like MappedArray.open.

    Args:
        shared: the sequences.
        mapped: arrays that are mapped already; those that are not are added.
    """
    for array in shared:
        if isinstance(array, MappedArray) and array not in mapped:
            mapped[array] = array.open()
    return SequenceArrays(*(mapped[array] if isinstance(array, MappedArray) else array for array in shared))


class AlignmentHandler:
    """Alignments on a GPU, for requests of another process."""

    def __init__(self, opened: "Future[LocalWorker]") -> None:
        self._opened = opened
        self._batches: dict[int, LocalAlignmentBatch] = {}
        # arrays of the loaded database; its files may be replaced while it is searched
        self._mapped: dict[MappedArray, np.ndarray] = {}

    def alignment_batch(self, number: int, queries: Sequence[QueryProfile], targets: SharedSequences) -> None:
        """Accept a batch to align to any targets; later requests refer to it by its number."""
        sequences = open_sequences(targets, self._mapped)
        self._batches[number] = self._opened.result().alignment_batch(queries, sequences)

    def scores(
        self,
        number: int,
        owners: np.ndarray,
        targets: np.ndarray,
        gap_costs: tuple[int, int],
        reverse: bool = False,
    ) -> "Future[Any]":
        """See LocalAlignmentBatch.scores."""
        return self._batches[number].scores(owners, targets, gap_costs, reverse)

    def paths(self, number: int, selected: np.ndarray) -> "Future[Any]":
        """See LocalAlignmentBatch.paths; the last request for a batch."""
        return self._batches.pop(number).paths(selected)


class GpuHandler(AlignmentHandler):
    """A GPU, for requests of the searching process. It reports what `GpuStatus.update` takes.

    Args:
        report: reports progress.
        gpu: number of the GPU.
        aligning: file descriptor of the second socket; None if there is none.
    """

    def __init__(self, report: Callable[..., None], gpu: int, aligning: int | None) -> None:
        super().__init__(Future())
        self._report, self._gpu = report, gpu
        self._cancelled = threading.Event()
        if aligning is not None:
            arguments = socket.socket(fileno=aligning), AlignmentHandler(self._opened)
            threading.Thread(target=serve, args=arguments, name="alignments", daemon=True).start()

    def open(self, settings: GpuSettings, share: tuple[int, int]) -> Gpu:
        """Open the GPU and return it; must be the first request."""
        shorten_switch_interval()
        from msa.gpu.worker.local_worker import LocalWorker  # while the driver starts

        found = find_gpu(self._gpu)

        self._opened.set_result(LocalWorker(found, settings, partial(self._report, "compiled"), share))
        return found

    def load(self, targets: SharedSequences, part: tuple[int, int]) -> "Future[None]":
        """See LocalWorker.load."""
        self._mapped = {}
        return self._followed(self._worker.load(open_sequences(targets, self._mapped), part))

    def prepare(self, lengths: Sequence[int], many_pairs: bool) -> "Future[None]":
        """See LocalWorker.prepare."""
        return self._worker.prepare(lengths, many_pairs)

    def filter(
        self, number: int, queries: Sequence[QueryProfile], settings: SearchSettings, more_follow: bool
    ) -> "Future[Any]":
        """Filter a batch and return the result; later requests refer to the batch by its number."""
        batch = self._worker.filter(queries, settings, more_follow, self._cancelled)
        self._batches[number] = batch
        return self._followed(batch.best())

    def drain(self) -> "Future[None]":
        """See LocalWorker.drain."""
        self._cancelled.set()
        self._cancelled = threading.Event()
        self._batches.clear()
        return self._followed(self._worker.drain())

    def release_unused(self) -> "Future[None]":
        """See LocalWorker.release_unused."""
        return self._followed(self._worker.release_unused())

    @property
    def _worker(self) -> "LocalWorker":
        return self._opened.result()

    def _followed(self, done: "Future[Any]") -> "Future[Any]":
        """Return a future before whose answer the status is sent."""
        worker = self._worker
        done.add_done_callback(lambda _: self._report("status", worker.resident, worker.seconds))
        return done
