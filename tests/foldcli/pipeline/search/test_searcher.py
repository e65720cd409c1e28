"""Databases as named on the command line: warnings about converted files, and files that change in use."""

import logging
import os
from pathlib import Path

import pytest

from foldcli.logs import logger
from foldcli.pipeline.search.opening import DatabaseSource, open_search_engine, open_searcher
from foldcli.pipeline.search.searcher import LocalSearcher
from msa.base.errors import InputError
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import GpuUnavailable
from msa.io.fasta import FastaRecord

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"


class _Lines(logging.Handler):
    """A handler that keeps the warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_warnings_about_a_file_are_repeated_whenever_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    fasta = tmp_path / "db.fasta"
    fasta.write_text(f">a\n{UBIQUITIN}\n>a\nMKVL\n>empty\n\n")
    expected = [
        f"{fasta}: records without a sequence, left out: 1",
        f"{fasta}: sequences with the id of an earlier one, kept: 1",
    ]
    handler = _Lines()
    logger.addHandler(handler)
    try:
        for _ in range(2):
            handler.lines.clear()
            database = DatabaseSource(str(fasta), "cpu").open()
            assert handler.lines == expected
        handler.lines.clear()
        DatabaseSource(str(database.path), "cpu").open()
        assert handler.lines == []
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("name", ["residues.u8", "lengths.i32"])
def test_file_that_is_truncated_before_a_search_is_reported(tmp_path: Path, name: str) -> None:
    """Truncate a file within a page, where missing bytes read as zeros: other residues, or lengths of 0."""
    (tmp_path / "t.fasta").write_text(f">a\n{UBIQUITIN}\n>b\n{UBIQUITIN[:40]}\n")
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(threads=1))
    searcher = LocalSearcher(TargetDatabase.open(tmp_path / "db"), CpuEngine())
    os.truncate(tmp_path / "db" / name, 4)
    with pytest.raises(InputError, match=f"{name}: damaged database: truncated, 4 bytes instead of"):
        list(searcher.search_many([FastaRecord("q", UBIQUITIN)], SearchSettings()))


def test_first_search_says_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(logger, "propagate", True)
    with caplog.at_level(logging.INFO, logger="foldcli"):
        open_search_engine("cpu")
        assert caplog.messages == ["compiling the search for this machine (once), which takes up to a minute"]
        (tmp_path / "cpu_0").mkdir()
        (tmp_path / "cpu_0/gapless._score_targets-1.py311.nbi").touch()
        open_search_engine("cpu")
    assert len(caplog.messages) == 1


def test_gpu_is_opened_before_a_database_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("db.fasta").write_text(f">a\n{UBIQUITIN}\n")
    build_database([Path("db.fasta")], Path("built"), BuildSettings(threads=1))
    for db, others in ("db.fasta", ()), ("db.fasta", ("built",)), ("built", ("db.fasta",)):
        with pytest.raises(GpuUnavailable):
            open_searcher(DatabaseSource(db, "cuda:99", others))
        assert not list(tmp_path.glob("cache/**/manifest.json"))
    open_searcher(DatabaseSource("built", "cpu", ("db.fasta",)))
    assert len(list(tmp_path.glob("cache/**/manifest.json"))) == 1
