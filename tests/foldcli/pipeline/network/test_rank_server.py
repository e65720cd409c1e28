"""Tests of the ranks other than rank 0: jobs that they receive, joining, and failures."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed

from foldcli.errors import ExitCode
from foldcli.families.settings import AlphaFold2Settings, NetworkOptions
from foldcli.pipeline.network import rank_server
from foldcli.pipeline.network.rank_server import NETWORKS_KEY, ending_all_on_failure, serve_rank
from model.errors import OutOfMemory
from model.parallel import session as session_module
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import RankFailure, RankSession
from tests.foldcli.pipeline.network import rank_cases
from tests.networks import tiny_parameters
from tests.rank_processes import RankProcesses


@pytest.fixture
def store() -> distributed.TCPStore:
    """Return the store of rank 0."""
    return distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60), wait_for_workers=False
    )


def test_all_ranks_get_the_features_of_rank_0() -> None:
    read_only = np.arange(4, dtype=np.float32)
    read_only.flags.writeable = False
    features = {
        "integers": np.arange(12, dtype=np.int32).reshape(3, 4).T,
        "truth": np.array([True, False, True]),
        "read only": read_only,
        "empty": np.zeros((0, 5), np.float64),
        "scalar": np.array(3.5),
    }
    processes = RankProcesses(2)
    try:
        received = processes.call(rank_cases.receive, features)
    finally:
        processes.close()
    for arrays in received:
        assert arrays.keys() == features.keys()
        for name, values in features.items():
            np.testing.assert_array_equal(arrays[name], values, strict=True)


def test_a_failure_ends_every_rank_and_one_reports_it(tmp_path: Path) -> None:
    processes = RankProcesses(2)
    with pytest.raises(EOFError):
        processes.call(rank_cases.end, str(tmp_path / "log"))
    processes.close()
    assert [process.exitcode for process in processes.processes] == [ExitCode.SOME_FAILED] * 2
    message = "rank 1 on a host: it has failed; run the same command again to continue\n"
    assert [(tmp_path / f"log{rank}").read_text() for rank in (0, 1)] == [message, ""]


def serve(store: distributed.TCPStore, params: str | None = None) -> int:
    """Return the exit code of rank 1 of two on the CPU."""
    options = NetworkOptions(
        params, (1,), "auto", "cpu", None, None, "auto", AlphaFold2Settings(), gpus_per_target=2
    )
    threads = torch.get_num_threads()
    try:
        return serve_rank(options, 1, RankAssignment(1, 2, 1, 2, "127.0.0.1", store.port))
    finally:
        torch.set_num_threads(threads)


def test_a_rank_is_done_if_rank_0_has_nothing_to_predict(store: distributed.TCPStore) -> None:
    store.set("end", "")
    assert serve(store) == ExitCode.DONE


@pytest.mark.parametrize("default", [False, True])
def test_a_rank_of_another_version_leaves(store: distributed.TCPStore, default: bool) -> None:
    params = tiny_parameters()
    store.set(NETWORKS_KEY, json.dumps([params, ["monomer"]]))
    store.set("identity/0", json.dumps({"host": "a host", "foldcli": "another"}))
    # without parameters of its own, a rank has those that rank 0 has chosen
    assert serve(store, None if default else params) == ExitCode.MISSING
    assert store.check(["mismatch/1"])
    # the values that must be equal
    own = json.loads(store.get("identity/1"))
    assert set(own) == {
        "host", "foldcli", "torch", "parameters with hash", "precision", "kernels", "settings with hash",
        "devices of type",
    }  # fmt: skip
    assert (own["precision"], own["kernels"], own["devices of type"]) == ("fp32", "reference", "cpu")


@pytest.fixture
def failures() -> list[RankFailure]:
    return []


@pytest.fixture
def session(
    store: distributed.TCPStore, failures: list[RankFailure], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RankSession]:
    """Return the session of a single rank, which quickly notices its failure."""
    monkeypatch.setattr(session_module, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(rank_server, "_BLAME_SECONDS", 0.2)
    assignment = RankAssignment(0, 1, 0, 1, "127.0.0.1", store.port)
    session = RankSession(store, assignment, {}, lambda failure, _: failures.append(failure), 60.0)
    yield session
    session.close()


@pytest.mark.parametrize(
    ("error", "raised", "reason"),
    [
        (ValueError("bad\nsecond line"), ValueError, "bad"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried"),
            OutOfMemory,
            "not enough memory: CUDA out of memory",
        ),
    ],
)
def test_an_error_of_a_rank_is_reported_to_all(
    error: Exception,
    raised: type[Exception],
    reason: str,
    session: RankSession,
    failures: list[RankFailure],
) -> None:
    with pytest.raises(raised), ending_all_on_failure(session):
        raise error
    (failure,) = failures
    assert (failure.rank, failure.reason, failure.self_reported) == (0, reason, True)


def test_a_target_that_does_not_fit_ends_no_rank(session: RankSession, failures: list[RankFailure]) -> None:
    with pytest.raises(OutOfMemory), ending_all_on_failure(session):
        raise OutOfMemory("of each of several devices")
    assert not session.wait_for_failure(0.1) and failures == []
