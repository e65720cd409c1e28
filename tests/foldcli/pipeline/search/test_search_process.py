"""Searches in a process of its own: equal hits, messages, errors, and what happens when the process ends."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foldcli.logs import logger
from foldcli.pipeline.search import search_handler, search_process
from foldcli.pipeline.search.hit_texts import HitTexts, TextMaker
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.search_handler import SearchHandler
from foldcli.pipeline.search.search_process import (
    _MANY_QUERY_BYTES,
    ProcessSearcher,
    SearchProcess,
    SearchProcessEnded,
    are_many,
    needs_process,
    open_gpu,
)
from foldcli.pipeline.search.searcher import JoinedSearcher, LocalSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError, MissingError
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from tests.command_process import command_environment
from tests.networks import tiny_parameters

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERIES = [FastaRecord("whole", UBIQUITIN), FastaRecord("half", UBIQUITIN[:40])]
SETTINGS = AlignmentSettings(SearchSettings(threads=1), AlignmentFilter())
SEARCH, MAKE = SETTINGS.search, TextMaker(SETTINGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search_process")
    (folder / "t.fasta").write_text(f">a\n{UBIQUITIN}\n>b\n{UBIQUITIN[:60]}\n>c\n{UBIQUITIN[10:]}\n")
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return folder / "db"


def here(folder: Path) -> LocalSearcher | JoinedSearcher:
    return open_searcher(DatabaseSource(str(folder), "cpu"))


def opened(process: SearchProcess, folder: Path) -> ProcessSearcher:
    searcher = process.open(TargetDatabase.open(folder), partial(here, folder))
    assert isinstance(searcher, ProcessSearcher)
    return searcher


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """Collect the log messages of this process."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[assignment]
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def assert_equal(found: list[tuple[FastaRecord, HitTexts]], folder: Path, queries: list[FastaRecord]) -> None:
    expected = list(here(folder).search_many(queries, SETTINGS.search))
    assert [query for query, _ in found] == [query for query, _ in expected]
    for (query, texts), (_, hits) in zip(found, expected, strict=True):
        assert texts == MAKE(query, hits) and texts.count == len(hits) > 0


def test_hits_are_those_of_a_search_in_this_process(folder: Path) -> None:
    searcher = opened(SearchProcess(str(folder), "cpu", 0.5), folder)
    assert searcher.checksums == here(folder).checksums
    steps: list[tuple[int, int | None]] = []
    found = list(searcher.map_hits(QUERIES, SEARCH, MAKE, lambda n, total: steps.append((n, total))))
    assert_equal(found, folder, QUERIES)
    assert steps and all(total == 6 for _, total in steps)
    assert_equal(list(searcher.map_hits(QUERIES[1:], SEARCH, MAKE)), folder, QUERIES[1:])


@pytest.mark.gpu
def test_gpu_of_this_process_is_searched_by_another(folder: Path) -> None:
    from msa.gpu.device.cuda_context import allows_several_processes

    assert allows_several_processes(0) and not allows_several_processes(99)
    searcher = opened(SearchProcess(str(folder), "auto", 0.5), folder)
    assert_equal(list(searcher.map_hits(QUERIES, SEARCH, MAKE)), folder, QUERIES)


def test_several_databases_or_the_first_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.fasta").write_text(f">d\n{UBIQUITIN[5:]}\n>e\n{UBIQUITIN[:70]}\n")
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(threads=1))
    source = DatabaseSource(str(folder), "cpu", (str(tmp_path / "db"),))
    database = source.open()
    process = SearchProcess(str(folder), "cpu", 0.5, source.others)
    both = process.open(database, partial(open_searcher, source, database))
    assert isinstance(both, ProcessSearcher) and both.checksums == open_searcher(source).checksums
    for searcher, expected in ((both, open_searcher(source)), (both.alone(), here(folder))):
        reference = dict(expected.search_many(QUERIES, SETTINGS.search))
        for query, found in searcher.map_hits(QUERIES, SEARCH, MAKE):
            assert found == MAKE(query, reference[query])
    process.close()
    ((_, texts),) = both.alone().map_hits(QUERIES[:1], SEARCH, MAKE)
    assert texts.count == 3


def test_search_that_is_given_up_does_not_disturb_the_next_one(folder: Path) -> None:
    searcher = opened(SearchProcess(str(folder), "cpu", 0.5), folder)
    results = searcher.map_hits(QUERIES, SEARCH, MAKE)
    next(results)
    del results
    assert_equal(list(searcher.map_hits(QUERIES[1:], SEARCH, MAKE)), folder, QUERIES[1:])


def test_error_of_a_query_is_raised_and_the_next_search_works(folder: Path) -> None:
    searcher = opened(SearchProcess(str(folder), "cpu", 0.5), folder)
    with pytest.raises(InputError, match="has 1 residue"):
        list(searcher.map_hits([FastaRecord("short", "A")], SEARCH, MAKE))
    assert_equal(list(searcher.map_hits(QUERIES, SEARCH, MAKE)), folder, QUERIES)


