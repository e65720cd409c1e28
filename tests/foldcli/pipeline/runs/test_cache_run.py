"""Tests of `foldcli cache-features` in this process: its progress bar, and targets that need no database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import FeatureInput
from foldcli.pipeline.runs import cache_run
from foldcli.pipeline.runs.cache_run import FeatureCacheRun
from foldcli.pipeline.search.opening import DatabaseSource
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.settings import FeatureSettings
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.progress import Progress
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("workers", [1, 2])
def test_progress_ends_at_all_targets(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int | None]] = []

    @contextmanager
    def bar(description: str, unit: str) -> Iterator[Progress]:
        yield lambda done, total: shown.append((done, total))

    monkeypatch.setattr(cache_run, "progress_bar", bar)
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
