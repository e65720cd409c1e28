"""GPUs driven by separate processes, in numba's simulator: their hits, and how the processes end."""

import gc
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu import engine
from msa.gpu.device.devices import GpuUnavailable
from msa.gpu.engine import GpuEngine
from msa.gpu.remote_worker import RemoteWorker, start_remote_workers
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.process_start import GpuProcess
from msa.gpu.worker.worker_process import MappedArray, open_sequences, share_sequences
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord
from msa.search.database_search import SearchSettings, search_many
from tests.conftest import SIMULATOR_VARIABLES, simulate_gpus
from tests.msa.gpu.tiny_search import BATCH_QUERIES, CLUSTERS, TinySearch, as_table

HERE = Path(__file__).parent
FAULTS = "tests.msa.gpu.worker_with_faults"

Start = Callable[..., list[RemoteWorker]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts GPU processes, two without faults by default."""
    simulate_gpus(monkeypatch)
    monkeypatch.setattr(engine, "_BATCH_QUERIES", BATCH_QUERIES)
    monkeypatch.setattr(engine, "_STREAMED_BATCH_QUERIES", BATCH_QUERIES)
    monkeypatch.setattr(engine, "_REPLICATED_BYTES", 0)
    started: list[RemoteWorker] = []

    def start_workers(*faults: str, gpu: int = 0, **options: Any) -> list[RemoteWorker]:
        settings = GpuSettings(tmp_path / "kernels", **options)
        faults = faults or ("none", "none")
        for fault in faults:
            started.extend(start_remote_workers([GpuProcess(gpu, entry=f"{FAULTS}:{fault}")], settings))
        return started[-len(faults) :]

    yield start_workers
    for worker in started:
        worker.close()


def has_ended(pid: int) -> bool:
    """Return whether a process, of any parent, ends within a minute."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor):
        return bool(select.select([descriptor], [], [], 60)[0])


@pytest.mark.slow
def test_cluster_members_are_divided_among_gpus(tmp_path: Path, start: Start) -> None:
    clustered = TinySearch(tmp_path, CLUSTERS)
    # cluster members come after all representatives
    assert any(hit[0] >= clustered.database.representatives for hits in clustered.expected for hit in hits)
    gpu_engine = GpuEngine(start("none", "none"))
    clustered.check(gpu_engine)
    gpu_engine.close()


@pytest.mark.slow
def test_targets_or_queries_are_divided_among_gpus(
    tiny: TinySearch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_engine = GpuEngine(start("none", "none", "none"))
    tiny.check(gpu_engine)
    assert len(gpu_engine._groups) == 1
    assert all(gpu_engine.seconds[stage] > 0 for stage in ("queueing", "alignment"))
    # arrays that are not mapped from a file
    arrays = tiny.database.arrays
    copies = SequenceArrays(*map(np.array, (arrays.residues, arrays.offsets, arrays.lengths)))
    in_memory = replace(tiny.database, arrays=copies)
    monkeypatch.setattr(engine, "_REPLICATED_BYTES", 2**30)
    tiny.check(gpu_engine, in_memory)
    assert len(gpu_engine._groups) == 3
    gpu_engine.close()


@pytest.mark.slow
def test_more_gpus_than_targets(tmp_path: Path, start: Start) -> None:
    words = "MKVLAAGWHTRE", "GWHTREMKVLAAGW"
    (tmp_path / "t.fasta").write_text("".join(f">t{k}\n{word}\n" for k, word in enumerate(words)))
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(mask=False, threads=1))
    database = TargetDatabase.open(tmp_path / "db")
    queries, settings = [FastaRecord("q", words[0])], SearchSettings(evalue=60.0)
    expected = as_table(search_many(queries, database, settings))
    assert expected[0]
    gpu_engine = GpuEngine(start("none", "none", "none"))
    assert as_table(search_many(queries, database, settings, engine=gpu_engine)) == expected
    gpu_engine.close()


@pytest.mark.slow
def test_streamed_database(tiny: TinySearch, start: Start) -> None:
    gpu_engine = GpuEngine(start(max_database_bytes=150))
    tiny.check(gpu_engine)
    assert not gpu_engine._groups[0].resident


@pytest.mark.slow
def test_cancelled_search_is_not_finished(tiny: TinySearch, start: Start) -> None:
    gpu_engine = GpuEngine(start("waiting", "none"))
    # three batches, of which the first GPU gets two
    queries = 3 * [query for query in tiny.queries if not isinstance(query, ProfileRecord)]
    results: Any = search_many(queries, tiny.database, tiny.settings, engine=gpu_engine)
    assert as_table([next(results)]) == tiny.expected[:1]
    closing = threading.Thread(target=results.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    tiny.check(gpu_engine)


@pytest.mark.slow
def test_signals_do_not_end_gpu_processes(tiny: TinySearch, start: Start) -> None:
    workers = start()
    gpu_engine = GpuEngine(workers)
    results = search_many(tiny.queries, tiny.database, tiny.settings, engine=gpu_engine)
    first = next(results)
    for worker in workers:
        for number in signal.SIGINT, signal.SIGTERM:
            worker.process.service.process.send_signal(number)
    assert as_table([first, *results]) == tiny.expected


def test_killed_process_is_reported(tiny: TinySearch, start: Start) -> None:
    workers = start("none", "stuck")
    gpu_engine = GpuEngine(workers)
    results = search_many(tiny.queries, tiny.database, tiny.settings, engine=gpu_engine)
    # by then the process is stuck at the second batch
    threading.Timer(1.0, workers[1].process.service.process.kill).start()
    with pytest.raises(GpuUnavailable, match="the process of GPU 0 has ended: signal SIGKILL"):
        list(results)
    # later searches fail likewise, and the process of the other GPU is still usable
    with pytest.raises(GpuUnavailable, match="signal SIGKILL"):
        list(search_many(tiny.queries, tiny.database, tiny.settings, engine=gpu_engine))
    assert workers[0].drain().result(60) is None


@pytest.mark.slow
def test_errors_are_raised_in_the_searching_process(tiny: TinySearch, start: Start) -> None:
    working, failing, full = start("none", "error", "no_memory")
    with pytest.raises(ValueError, match="simulated fault") as caught:
        list(search_many(tiny.queries, tiny.database, tiny.settings, engine=GpuEngine([working, failing])))
    assert "worker_with_faults.py" in str(caught.value.__cause__)
    with pytest.raises(GpuUnavailable, match="12345 bytes") as unavailable:
        list(search_many(tiny.queries, tiny.database, tiny.settings, engine=GpuEngine([full, working])))
    assert "--device cpu" in unavailable.value.remedy
    # the working GPU has no work left of either search
    tiny.check(GpuEngine([working]))


def test_missing_gpu_is_reported(start: Start) -> None:
    worker = start("none", gpu=7)[-1]
    with pytest.raises(GpuUnavailable, match="there is no GPU number 7") as caught:
        _ = worker.gpu
    assert "find_gpu" in str(caught.value.__cause__)


def test_process_that_exits_is_reported(tmp_path: Path) -> None:
    (worker,) = start_remote_workers([GpuProcess(3, entry=f"{FAULTS}:exiting")], GpuSettings(tmp_path))
    with pytest.raises(GpuUnavailable, match="the process of GPU 3 has ended: exit status 9"):
        _ = worker.gpu


@pytest.mark.slow
def test_processes_end_with_their_last_reference(tiny: TinySearch, start: Start, tmp_path: Path) -> None:
    started = [GpuProcess(0, entry=f"{FAULTS}:none") for _ in range(2)]
    processes = [each.service.process for each in started]
    gpu_engine = GpuEngine(start_remote_workers(started, GpuSettings(tmp_path)))
    tiny.check(gpu_engine)
    del gpu_engine, started
    gc.collect()
    assert [process.wait(60) for process in processes] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_the_search(tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | SIMULATOR_VARIABLES
    command = [sys.executable, HERE / "endless_search.py", tmp_path]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout is not None
        pids = list(map(int, search.stdout.readline().split()))
        alive = [Path(f"/proc/{pid}").exists() for pid in pids]
        search.send_signal(number)
        assert search.wait() == -number
    assert alive == [True, True]
    assert all(map(has_ended, pids))


def test_search_on_several_gpus_does_not_import_numba(root: Path) -> None:
    code = (
        "import sys, msa.gpu.remote_worker, msa.gpu.engine, msa.search.database_search, "
        "msa.database.database, msa.database.sequence_arrays; "
        "print('numba' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "False\n", run.stderr


def test_mapped_arrays_are_located_in_their_file(tiny: TinySearch) -> None:
    arrays = tiny.database.arrays
    for array in arrays.offsets, arrays.lengths[3:7], arrays.residues[5:]:
        mapped = MappedArray.from_array(array)
        assert mapped is not None
        again = mapped.open()
        assert again.dtype == array.dtype and again.tolist() == array.tolist()
    assert MappedArray.from_array(np.zeros(3)) is None
    private = np.memmap(tiny.database.path / "residues.u8", np.uint8, "c")
    assert MappedArray.from_array(private) is None


def test_replaced_files_stay_mapped(tmp_path: Path) -> None:
    np.arange(20, dtype=np.uint8).tofile(tmp_path / "residues")
    residues = np.memmap(tmp_path / "residues", mode="r").view(np.ndarray)
    offsets, lengths = np.array([4, 9]), np.array([3, 2], np.int32)
    mapped: dict[MappedArray, np.ndarray] = {}
    loaded = open_sequences(share_sequences(SequenceArrays(residues, offsets, lengths)), mapped)
    (tmp_path / "residues").unlink()
    np.zeros(20, np.uint8).tofile(tmp_path / "residues")
    parts = open_sequences(share_sequences(SequenceArrays(residues, offsets + 1, lengths)), mapped)
    assert [parts.codes(k).tolist() for k in range(2)] == [[5, 6, 7], [10, 11]]
    assert loaded.codes(0).tolist() == [4, 5, 6] and len(mapped) == 1