def test_this_process_searches_if_the_other_one_hangs(
    folder: Path, logged: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SearchProcess(str(folder), "cpu", 0.5)
    searcher = opened(process, folder)
    monkeypatch.setattr("foldcli.pipeline.search.search_process._LONG_SILENCE", 0.1)
    monkeypatch.setattr("foldcli.pipeline.search.search_process._MAX_SILENCE", 0.2)
    os.kill(process.service.process.pid, signal.SIGSTOP)
    assert_equal(list(searcher.map_hits(QUERIES, SEARCH, MAKE)), folder, QUERIES)
    assert [record.getMessage() for record in logged] == [
        "the process of the searches does not answer; the main process searches instead"
    ]
    searcher.close()


def test_this_process_searches_if_the_other_one_has_ended(
    folder: Path, logged: list[logging.LogRecord]
) -> None:
    process = SearchProcess(str(folder), "cpu", 0.5)
    searcher = opened(process, folder)
    queries = QUERIES * 100  # more than are finished until the signal
    results = searcher.map_hits(queries, SEARCH, MAKE)
    first = next(results)
    os.kill(process.service.process.pid, signal.SIGKILL)
    process.service.wait()
    found = [first, *results]
    assert_equal(found, folder, queries)
    assert [record.getMessage() for record in logged] == [
        "the process of the searches has ended with exit code -9; the main process searches instead"
    ]
    assert_equal(list(searcher.map_hits(QUERIES, SEARCH, MAKE)), folder, QUERIES)


def test_this_process_searches_if_the_other_one_has_lost_its_gpu(
    folder: Path, logged: list[logging.LogRecord]
) -> None:
    class LostGpu(SearchProcess):
        """A process whose GPU is lost after the first query."""

        def search(self, *arguments: Any, **options: Any) -> Iterator[HitTexts]:
            yield next(super().search(*arguments, **options))
            raise MissingError("the process of the GPU has ended", "Start again.")

    process = LostGpu(str(folder), "cpu", 0.5)
    searcher = opened(process, folder)
    assert_equal(list(searcher.map_hits(QUERIES, SEARCH, MAKE)), folder, QUERIES)
    assert [record.getMessage() for record in logged] == [
        "the process of the GPU has ended; the main process searches instead"
    ]
    assert process.service.process.poll() is not None


def test_this_process_searches_if_the_other_one_cannot_open_the_device(folder: Path) -> None:
    process = SearchProcess(str(folder), "cuda:99", 0.5)
    assert isinstance(process.open(TargetDatabase.open(folder), partial(here, folder)), LocalSearcher)


def test_this_process_searches_if_the_database_was_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.fasta").write_text(f">other\n{UBIQUITIN[5:]}\n")
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(threads=1))
    process = SearchProcess(str(tmp_path / "db"), "cpu", 0.5)
    assert isinstance(process.open(TargetDatabase.open(folder), partial(here, folder)), LocalSearcher)
    assert process.service.process.poll() is not None


def test_signals_of_schedulers_do_not_end_the_process_before_its_owner(folder: Path) -> None:
    process = SearchProcess(str(folder), "cpu", 0.5)
    searcher = opened(process, folder)
    for number in signal.SIGTERM, signal.SIGINT:
        os.kill(process.service.process.pid, number)
    assert_equal(list(searcher.map_hits(QUERIES, SEARCH, MAKE)), folder, QUERIES)
    assert process.service.process.poll() is None


def test_process_ends_with_its_owner_and_in_the_middle_of_a_search(folder: Path) -> None:
    process = SearchProcess(str(folder), "cpu", 0.5)
    searcher = opened(process, folder)
    next(searcher.map_hits(QUERIES * 2000, SEARCH, MAKE))
    process.service.close()
    assert process.service.process.returncode == 0
    another = SearchProcess(str(folder), "cpu", 0.5)
    started = another.service.process
    del another
    assert started.wait(timeout=120) == 0


def test_process_ends_when_the_stage_is_closed(folder: Path) -> None:
    process = SearchProcess(str(folder), "cpu", 0.5)
    stage = SearchStage(opened(process, folder), SETTINGS)
    stage.close()
    assert process.service.process.poll() is not None
    SearchStage(here(folder), SETTINGS).close()


def test_search_after_the_end_says_how_the_process_has_ended(folder: Path) -> None:
    process = SearchProcess(str(folder), "cpu", 0.5)
    opened(process, folder)
    process.close()
    with pytest.raises(SearchProcessEnded, match="exit code"):
        list(process.search(QUERIES, SEARCH, MAKE))


