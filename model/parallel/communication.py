"""Communication between the ranks of one prediction: gathers and exchanges of shards, counted and timed.

All operations are started asynchronously and waited for as late as possible. With NCCL they run on a stream
of their own, and waiting stops the current stream, not the CPU.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import distributed

# the name from torch 2.13 on, and the earlier one
_all_gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Shards:
    """The division of an axis among ranks, in their order.

    Every rank has ceil(total / ranks) elements, but the last ones have fewer or none. So gathered shards are
    contiguous, and no rank has more elements than with any other division.

    Args:
        total: size of the axis.
        ranks: number of ranks.
    """

    total: int
    ranks: int

    @property
    def size(self) -> int:
        """The largest number of elements of a rank."""
        return -(-self.total // self.ranks)

    def of(self, rank: int) -> slice:
        """Return the elements of a rank."""
        return slice(min(rank * self.size, self.total), min((rank + 1) * self.size, self.total))

    @property
    def slices(self) -> list[slice]:
        """The elements of all ranks."""
        return [self.of(rank) for rank in range(self.ranks)]

    @property
    def counts(self) -> list[int]:
        """The number of elements of all ranks."""
        return [part.stop - part.start for part in self.slices]


@dataclass
class Traffic:
    """The communication of one kind.

    Args:
        calls: number of operations.
        received_bytes: bytes received from other ranks.
        exposed_seconds: time that computation waited.
    """

    calls: int = 0
    received_bytes: int = 0
    exposed_seconds: float = 0.0


class CommunicationRecord:
    """A record of a group's communication by kind.

    On a GPU the exposed time is measured between two events of the current stream around each wait, on a CPU
    by the clock.
    """

    def __init__(self) -> None:
        self._traffic: dict[str, Traffic] = defaultdict(Traffic)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def count(self, kind: str, received_bytes: int) -> None:
        """Count one operation."""
        self._traffic[kind].calls += 1
        self._traffic[kind].received_bytes += received_bytes

    def time(self, kind: str, wait: Callable[[], object], on_gpu: bool) -> None:
        """Call `wait`, and record how long computation waits."""
        if on_gpu:
            events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            events[0].record()
            wait()
            events[1].record()
            self._events.append((kind, *events))
        else:
            start = time.perf_counter()
            wait()
            self._traffic[kind].exposed_seconds += time.perf_counter() - start

    def totals(self) -> dict[str, Traffic]:
        """Return the communication so far by kind; waits for the GPU."""
        for kind, start, end in self._events:
            end.synchronize()
            self._traffic[kind].exposed_seconds += start.elapsed_time(end) / 1000
        self._events.clear()
        return dict(self._traffic)


class Pending(Generic[T]):
    """A communication in progress, which holds the tensors that it sends and receives until it is waited for.

    Args:
        wait: waits for it.
        result: returns its result afterwards.
    """

    def __init__(self, wait: Callable[[], object], result: Callable[[], T]) -> None:
        self._calls: tuple[Callable[[], object], Callable[[], T]] | None = (wait, result)

    def wait(self) -> T:
        """Wait for the communication and return its result; call this once."""
        wait, result = self._take()
        wait()
        # the sent tensor is freed before the received ones are joined
        del wait
        return result()

    def then(self, function: Callable[[T], R]) -> "Pending[R]":
        """Return a communication whose result is that of a function of this one's, in place of this one."""
        wait, result = self._take()
        return Pending(wait, lambda: function(result()))

    def _take(self) -> tuple[Callable[[], object], Callable[[], T]]:
        assert self._calls is not None
        calls, self._calls = self._calls, None
        return calls


