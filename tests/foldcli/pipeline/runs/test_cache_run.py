"""Tests of `foldcli cache-features` in this process: its progress bar, and targets that need no database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import FeatureInput
from foldcli.pipeline.prepare.cached_features import CachedFeatures
from foldcli.pipeline.runs import cache_run
from foldcli.pipeline.runs.cache_run import FeatureCacheRun
from foldcli.pipeline.runs.job_cache_run import JobCacheRun
from foldcli.pipeline.search.opening import DatabaseSource
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.settings import FeatureSettings
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError
from msa.base.progress import Progress
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

Shown: TypeAlias = list[tuple[int, int | None]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return the steps that the progress bar shows."""
    steps: Shown = []

    @contextmanager
    def bar(description: str, unit: str) -> Iterator[Progress]:
        yield lambda done, total: steps.append((done, total))

    monkeypatch.setattr(cache_run, "progress_bar", bar)
    return steps


@dataclass
class _Task:
    name: str

    def add(self) -> CachedFeatures:
        return CachedFeatures(False, 1, 1)


class _JobRun(JobCacheRun):
    """A run on jobs that need no features, of which those of the value "bad" are invalid."""

    def check(self, job: Any) -> None:
        if job == "bad":
            raise InputError("bad")

    def _task(self, name: str, *_: Any) -> Any:
        return _Task(name)


def test_progress_counts_invalid_jobs(shown: Shown, tmp_path: Path) -> None:
    alignment = AlignmentSettings(SearchSettings(), AlignmentFilter())
    run = _JobRun(FeatureSettings(tmp_path / "cache"), alignment, None, 1, "openfold3", None, None)
    jobs: list[Any] = [("a", "good"), ("b", "bad"), ("c", "good")]
    run.run(jobs, Failures(tmp_path, Shard()))
    assert shown[-1] == (3, 3)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("workers", [1, 2])
def test_progress_ends_at_all_targets(workers: int, shown: Shown, tmp_path: Path) -> None:
    targets: list[tuple[str, FeatureInput]] = [("short", FastaRecord("short", "M"))]
    for name, content in (("a", ">a\nMKV\n"), ("same", ">a\nMKV\n"), ("bad", ">a\nMKV\n>b\nMKVL\n")):
        (tmp_path / name).write_text(content)
        targets.append((name, AlignmentTarget(name, (str(tmp_path / name),))))
    alignment = AlignmentSettings(SearchSettings(), AlignmentFilter())
    # the only query is invalid, so its database is not opened
    database = DatabaseSource(str(tmp_path / "missing"), "cpu")
    run = FeatureCacheRun(FeatureSettings(tmp_path / "cache"), alignment, database, workers)
    failures = Failures(tmp_path, Shard())
    failures.add("unreadable", ValueError())
    run.run(targets, failures)
    assert sorted(name for name, _ in failures.failed) == ["bad", "short", "unreadable"]
    assert shown == sorted(shown) and shown[-1] == (4, 4)