def test_progress_is_reported_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[int, int | None]] = []
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    handler, now = SearchHandler(lambda *values: reports.append(values), "db", "cpu", 0.5), 10.0
    monkeypatch.setattr(search_handler.time, "monotonic", lambda: now)
    for done, moment in ((1, 10.0), (2, 10.1), (3, 10.3)):
        now = moment
        handler.report(done, 9)
    assert reports == [(1, 9), (3, 9)]


# runs foldcli with a search process, although there is no GPU
_WITH_PROCESS = """
import sys
import foldcli.pipeline.search.search_process as searching
from foldcli.__main__ import main

if __name__ == "__main__":
    searching.needs_process = lambda *arguments: True
    # the first batch is searched ahead, and the second one on request
    searched = searching.SearchProcess.search
    def search(self, queries, *arguments):
        with open(sys.argv[2] + ".sent", "a") as stream:
            print(len(queries), file=stream)
        return searched(self, queries, *arguments)
    searching.SearchProcess.search = search
    # after the last search
    closed = searching.ProcessSearcher.close
    def close(self):
        with open(sys.argv[2] + ".sent", "a") as stream:
            print("closed", file=stream)
        closed(self)
    searching.ProcessSearcher.close = close
    main()
"""


@pytest.mark.slow
def test_run_with_a_search_process_gives_the_same_files(folder: Path, tmp_path: Path) -> None:
    script, fasta = tmp_path / "fold.py", tmp_path / "q.fasta"
    script.write_text(_WITH_PROCESS)
    fasta.write_text("".join(f">t{k}\n{UBIQUITIN[k : k + 14 + k]}\n" for k in range(10)))
    environment = command_environment(tmp_path / "cache", FOLDCLI_PARAMS=tiny_parameters())
    files = []
    for name, program in ("with", [str(script)]), ("without", ["-m", "foldcli"]):
        out = tmp_path / name
        options = ["--models", "3", "--num-recycle", "0", "--max-msa", "8:4", "--no-report"]
        command = [sys.executable, *program, "fold", str(fasta), "--db", str(folder), "-o", str(out), "-q"]
        run = subprocess.run(
            [*command, "--cache", str(tmp_path / f"features {name}"), "--device", "cpu", *options],
            env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        paths = [path for path in out.glob("t*/*") if not path.name.endswith(".done.json")]
        files.append({str(path.relative_to(out)): path.read_bytes() for path in paths})
    assert files[0] == files[1] and len(files[0]) >= 40
    assert fasta.with_name("q.fasta.sent").read_text().split() == ["8", "2", "closed"]


def test_only_runs_that_predict_on_the_only_gpu_have_a_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_process, "has_nvidia_hardware", lambda: True)
    assert needs_process("auto", True, str(folder)) and needs_process("cuda:1", True, str(folder))
    assert not needs_process("cpu", True, str(folder)) and not needs_process("cuda:0,1", True, str(folder))
    assert not needs_process("auto", False, str(folder)), "the network is elsewhere"
    assert not needs_process("auto", True, str(folder.parent / "t.fasta")), "it has to be converted first"
    assert needs_process("auto", True, str(folder), str(folder))
    assert not needs_process("auto", True, str(folder), str(folder.parent / "t.fasta"))
    monkeypatch.setattr(search_process, "has_nvidia_hardware", lambda: False)
    assert not needs_process("auto", True, str(folder))


@pytest.fixture
def opened_gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record instead of opening a GPU, which this machine need not have."""
    calls: list[str] = []

    def start(gpu: int, scores: bool) -> None:
        calls.append(f"{'processes' if scores else 'process'} of GPU {gpu}")

    monkeypatch.setattr(search_process, "GpuProcess", start)
    monkeypatch.setattr(search_process, "open_in_background", lambda device: calls.append(device))
    monkeypatch.setattr(search_process, "has_nvidia_hardware", lambda: True)
    return calls


def test_process_is_started_for_many_queries(
    tmp_path: Path, opened_gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "few.fasta").write_bytes(bytes(_MANY_QUERY_BYTES - 1))
    (tmp_path / "one.fasta").write_bytes(b"A")
    (tmp_path / "folder").mkdir()
    few, one = (str(tmp_path / name) for name in ("few.fasta", "one.fasta"))
    for queries in ([few], [one, one], ["-", str(tmp_path / "folder"), str(tmp_path / "missing"), few]):
        open_gpu("cuda", are_many(queries))
        assert opened_gpus.pop() == "cuda" and not opened_gpus
    for device in ("auto", "cuda:0"):
        open_gpu(device, are_many([few, one]))
        assert opened_gpus.pop() == "processes of GPU 0" and not opened_gpus
    for device in ("cpu", "cuda:0,1"):
        open_gpu(device, are_many([few, one]))
        assert opened_gpus.pop() == device
    monkeypatch.setattr(search_process, "has_nvidia_hardware", lambda: False)
    open_gpu("auto", are_many([few, one]))
    assert opened_gpus.pop() == "auto"
