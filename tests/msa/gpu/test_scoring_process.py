"""Searches whose candidates another process scores find the same hits, also if that process ends."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msa.base.services.service import Service, ServiceEnded
from msa.database.build import BuildSettings, build_database
from msa.engines.scored_batch import AlignedBatch, ScoringRules
from msa.engines.search_settings import SearchSettings
from msa.gpu import engine
from msa.gpu.device.devices import GpuUnavailable
from msa.gpu.engine import GpuEngine
from msa.gpu.remote_worker import RemoteScoring
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.process_start import GpuProcess
from msa.search import profile_search
from msa.search.database_search import search_many
from msa.search.engine_selection import create_engine
from msa.search.scoring.candidate_scorer import CandidateScorer
from tests.conftest import simulate_gpus
from tests.msa.gpu.tiny_search import BATCH_QUERIES, CLUSTERS, TinySearch, as_table

FAULTS = "tests.msa.gpu.worker_with_faults"
ITERATED = SearchSettings(evalue=60.0, max_seqs=2, min_ungapped_score=8, num_iterations=2)

Start = Callable[..., GpuEngine]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts an engine with a process of a simulated GPU, and one for scores."""
    simulate_gpus(monkeypatch)
    monkeypatch.setattr(engine, "_BATCH_QUERIES", BATCH_QUERIES)
    started: list[GpuEngine] = []

    def start_engine(fault: str = "none") -> GpuEngine:
        process = GpuProcess(0, scores=True, entry=f"{FAULTS}:{fault}")
        gpu_engine = create_engine("cuda", GpuSettings(tmp_path / "kernels"), print, started=process)
        assert isinstance(gpu_engine, GpuEngine)
        started.append(gpu_engine)
        return gpu_engine

    yield start_engine
    for gpu_engine in started:
        gpu_engine.close()


@pytest.fixture
def scored_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many candidates this process scores in each batch."""
    counts: list[int] = []
    score = CandidateScorer.score

    def recorded(scorer: CandidateScorer, batch: Any) -> Any:
        counts.append(len(batch.targets))
        return score(scorer, batch)

    monkeypatch.setattr(CandidateScorer, "score", recorded)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "settings"), [(None, None), (CLUSTERS, None), (None, ITERATED)],
    ids=["plain", "clusters", "iterated"],
)  # fmt: skip
def test_hits_are_those_of_one_process(
    tmp_path: Path,
    start: Start,
    scored_here: list[int],
    clusters: str | None,
    settings: SearchSettings | None,
) -> None:
    tiny = TinySearch(tmp_path, clusters, settings)
    assert sum(scored_here)
    scored_here.clear()
    tiny.check(start())
    assert not scored_here


@pytest.mark.slow
def test_process_ends_during_a_search(tiny: TinySearch, start: Start, scored_here: list[int]) -> None:
    gpu_engine = start()
    results = search_many(tiny.queries, tiny.database, tiny.settings, engine=gpu_engine)
    first = next(results)
    assert isinstance(gpu_engine.scoring_process, RemoteScoring) and not scored_here
    gpu_engine.scoring_process.close()
    tables = as_table([first, *results])
    assert tables == tiny.expected
    tiny.check(gpu_engine)
    assert scored_here


def test_process_ends_before_it_answers(tiny: TinySearch) -> None:
    process = RemoteScoring(Service(f"{FAULTS}:exiting", 0, None))
    rules = ScoringRules(tiny.settings, False, False)
    empty = np.zeros(0, np.int64)
    batch = AlignedBatch([], {}, [], empty, empty, empty, empty, np.zeros((0, 8), np.int32))
    for _ in range(2):
        with pytest.raises(ServiceEnded):
            process.submit(batch, tiny.database, rules).result(60)
    process.close()


@pytest.mark.slow
def test_replaced_database_is_not_opened(tmp_path: Path, start: Start, scored_here: list[int]) -> None:
    tiny = TinySearch(tmp_path)
    scored_here.clear()
    (tmp_path / "other.fasta").write_text(">other\nMKVLAAGWHTRE\n")
    build_database([tmp_path / "other.fasta"], tmp_path / "other", BuildSettings(threads=1))
    for folder in tmp_path / "other", tmp_path / "missing":
        tiny.check(start(), replace(tiny.database, path=folder))
        assert scored_here
        scored_here.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [("error", ValueError, "simulated fault"), ("stuck", GpuUnavailable, "has ended")],
)
def test_errors_of_the_gpu_are_reported(
    tiny: TinySearch, start: Start, fault: str, error: type[Exception], message: str
) -> None:
    gpu_engine = start(fault)
    results = search_many(tiny.queries, tiny.database, tiny.settings, engine=gpu_engine)
    if fault == "stuck":
        worker: Any = gpu_engine.workers[0]
        worker.process.service.process.kill()
    with pytest.raises(error, match=message):
        list(results)


def test_two_batches_are_submitted_before_one_is_yielded_except_for_the_first() -> None:
    events: list[int | str] = []

    def submitted() -> Iterator[Any]:
        for k in range(5):
            events.append(k)
            yield None, k

    for _, k in profile_search._ahead(submitted(), 2):
        events.append(str(k))
    assert events == [0, "0", 1, 2, 3, "1", 4, "2", "3", "4"]


def test_processes_end_if_the_gpu_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch)
    # the simulator has a single GPU
    process = GpuProcess(1, scores=True, entry=f"{FAULTS}:none")
    with pytest.raises(GpuUnavailable, match="no GPU number 1"):
        create_engine("cuda:1", GpuSettings(tmp_path / "kernels"), print, started=process)
    assert process.service.has_ended and process.scoring is not None and process.scoring.has_ended
