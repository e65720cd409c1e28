"""Fixtures: a database of two sequences, and targets that a run has finished."""

from pathlib import Path

import pytest

from foldcli.pipeline.search.searcher import LocalSearcher
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from tests.foldcli.pipeline.runs.runs import UBIQUITIN, Runs, copy_of


@pytest.fixture(scope="session")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    folder = tmp_path_factory.mktemp("database")
    (folder / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>half\n{UBIQUITIN[:25]}\n")
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return LocalSearcher(TargetDatabase.open(folder / "db"), CpuEngine())


@pytest.fixture(scope="session")
def finished_one(tmp_path_factory: pytest.TempPathFactory, searcher: LocalSearcher) -> Runs:
    """Finish a target with one model; tests must not change its files."""
    runs = Runs(tmp_path_factory.mktemp("one"), searcher)
    runs.run()
    return runs


@pytest.fixture(scope="session")
def finished_two(tmp_path_factory: pytest.TempPathFactory, searcher: LocalSearcher) -> Runs:
    """Finish a target with two models; tests must not change its files."""
    runs = Runs(tmp_path_factory.mktemp("two"), searcher)
    runs.run(models=(3, 4))
    return runs


@pytest.fixture
def runs(tmp_path: Path, finished_one: Runs) -> Runs:
    """Copy the finished target with one model."""
    return copy_of(finished_one, tmp_path / "runs")


@pytest.fixture
def runs_of_two(tmp_path: Path, finished_two: Runs) -> Runs:
    """Copy the finished target with two models."""
    return copy_of(finished_two, tmp_path / "runs")
