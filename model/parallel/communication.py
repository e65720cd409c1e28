"""Communication between the ranks of one prediction: gathers and exchanges of shards.

All operations are transfers of contiguous tensors between pairs of ranks. They are started asynchronously and
waited for as late as possible. On GPUs they run on streams of their own, and waiting stops the current
stream, not the CPU. A rank's own part of a result is copied on the current stream.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import distributed

from model.parallel.peer_copies import NOT_CAPTURED, PeerCopies, PeerCopyError

T = TypeVar("T")
R = TypeVar("R")

# pairs of a rank up to which launching kernels takes longer than running them: 1,448 residues on two ranks,
# 2,048 on four
MAX_PAIRS_AT_ONCE = 2**20
# number of pieces in which the results of more pairs are exchanged, each while the next one is computed
PIECES = 4


@dataclass(frozen=True)
class Shards:
    """The division of an axis among ranks, in the order of the ranks.

    Every rank has ceil(total / ranks) consecutive elements, except that the last ones may have fewer or none.
    """

    total: int
    ranks: int

    @property
    def max_count(self) -> int:
        """The largest number of elements of a rank."""
        return -(-self.total // self.ranks)

    def of(self, rank: int) -> slice:
        """Return the elements of a rank."""
        return slice(min(rank * self.max_count, self.total), min((rank + 1) * self.max_count, self.total))

    def piece_of(self, rank: int, index: int, pieces: int) -> slice:
        """Return one of several pieces of the elements of a rank."""
        shard = self.of(rank)
        piece = Shards(shard.stop - shard.start, pieces).of(index)
        return slice(shard.start + piece.start, shard.start + piece.stop)

    @property
    def slices(self) -> list[slice]:
        """The elements of all ranks."""
        return [self.of(rank) for rank in range(self.ranks)]

    @property
    def counts(self) -> list[int]:
        """The number of elements of all ranks."""
        return [part.stop - part.start for part in self.slices]


def copy_part(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a part of a matrix [n, m, ...] to one of the same shape and dtype, 16 bytes at a time if possible.

    A GPU copies strided tensors element by element, and those of 2 bytes at a third of its bandwidth.
    """
    assert target.dtype == source.dtype and target.shape == source.shape
    with suppress(RuntimeError):  # sizes, strides or offsets are no multiples of 16 bytes
        target, source = target.view(torch.complex128), source.view(torch.complex128)
    target.copy_(source)


def contiguous_part(part: torch.Tensor) -> torch.Tensor:
    """Return a part of a matrix, or a contiguous copy; see `copy_part`."""
    if part.is_contiguous():
        return part
    result = part.new_empty(part.shape)
    copy_part(result, part)
    return result


def exchange_pieces(residues: int, ranks: int, max_pairs_at_once: int = MAX_PAIRS_AT_ONCE) -> int:
    """Return the number of pieces in which ranks of one host exchange the results of an operation."""
    return 1 if Shards(residues, ranks).max_count * residues <= max_pairs_at_once else PIECES


class Pending(Generic[T]):
    """A communication in progress, which holds its tensors until a caller has waited for it."""

    def __init__(self, wait: Callable[[], object], result: Callable[[], T]) -> None:
        self._steps: tuple[Callable[[], object], Callable[[], T]] | None = wait, result

    @classmethod
    def done(cls, result: T) -> "Pending[T]":
        """Return a finished communication."""
        return cls(lambda: None, lambda: result)

    def _take(self) -> tuple[Callable[[], object], Callable[[], T]]:
        """Return the two functions, and drop the references to them, which keep tensors alive."""
        assert self._steps is not None, "waited for twice"
        steps, self._steps = self._steps, None
        return steps

    def wait(self) -> T:
        """Wait for the communication and return its result; call this once."""
        wait, result = self._take()
        wait()
        # free the sent tensors before the received ones are joined
        del wait
        return result()

    def then(self, function: Callable[[T], R]) -> "Pending[R]":
        """Return a communication that applies a function to this one's result, and replaces this one."""
        wait, result = self._take()
        return Pending(wait, lambda: function(result()))