class RankGroup:
    """The ranks of one prediction, and their communication.

    All ranks must call the same methods in the same order, with shapes that fit together.

    Args:
        process_group: a group of torch.distributed; None is the default one.

    Attributes:
        rank: index of this process.
        size: number of ranks.
        record: counts and times all communication if it is set.
        operations: number of operations that this rank has started, which shows its progress.
    """

    def __init__(self, process_group: distributed.ProcessGroup | None = None) -> None:
        self._process_group = process_group
        self.rank = distributed.get_rank(process_group)
        self.size = distributed.get_world_size(process_group)
        self.record: CommunicationRecord | None = None
        self.operations = 0

    def shards(self, total: int) -> Shards:
        """Return the division of an axis among the ranks."""
        return Shards(total, self.size)

    def gather(self, x: torch.Tensor, shards: Shards, kind: str) -> Pending[torch.Tensor]:
        """Gather shards along the first axis.

        Args:
            x: [n, ...], this rank's shard.
            shards: division of the first axis.
            kind: what is communicated, for the record.

        Returns:
            [N, ...], contiguous.
        """
        buffer, pending = self._gather_padded(x, 0, shards, kind)
        return pending.then(lambda _: buffer.flatten(0, 1)[: shards.total])

    def gather_blocks(
        self, x: torch.Tensor, axis: int, shards: Shards, kind: str
    ) -> Pending[list[torch.Tensor]]:
        """Gather shards along any axis, without joining them.

        Returns:
            The shard of each rank.
        """
        buffer, pending = self._gather_padded(x, axis, shards, kind)
        return pending.then(
            lambda _: [
                block.narrow(axis, 0, count) for block, count in zip(buffer, shards.counts, strict=True)
            ]
        )

    def _gather_padded(
        self, x: torch.Tensor, axis: int, shards: Shards, kind: str
    ) -> tuple[torch.Tensor, Pending[None]]:
        """Start to gather shards of equal size, padded where necessary, into a buffer [ranks, ...]."""
        x = x.contiguous()
        if x.shape[axis] < shards.size:
            shape = list(x.shape)
            shape[axis] = shards.size
            padded = x.new_zeros(shape)
            padded.narrow(axis, 0, x.shape[axis]).copy_(x)
            x = padded
        buffer = x.new_empty(self.size, *x.shape)
        work = _all_gather(buffer, x[None], self._process_group, async_op=True)
        received = (self.size - 1) * x.numel() * x.element_size()
        return buffer, self._started(work, x, received, kind)

    def exchange(
        self, x: torch.Tensor, split_axis: int, split: Shards, join_axis: int, join: Shards, kind: str
    ) -> Pending[torch.Tensor]:
        """Change the axis that is divided among the ranks.

        Args:
            x: this rank's shard, divided along `join_axis`, whole along `split_axis`.
            split_axis: the axis to divide.
            split: its division.
            join_axis: the axis to join.
            join: its division.
            kind: what is communicated, for the record.

        Returns:
            This rank's shard, divided along `split_axis`, whole along `join_axis`.
        """
        per_element = x.numel() // max(1, x.shape[split_axis])
        sent_sizes = [per_element * count for count in split.counts]
        if split_axis == 0 and x.is_contiguous():
            sent = x.view(-1)
        else:
            sent = x.new_empty(x.numel())
            parts = x.split(split.counts, split_axis)
            for target, part in zip(sent.split(sent_sizes), parts, strict=True):
                target.view(part.shape).copy_(part)
        shape = list(x.shape)
        shape[split_axis], shape[join_axis] = split.counts[self.rank], 1
        per_received = torch.Size(shape).numel()
        received = x.new_empty(join.total * per_received)
        pending = self.all_to_all(
            received,
            [per_received * count for count in join.counts],
            sent,
            sent_sizes,
            kind,
        )

        def joined() -> torch.Tensor:
            if join_axis == 0:
                return received.view(join.total, *shape[1:])
            parts = received.split([per_received * count for count in join.counts])
            shapes = ((*shape[:join_axis], count, *shape[join_axis + 1 :]) for count in join.counts)
            return torch.cat([part.view(s) for part, s in zip(parts, shapes, strict=True)], dim=join_axis)

        return pending.then(lambda _: joined())

    def all_to_all(
        self,
        received: torch.Tensor,
        received_sizes: Sequence[int],
        sent: torch.Tensor,
        sent_sizes: Sequence[int],
        kind: str,
    ) -> Pending[None]:
        """Send a part of a vector to each rank, and receive a part of another vector from each.

        Args:
            received: vector to write.
            received_sizes: elements from each rank.
            sent: contiguous vector.
            sent_sizes: elements for each rank.
            kind: what is communicated, for the record.
        """
        work = distributed.all_to_all_single(
            received, sent, list(received_sizes), list(sent_sizes), self._process_group, async_op=True
        )
        others = received.numel() - received_sizes[self.rank]
        return self._started(work, sent, others * received.element_size(), kind)

    def broadcast(self, x: torch.Tensor, source: int, kind: str) -> torch.Tensor:
        """Overwrite a contiguous tensor with that of another rank, and return it."""
        work = distributed.broadcast(x, group_src=source, group=self._process_group, async_op=True)
        received = 0 if self.rank == source else x.numel() * x.element_size()
        self._started(work, x, received, kind).wait()
        return x

    def _started(
        self, work: distributed.Work, sent: torch.Tensor, received_bytes: int, kind: str
    ) -> Pending[None]:
        """Count an operation and return it; the sent tensor stays alive until it is waited for."""
        self.operations += 1
        record = self.record
        if record is None:
            return Pending(lambda keep=sent: work.wait(), lambda: None)  # type: ignore[misc]
        record.count(kind, received_bytes)
        return Pending(lambda: record.time(kind, work.wait, sent.is_cuda), lambda: None)
