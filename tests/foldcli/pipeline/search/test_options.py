"""Tests of the searches that a command line requests: the databases and their description."""

from pathlib import Path

import pytest

from foldcli.pipeline.search.options import SearchOptions
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.defaults import library_database
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import MissingError
from msa.database.build import BuildSettings, build_database
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

SETTINGS = AlignmentSettings(SearchSettings(), AlignmentFilter())
SEQUENCE = "MQIFVKTLTGKTITLEVEPSDTIENVKAKI"


@pytest.fixture
def databases(tmp_path: Path) -> tuple[str, str]:
    for name, count in (("first", 2), ("second", 3)):
        records = "".join(f">{name}{k}\n{SEQUENCE}{'AG' * k}\n" for k in range(count))
        (tmp_path / f"{name}.fasta").write_text(records)
        build_database([tmp_path / f"{name}.fasta"], tmp_path / name, BuildSettings(threads=1))
    return str(tmp_path / "first"), str(tmp_path / "second")


def test_all_databases_are_searched_and_described(databases: tuple[str, str]) -> None:
    first, second = databases
    options = SearchOptions(first, SETTINGS, (second,))
    assert options.with_database() == options
    stage, description = options.open("cpu", None)
    assert description == f"{first}, {second} of 5 sequences"
    assert stage.settings == SETTINGS
    ((_, hits),) = stage.searcher.search_many([FastaRecord("q", SEQUENCE)], SETTINGS.search)
    assert len(hits) == 5
    # nothing is predicted on a CPU while it searches, so no process of its own
    assert options.start_process("cpu", predicts_here=False) is None


def test_the_library_is_searched_without_a_database() -> None:
    options = SearchOptions(None, SETTINGS).with_database()
    assert options.database == str(library_database())


def test_a_dry_run_converts_no_database(databases: tuple[str, str], tmp_path: Path) -> None:
    existing = SearchOptions(databases[0], SETTINGS).open_existing("cpu")
    assert existing is not None and len(existing) == 2
    assert SearchOptions(str(tmp_path / "first.fasta"), SETTINGS).open_existing("cpu") is None
    with pytest.raises(MissingError, match="no such"):
        SearchOptions(str(tmp_path / "missing"), SETTINGS).open_existing("cpu")
