"""The ranks of a run: connection, check for equal settings, and detection of failures.

All ranks share a key-value store of torch.distributed. Before the first prediction, each writes the values
that must be equal on all ranks; then it writes a sign of life once per second. A rank that fails, dies or
makes no progress ends all others: a thread of each rank looks for failures, because the main thread may wait
for the failed rank.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
from torch import distributed

from model.errors import RankMismatch
from model.parallel.communication import RankGroup
from model.parallel.rank_assignment import RankAssignment

BEAT_SECONDS = 1.0
# A rank without a sign of life for this long is considered dead. Only Python code that holds the interpreter
# lock delays the signs.
DEAD_SECONDS = 15.0
# time for a rank to import torch, open its GPU and reach the others
JOIN_SECONDS = 300.0
# backends by type of device; with GPUs, features are sent from CPU to CPU
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
# time for the other ranks to leave after the last prediction, or because ranks differ
LEAVE_SECONDS = 10.0
# time between the end of a prediction on rank 0 and on the other ranks
END_SECONDS = 3.0
POLL_SECONDS = 0.01


def connect(assignment: RankAssignment) -> distributed.TCPStore:
    """Connect to the store of the ranks; rank 0 opens it unless torchrun already has.

    Raises:
        RuntimeError: rank 0 cannot be reached.
    """
    by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return _connect(assignment.address, assignment.port, opens=assignment.rank == 0 and not by_torchrun)


def _connect(address: str, port: int, *, opens: bool) -> distributed.TCPStore:
    return distributed.TCPStore(
        address, port, is_master=opens, timeout=timedelta(seconds=JOIN_SECONDS), wait_for_workers=False
    )


def open_group(
    store: distributed.Store, rank: int, size: int, device_type: str, stall_seconds: float
) -> RankGroup:
    """Open the communication between the ranks.

    Args:
        store: store of all ranks.
        rank: index of this process.
        size: number of ranks.
        device_type: "cpu", or "cuda" for the current GPU.
        stall_seconds: a prediction without progress for this long has failed.
    """
    distributed.init_process_group(
        _BACKENDS[device_type],
        store=distributed.PrefixStore("group", store),
        rank=rank,
        world_size=size,
        # ranks notice stalls earlier, unless one of them hangs
        timeout=timedelta(seconds=2 * stall_seconds + 60),
    )
    group = RankGroup()
    if device_type == "cuda":
        # without these, for example on several hosts, all transfers are NCCL's
        group.open_copies(torch.device("cuda", torch.cuda.current_device()))
    return group


@dataclass(frozen=True)
class RankFailure:
    """The failure of a rank.

    Args:
        rank: its index.
        host: its host.
        reason: what happened.
        self_reported: whether the rank itself has reported the failure.
    """

    rank: int
    host: str
    reason: str
    self_reported: bool = False

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.reason}"


class NothingToPredict(Exception):
    """The end of rank 0 before it has joined the others, because it has no target."""


def decline(assignment: RankAssignment) -> None:
    """Report to the other ranks that there is nothing to predict; for rank 0 of a run under torchrun."""
    connect(assignment).set("end", "")


def wait_for_rank(store: distributed.TCPStore, key: str, rank: int) -> bytes:
    """Return the value of a key that a rank sets when it starts.

    Raises:
        RankMismatch: the rank has not set it in time.
        NothingToPredict: rank 0 has left already.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while not store.check([key]):
        if store.check(["end"]):
            raise NothingToPredict
        if time.monotonic() > deadline:
            raise RankMismatch(f"rank {rank} did not join within {JOIN_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    value: bytes = store.get(key)
    return value


class RankSession:
    """The connection of this process to the other ranks of a run.

    Args:
        store: the store of the ranks.
        assignment: the rank of this process.
        identity: names and values that must be the same on all ranks.
        on_failure: called once, in a thread, with the failure of a rank and whether this rank has to report
            it to the user; normally ends the process.
        stall_seconds: a prediction without progress for this long has failed.

    Attributes:
        hosts: host of each rank.
    """

    def __init__(
        self,
        store: distributed.TCPStore,
        assignment: RankAssignment,
        identity: Mapping[str, str],
        on_failure: Callable[[RankFailure, bool], None],
        stall_seconds: float,
    ) -> None:
        self.assignment = assignment
        self._store, self._on_failure, self._stall_seconds = store, on_failure, stall_seconds
        # a client of its own: another thread may wait for the first one
        self._watch_store = _connect(assignment.address, store.port, opens=False)
        self.hosts = [""] * assignment.size
        self._group: RankGroup | None = None
        self._busy = False
        self._stop = threading.Event()
        self._failed = threading.Event()
        self._jobs = 0
        self._join(identity)
        self._thread = threading.Thread(target=self._watch, name="rank watch", daemon=True)
        self._thread.start()

    @property
    def group(self) -> RankGroup:
        """The ranks as a group that communicates."""
        assert self._group is not None
        return self._group

    def open_group(self, device_type: str) -> RankGroup:
        """Open the communication between the ranks, whose devices are "cpu" or "cuda"."""
        assignment = self.assignment
        self._group = open_group(
            self._store, assignment.rank, assignment.size, device_type, self._stall_seconds
        )
        return self._group

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Mark a period in which all ranks must make progress."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def announce(self, job: str) -> None:
        """Give a job to the other ranks; for rank 0."""
        self._store.set(f"job/{self._jobs}", job)
        self._jobs += 1

    def next_job(self) -> str | None:
        """Wait for the next job of rank 0; None after the last."""
        key = f"job/{self._jobs}"
        while True:
            if self._store.check([key]):
                self._jobs += 1
                return self._store.get(key).decode()
            if self._store.check(["end"]):
                return None
            time.sleep(POLL_SECONDS)

    def report(self, reason: str) -> None:
        """Report to all ranks, this one included, that this one has failed; the first report counts."""
        rank = self.assignment.rank
        failure = RankFailure(rank, self.hosts[rank], reason, self_reported=True)
        self._watch_store.compare_set("failure", "", json.dumps(asdict(failure)))

    def wait_for_failure(self, seconds: float) -> bool:
        """Wait up to `seconds` for the failure of a rank to be noticed; return True if there is one."""
        return self._failed.wait(seconds)

    def close(self) -> None:
        """Leave the run; rank 0 waits for the others, whose connections end with it."""
        self._stop.set()
        self._thread.join()
        if self.assignment.rank == 0:
            self._store.set("end", "")
        self._wait_for_others("left")

    def abandon(self) -> None:
        """Leave the run in the middle of a prediction; the other ranks end without a message."""
        self._stop.set()
        self._thread.join()
        self.report("it was interrupted")

    def _join(self, identity: Mapping[str, str]) -> None:
        """Wait for all ranks, and compare what must be equal.

        Raises:
            RankMismatch: a rank did not join, or its values differ from those of rank 0.
            NothingToPredict: rank 0 has left already.
        """
        own_identity = {"host": socket.gethostname(), **identity}
        self._store.set(f"identity/{self.assignment.rank}", json.dumps(own_identity))
        first: dict[str, str] = {}
        for rank in range(self.assignment.size):
            rank_identity = json.loads(wait_for_rank(self._store, f"identity/{rank}", rank))
            first = first or rank_identity
            self.hosts[rank] = rank_identity["host"]
            for name in identity:
                if rank_identity.get(name) != first.get(name):
                    self._wait_for_others("mismatch")
                    raise RankMismatch(
                        f"rank {rank} on {rank_identity['host']} has {name} {rank_identity.get(name)}, "
                        f"rank 0 on {first['host']} has {first.get(name)}"
                    )

    def _wait_for_others(self, event: str) -> None:
        """Tell rank 0 that this rank has noticed an event, or wait on rank 0, which holds the store."""
        if self.assignment.rank:
            self._store.set(f"{event}/{self.assignment.rank}", "")
            return
        keys = [f"{event}/{rank}" for rank in range(1, self.assignment.size)]
        deadline = time.monotonic() + LEAVE_SECONDS
        while not self._store.check(keys) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _watch(self) -> None:
        detector = _FailureDetector(self._watch_store, self.assignment, self.hosts, self._stall_seconds)
        while not self._stop.wait(BEAT_SECONDS):
            operations = 0 if self._group is None else self._group.operations
            failure = detector.check(operations, self._busy)
            if failure is not None and not self._stop.is_set():
                self._failed.set()
                reporter = 1 if failure.rank == 0 and not failure.self_reported else 0
                self._on_failure(failure, self.assignment.rank == reporter)
                return


class _FailureDetector:
    """A detector of failures of the other ranks, which also writes this rank's signs of life."""

    def __init__(
        self, store: distributed.TCPStore, assignment: RankAssignment, hosts: list[str], stall_seconds: float
    ) -> None:
        self._store, self._assignment, self._hosts = store, assignment, hosts
        self._stall_seconds = stall_seconds
        self._beats = 0
        now = time.monotonic()
        # last sign of life of each rank, and the time at which it was first seen
        self._last_signs = dict.fromkeys(range(assignment.size), ("", now))
        self._progress: tuple[list[int], float] = ([], now)
        # time at which the end of rank 0 was noticed
        self._end_time: float | None = None

    def check(self, operations: int, busy: bool) -> RankFailure | None:
        """Write a sign of life and return a failure, if there is one.

        Args:
            operations: number of this rank's operations so far.
            busy: whether a prediction runs.
        """
        try:
            return self._find_failure(operations, busy)
        except RuntimeError:
            # the store has ended, and with it the process that held it
            return RankFailure(0, self._hosts[0], "its process has ended")

    def _find_failure(self, operations: int, busy: bool) -> RankFailure | None:
        store, own_rank = self._store, self._assignment.rank
        self._beats += 1
        store.set(f"beat/{own_rank}", f"{self._beats} {operations}")
        if store.check(["failure"]):
            return RankFailure(**json.loads(store.get("failure")))
        now, counts = time.monotonic(), []
        if store.check(["end"]):
            self._end_time = self._end_time or now
            if busy and now - self._end_time > END_SECONDS:
                return RankFailure(0, self._hosts[0], "it ended during a prediction")
            return None
        for rank in range(self._assignment.size):
            key = f"beat/{rank}"
            beat = store.get(key).decode() if store.check([key]) else ""
            if beat != self._last_signs[rank][0]:
                self._last_signs[rank] = beat, now
            counts.append(int(beat.split()[1]) if beat else 0)
        for rank, (_, seen) in self._last_signs.items():
            if rank != own_rank and now - seen > DEAD_SECONDS and not store.check([f"left/{rank}"]):
                return self._report(rank, f"no sign of life for {DEAD_SECONDS:.0f} s")
        if not busy or counts != self._progress[0]:
            self._progress = counts, now
        elif own_rank == 0 and now - self._progress[1] > self._stall_seconds:
            return self._report(counts.index(min(counts)), f"no progress for {self._stall_seconds:.0f} s")
        return None

    def _report(self, rank: int, reason: str) -> RankFailure:
        failure = RankFailure(rank, self._hosts[rank], reason)
        written = self._store.compare_set("failure", "", json.dumps(asdict(failure)))
        return RankFailure(**json.loads(written))
