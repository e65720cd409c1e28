"""Several GPUs, each in a process of its own under numba's simulator: equal hits, and every way to end."""

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
from msa.gpu import engine
from msa.gpu.devices import GpuUnavailable
from msa.gpu.engine import GpuEngine
from msa.gpu.remote import RemoteWorker, remote_workers
from msa.gpu.settings import GpuSettings
from msa.gpu.wire import Failure, Mapped
from msa.io.fasta import FastaRecord
from msa.search.search import SearchSettings, search_many
from tests.msa.gpu.tiny import BATCH, CLUSTERS, Tiny, plain

HERE = Path(__file__).parent

Start = Callable[..., list[RemoteWorker]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def start(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the processes of two GPUs that work or go wrong in some way."""
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setattr(engine, "_BATCH", BATCH)
    monkeypatch.setattr(engine, "_STREAMED_BATCH", BATCH)
    monkeypatch.setattr(engine, "_REPLICATED_BYTES", 0)
    started: list[RemoteWorker] = []

    def begin(*ways: str, gpu: int = 0, **how: Any) -> list[RemoteWorker]:
        settings = GpuSettings(tmp_path / "kernels", **how)
        for way in ways or ("works", "works"):
            command = [sys.executable, str(HERE / "child.py"), way]
            started.extend(remote_workers([gpu], settings, command=command))
        return started[-len(ways or (0, 0)) :]

    yield begin
    for worker in started:
        worker.close()


def has_ended(pid: int) -> bool:
    """Whether a process ends within a minute, whoever's child it is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor):
        return bool(select.select([descriptor], [], [], 60)[0])


def test_members_of_clusters_shared_out(tmp_path: Path, start: Start) -> None:
    clustered = Tiny(tmp_path, CLUSTERS)
    # every member's place is behind those of the representatives
    assert any(hit[0] >= clustered.database.representatives for hits in clustered.expected for hit in hits)
    own = GpuEngine(start("works", "works"))
    clustered.check(own, "clusters")
    own.close()


def test_targets_and_queries_shared_out(tiny: Tiny, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    own = GpuEngine(start("works", "works", "works"))
    tiny.check(own, "targets shared out")
    assert len(own._groups) == 1 and all(own.seconds[stage] > 0 for stage in ("queueing", "alignment"))
    # arrays that lie in no file
    names = ("residues", "offsets", "lengths")
    copies = {name: np.array(getattr(tiny.database, name)) for name in names}
    in_memory = replace(tiny.database, **copies)
    monkeypatch.setattr(engine, "_REPLICATED_BYTES", 2**30)
    tiny.check(own, "queries shared out", in_memory)
    assert len(own._groups) == 3
    own.close()


def test_more_gpus_than_targets(tmp_path: Path, start: Start) -> None:
    words = "MKVLAAGWHTRE", "GWHTREMKVLAAGW"
    (tmp_path / "t.fasta").write_text("".join(f">t{k}\n{word}\n" for k, word in enumerate(words)))
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(mask=False, threads=1))
    database = TargetDatabase.open(tmp_path / "db")
    queries, settings = [FastaRecord("q", words[0])], SearchSettings(evalue=60.0)
    expected = plain(search_many(queries, database, settings))
    assert expected[0]
    own = GpuEngine(start("works", "works", "works"))
    assert plain(search_many(queries, database, settings, own)) == expected
    own.close()


def test_streamed(tiny: Tiny, start: Start) -> None:
    own = GpuEngine(start(most_bytes=150))
    tiny.check(own, "streamed")
    assert not own._groups[0].stays


def test_a_search_that_is_given_up_is_not_finished(tiny: Tiny, start: Start) -> None:
    own = GpuEngine(start("waiting", "works"))
    found: Any = search_many(tiny.queries, tiny.database, tiny.settings, own)
    assert plain([next(found)]) == tiny.expected[:1]
    closing = threading.Thread(target=found.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    tiny.check(own, "another search")


def test_signals_to_the_group_do_not_end_a_gpus_process(tiny: Tiny, start: Start) -> None:
    workers = start()
    own = GpuEngine(workers)
    found = search_many(tiny.queries, tiny.database, tiny.settings, own)
    first = next(found)
    for worker in workers:
        for number in signal.SIGINT, signal.SIGTERM:
            worker._process.process.send_signal(number)
    assert plain([first, *found]) == tiny.expected


def test_a_killed_process_is_named(tiny: Tiny, start: Start) -> None:
    workers = start("works", "stuck")
    own = GpuEngine(workers)
    found = search_many(tiny.queries, tiny.database, tiny.settings, own)
    assert plain([next(found)]) == tiny.expected[:1]
    workers[1]._process.process.kill()
    with pytest.raises(GpuUnavailable, match="the process of GPU 0 has ended: signal SIGKILL"):
        list(found)
    # whoever asks again is told the same, and the process of the other GPU is ready
    with pytest.raises(GpuUnavailable, match="signal SIGKILL"):
        list(search_many(tiny.queries, tiny.database, tiny.settings, own))
    assert workers[0].drain().result(60) is None


def test_errors_come_back(tiny: Tiny, start: Start) -> None:
    working, failing, full = start("works", "fails", "no memory")
    with pytest.raises(RuntimeError, match="GPU 0: ValueError: no such luck") as caught:
        list(search_many(tiny.queries, tiny.database, tiny.settings, GpuEngine([working, failing])))
    assert "child.py" in caught.value.__notes__[0]
    with pytest.raises(GpuUnavailable, match="12345 bytes") as unavailable:
        list(search_many(tiny.queries, tiny.database, tiny.settings, GpuEngine([full, working])))
    assert "--device cpu" in unavailable.value.remedy
    # nothing of either search is left on the one that works
    tiny.check(GpuEngine([working]), "after errors")


def test_an_interrupted_request_is_not_waited_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = start()[0]
    connection = worker._process._connection

    def send(message: object) -> None:
        # four bytes say how many follow
        os.write(connection.fileno(), (1000).to_bytes(4) + b"some")
        raise KeyboardInterrupt

    assert worker.gpu.number == 0
    with monkeypatch.context() as patch:
        patch.setattr(connection, "send", send)
        with pytest.raises(KeyboardInterrupt):
            worker.drain()
    with pytest.raises(GpuUnavailable, match="has ended"):
        worker.rest().result(60)


def test_a_gpu_that_is_not_there(start: Start) -> None:
    worker = start("works", gpu=7)[-1]
    with pytest.raises(GpuUnavailable, match="there is no GPU number 7") as caught:
        _ = worker.gpu
    assert "In the process of GPU 7" in caught.value.__notes__[0]


def test_a_command_that_does_not_start(tmp_path: Path) -> None:
    (worker,) = remote_workers(
        [3], GpuSettings(tmp_path), command=[sys.executable, "-c", "raise SystemExit(9)"]
    )
    with pytest.raises(GpuUnavailable, match="the process of GPU 3 has ended: exit status 9"):
        _ = worker.gpu


def test_processes_end_with_what_refers_to_them(tiny: Tiny, start: Start, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "child.py"), "works"]
    own = GpuEngine(remote_workers([0, 0], GpuSettings(tmp_path), command=command))
    tiny.check(own, "before")
    processes = [worker._process.process for worker in own.members]
    del own
    gc.collect()
    assert [process.returncode for process in processes] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_the_search(root: Path, tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, HERE / "search_until_killed.py", tmp_path]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout is not None
        pids = list(map(int, search.stdout.readline().split()))
        alive = [Path(f"/proc/{pid}").exists() for pid in pids]
        search.send_signal(number)
        assert search.wait() == -number
    assert alive == [True, True]
    assert all(map(has_ended, pids))


def test_a_search_on_several_gpus_does_not_import_numba(root: Path) -> None:
    code = (
        "import sys, msa.gpu.remote, msa.gpu.engine, msa.search.search, msa.database.database, "
        "msa.database.sequence_arrays; "
        "print('numba' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "False\n", run.stderr


def test_where_an_array_lies(tiny: Tiny) -> None:
    arrays = tiny.database.arrays
    for array in arrays.offsets, arrays.lengths[3:7], arrays.residues[5:]:
        mapped = Mapped.of(array)
        assert mapped is not None
        again = mapped.open()
        assert again.dtype == array.dtype and again.tolist() == array.tolist()
    assert Mapped.of(np.zeros(3)) is None
    private = np.memmap(tiny.database.path / "residues.u8", np.uint8, "c")
    assert Mapped.of(private) is None


def test_memory_errors_stay_what_they_are() -> None:
    from msa.gpu.memory import OutOfGpuMemory

    error = Failure.of(OutOfGpuMemory(99)).error(1)
    assert isinstance(error, OutOfGpuMemory) and error.asked == 99
