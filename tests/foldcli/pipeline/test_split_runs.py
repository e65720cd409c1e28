"""Files of hits that do not belong together, and files that are made again."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldcli.inputs.shard import Shard
from foldcli.pipeline.settings import AlignmentSettings
from foldcli.pipeline.split_runs import MergedSearcher, ResultFormat, describe_search
from msa.database.manifest import WholeDatabase
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.io.part_hits import PartHitsWriter
from msa.search.engine import FilteredTargets
from msa.search.hits import Hits
from msa.search.settings import AlignmentFilter, SearchSettings
from msa.search.split_search import PartHits

QUERY = FastaRecord("q", "ACDEF")
SETTINGS = AlignmentSettings(SearchSettings(evalue=5), AlignmentFilter(identity_buckets=(0.2, 0.4)))
SEARCH = describe_search(SETTINGS, ResultFormat("m8", ("query", "target")), Shard())


def write_hits(
    path: Path, part: int, search: dict[str, Any] = SEARCH, query: FastaRecord = QUERY, residues: int = 99
) -> str:
    """Write a file without hits for one part of two."""
    whole = WholeDatabase(part, 2, 9, 9, residues, {"residues.u8": "ab"})
    none = np.empty(0, np.int64)
    hits = PartHits(Hits.from_sequence(5, []), none, FilteredTargets(none, np.empty(0, np.int32)))
    with (
        path.open("wb") as stream,
        PartHitsWriter(stream, {"whole": asdict(whole), "search": search}) as writer,
    ):
        writer.add(query, hits)
    return str(path)


def test_files_of_one_search_are_opened_in_any_order(tmp_path: Path) -> None:
    paths = [write_hits(tmp_path / f"hits{part}", part) for part in (2, 1)]
    merged = MergedSearcher.open(paths, threads=3)
    assert [Path(file.path).name for file in merged.files] == ["hits1", "hits2"]
    assert merged.settings.identity() == SETTINGS.identity() and merged.settings.search.threads == 3
    assert merged.result == ResultFormat("m8", ("query", "target"))
    assert merged.checksums == {"residues.u8": "ab"}
    ((query, hits),) = merged.search_many([QUERY], merged.settings.search)
    assert query == QUERY and len(hits) == 0 and not hits.capped


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"residues": 100}, "the database differs"),
        ({"search": SEARCH | {"columns": ["query"]}}, r"the search \(columns\) differs"),
        ({"search": SEARCH | {"foldcli": "0.0.1"}}, r"the search \(foldcli\) differs"),
        ({"query": FastaRecord("q", "ACDEG")}, "a query differs"),
        ({"part": 1}, "part 1 is given more than once"),
    ],
)
def test_files_of_different_searches_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    first = write_hits(tmp_path / "one", 1)
    second = write_hits(tmp_path / "two", **({"part": 2} | change))
    with pytest.raises(InputError, match=reason):
        MergedSearcher.open([first, second], threads=1)


def test_missing_parts_and_other_files_are_named(tmp_path: Path) -> None:
    first = write_hits(tmp_path / "one", 1)
    with pytest.raises(InputError, match="of 2 parts, no file has the hits of 2"):
        MergedSearcher.open([first], threads=1)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(InputError, match="text: not a file of hits"):
        MergedSearcher.open([first, str(tmp_path / "text")], threads=1)
    damaged = write_hits(tmp_path / "two", 2, SEARCH | {"settings": {"search": {"evalue": -1}}})
    with pytest.raises(InputError, match="two: damaged file of hits"):
        MergedSearcher.open([damaged, first], threads=1)