class RankGroup:
    """The ranks of one prediction, and their communication.

    All ranks must call the same methods in the same order, with matching shapes.

    With few pairs of residues, each result is exchanged at once, and blocks are replayed as CUDA graphs; with
    many, results are exchanged in pieces that overlap with computation. If possible, copy engines transfer
    these pieces, and everything inside graphs; otherwise NCCL does.

    Args:
        process_group: a group of torch.distributed; None is the default one.
        max_pairs_at_once: pairs of a rank up to which results are exchanged at once.

    Attributes:
        rank: index of this process.
        size: number of ranks.
        others: all other ranks.
        operations: number of operations that this rank has started, which shows its progress.
        copies: transfers by the GPUs' copy engines, or None if they are not possible.
        pieces: number of pieces in which the current prediction exchanges a result.
    """

    def __init__(
        self,
        process_group: distributed.ProcessGroup | None = None,
        max_pairs_at_once: int = MAX_PAIRS_AT_ONCE,
    ) -> None:
        self._process_group, self._max_pairs_at_once = process_group, max_pairs_at_once
        self.rank = distributed.get_rank(process_group)
        self.size = distributed.get_world_size(process_group)
        self.others = [rank for rank in range(self.size) if rank != self.rank]
        self.operations = 0
        self.copies: PeerCopies | None = None
        self.pieces = PIECES
        self._scarce_memory = False

    def __deepcopy__(self, memo: object) -> "RankGroup":
        """Return the group itself, because copies of modules communicate in it, too."""
        return self

    @property
    def can_be_captured(self) -> bool:
        """True if blocks with their communication shall be replayed as CUDA graphs, on GPUs."""
        return self.pieces == 1 and not self._scarce_memory

    def open_copies(self, device: torch.device) -> str:
        """Prepare to transfer tensors by the GPUs' copy engines; all ranks call this at the same time.

        Args:
            device: this rank's GPU, which is the current one.

        Returns:
            The reason why they cannot be used, or an empty string.
        """
        try:
            self.copies = PeerCopies(self._process_group, device)
        except PeerCopyError as error:
            return str(error)
        return ""

    def begin(self, residues: int, *, scarce_memory: bool = False) -> None:
        """Select the means of transfer for the next prediction; all ranks call this at the same time.

        Releases the memory of other ranks that earlier transfers have opened.

        Args:
            residues: length of the protein.
            scarce_memory: whether `release_cached_memory` shall act; it does if this is True for any rank.
        """
        scarce, hosts = zip(*self._gather_objects((scarce_memory, socket.gethostname())), strict=True)
        self._scarce_memory = any(scarce)
        self.pieces = exchange_pieces(residues, self.size, self._max_pairs_at_once)
        if len(set(hosts)) > 1:
            # exchanges between hosts take so long that they should overlap
            self.pieces = PIECES
        if self.copies is not None:
            self.copies.release()

    def first_error(self, error: str) -> str:
        """Return the first error of a rank, or an empty string; all ranks call this at the same time.

        An error that another rank has caused comes last.
        """
        texts = [f"rank {rank}: {text}" for rank, text in enumerate(self._gather_objects(error)) if text]
        if texts and self.copies is not None:
            self.copies.align()
        return min(texts, key=lambda text: text.endswith(NOT_CAPTURED), default="")

    def least(self, values: Sequence[int]) -> list[int]:
        """Return the least of the numbers of all ranks, each for itself; all call this at the same time."""
        return [min(numbers) for numbers in zip(*self._gather_objects(values), strict=True)]

    def _gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value, self._process_group)
        return values

    def release_cached_memory(self) -> None:
        """Release cached GPU memory if it is scarce; all ranks call this at the same time.

        All transfers must have been waited for. See `model.layers.cached_memory`.
        """
        if not self._scarce_memory:
            return
        if self.copies is not None:
            # memory that another rank has opened would stay occupied
            self.copies.release()
        torch.cuda.empty_cache()

    def shards(self, total: int) -> Shards:
        """Return the division of an axis among the ranks."""
        return Shards(total, self.size)

    def transfer(
        self, sent: Mapping[int, torch.Tensor], received: Mapping[int, torch.Tensor], kind: str
    ) -> Pending[None]:
        """Start to send a tensor to each of some other ranks, and to receive one from each.

        Args:
            sent: contiguous tensors by rank; they must not change until the transfer was waited for.
            received: contiguous tensors to write, by rank.
            kind: what is communicated, for the record.
        """
        tensors = [*sent.values(), *received.values()]
        on_gpu = any(x.is_cuda for x in tensors)
        received_bytes = sum(x.nbytes for x in received.values())
        copies = self.copies if on_gpu else None
        if copies is not None and (self.pieces > 1 or torch.cuda.is_current_stream_capturing()):
            wait_for_copies = copies.start(sent, received)

            def wait_and_keep(tensors: list[torch.Tensor] = tensors) -> None:
                wait_for_copies()

            return self._start_pending(wait_and_keep, on_gpu, received_bytes, kind)
        operations = [
            distributed.P2POp(function, x, group=self._process_group, group_peer=rank)
            for function, tensors in ((distributed.isend, sent), (distributed.irecv, received))
            for rank, x in tensors.items()
            if x.numel()
        ]
        works = distributed.batch_isend_irecv(operations) if operations else []

        def wait(tensors: list[torch.Tensor] = tensors) -> None:
            for work in works:
                work.wait()

        return self._start_pending(wait, on_gpu, received_bytes, kind)

    def gather(self, x: torch.Tensor, shards: Shards, kind: str) -> Pending[torch.Tensor]:
        """Gather shards along the first axis.

        Args:
            x: [n, ...], this rank's shard.
            shards: division of the first axis.
            kind: what is communicated, for the record.

        Returns:
            [N, ...], contiguous.
        """
        result = x.new_empty(shards.total, *x.shape[1:])
        parts = {rank: result[shards.of(rank)] for rank in range(self.size)}
        sent = parts.pop(self.rank)
        copy_part(sent, x)
        return self.transfer(dict.fromkeys(self.others, sent), parts, kind).then(lambda _: result)

    def gather_blocks(
        self, x: torch.Tensor, axis: int, shards: Shards, kind: str
    ) -> Pending[dict[int, torch.Tensor]]:
        """Gather shards along any axis, without joining them.

        Returns:
            The shards of all other ranks.
        """
        shape, x = list(x.shape), contiguous_part(x)
        received = {}
        for rank in self.others:
            shape[axis] = shards.counts[rank]
            received[rank] = x.new_empty(shape)
        return self.transfer(dict.fromkeys(self.others, x), received, kind).then(lambda _: received)

    def to_columns(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        row_shards: Shards,
        column_shards: Shards,
        kind: str,
        piece: tuple[int, int] = (0, 1),
    ) -> Pending[None]:
        """Exchange rows of a matrix for columns: start to write this rank's columns from the rows of all.

        Args:
            rows: [n, M, ...], this rank's rows.
            columns: [N, m, ...], contiguous, to write.
            row_shards: division of the N rows.
            column_shards: division of the M columns.
            kind: what is communicated, for the record.
            piece: index and number of pieces; only this piece of each rank's rows is exchanged.
        """
        own_rows = row_shards.piece_of(self.rank, *piece)
        start = row_shards.of(self.rank).start
        source = rows[own_rows.start - start : own_rows.stop - start]
        sent = {rank: contiguous_part(source[:, column_shards.of(rank)]) for rank in self.others}
        received = {rank: columns[row_shards.piece_of(rank, *piece)] for rank in self.others}
        pending = self.transfer(sent, received, kind)
        copy_part(columns[own_rows], source[:, column_shards.of(self.rank)])
        return pending

    def to_rows(
        self,
        columns: torch.Tensor,
        row_shards: Shards,
        column_shards: Shards,
        kind: str,
        rows: torch.Tensor | None = None,
    ) -> Pending[torch.Tensor]:
        """Exchange columns of a matrix for rows.

        Args:
            columns: [N, m, ...], this rank's columns, contiguous.
            row_shards: division of the N rows.
            column_shards: division of the M columns.
            kind: what is communicated, for the record.
            rows: memory for the result, or None.

        Returns:
            [n, M, ...], this rank's rows.
        """
        own_rows, rest = row_shards.of(self.rank), columns.shape[2:]
        count = own_rows.stop - own_rows.start
        result = columns.new_empty(count, column_shards.total, *rest) if rows is None else rows
        sent = {rank: columns[row_shards.of(rank)] for rank in self.others}
        received = {rank: columns.new_empty(count, column_shards.counts[rank], *rest) for rank in self.others}
        pending = self.transfer(sent, received, kind)
        copy_part(result[:, column_shards.of(self.rank)], columns[own_rows])

        def join(_: None) -> torch.Tensor:
            for rank, x in received.items():
                copy_part(result[:, column_shards.of(rank)], x)
            return result

        return pending.then(join)

    def broadcast(self, x: torch.Tensor, source: int, kind: str) -> torch.Tensor:
        """Overwrite a contiguous tensor with that of another rank, and return it."""
        work = distributed.broadcast(x, group_src=source, group=self._process_group, async_op=True)
        self._start_pending(work.wait, x.is_cuda, 0 if self.rank == source else x.nbytes, kind).wait()
        return x

    def sum(self, x: torch.Tensor, kind: str) -> torch.Tensor:
        """Overwrite a contiguous tensor with the sum of those of all ranks, and return it."""
        work = distributed.all_reduce(x, group=self._process_group, async_op=True)
        self._start_pending(work.wait, x.is_cuda, x.nbytes, kind).wait()
        return x

    def _start_pending(
        self, wait: Callable[[], object], on_gpu: bool, received_bytes: int, kind: str
    ) -> Pending[None]:
        """Count a started operation, and return it as a pending communication.

        Groups that measure their communication override this; only they use all arguments.
        """
        self.operations += 1
        return Pending(wait, lambda: None)
