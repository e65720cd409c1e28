"""Tests of searching and folding in separate runs: hits that do not match, and hits that are made again."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldcli.inputs.shard import Shard
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.search_runs.split import MergedSearcher, ResultFormat, describe_search
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError
from msa.database.manifest import WholeDatabase
from msa.engines.search_settings import SearchSettings
from msa.hits.filtered_targets import FilteredTargets
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.search.split.hit_files import PartHitsWriter
from msa.search.split.merge import PartHits

QUERY = FastaRecord("q", "ACDEF")
SETTINGS = AlignmentSettings(SearchSettings(evalue=5), AlignmentFilter(identity_buckets=(0.2, 0.4)))
SEARCH = describe_search(SETTINGS, ResultFormat("m8", ("query", "target")), Shard())


ITERATED_SETTINGS = replace(SETTINGS, search=replace(SETTINGS.search, num_iterations=3))
ITERATED = describe_search(ITERATED_SETTINGS, ResultFormat("m8", ("query", "target")), Shard())


def write_hits(
    path: Path,
    part: int,
    search: dict[str, Any] = SEARCH,
    query: FastaRecord = QUERY,
    residues: int = 99,
    iteration: int = 1,
    is_searched: bool = True,
) -> str:
    """Write a file without hits for one part of two."""
    whole = WholeDatabase(part, 2, 9, 9, residues, {"residues.u8": "ab"})
    none = np.empty(0, np.int64)
    filtered = FilteredTargets.of_query(none, np.empty(0, np.int32))
    hits = PartHits(Hits.from_sequence(5, []), none, np.empty(0, bool), filtered)
    about = {"whole": asdict(whole), "search": search, "iteration": iteration}
    with path.open("wb") as stream, PartHitsWriter(stream, about) as writer:
        writer.add(query, hits if is_searched else None)
    return str(path)


def test_files_of_one_search_are_opened_in_any_order(tmp_path: Path) -> None:
    paths = [write_hits(tmp_path / f"hits{part}", part) for part in (2, 1)]
    merged = MergedSearcher.open(paths, threads=3)
    (files,), settings = merged.hits.iterations, merged.hits.settings
    assert [Path(file.path).name for file in files] == ["hits1", "hits2"]
    assert settings.identity() == SETTINGS.identity() and settings.search.threads == 3
    assert merged.hits.result == ResultFormat("m8", ("query", "target"))
    assert merged.checksums == {"residues.u8": "ab"}
    ((query, hits),) = merged.search_many([QUERY], settings.search)
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


def test_hits_of_all_iterations_are_needed(tmp_path: Path) -> None:
    def paths(*iterations: int) -> list[str]:
        return [str(tmp_path / f"{iteration}.{part}") for iteration in iterations for part in (1, 2)]

    for iteration in (1, 2, 3):
        for part in (1, 2):
            path = tmp_path / f"{iteration}.{part}"
            write_hits(path, part, ITERATED, iteration=iteration, is_searched=iteration < 3)
    merged = MergedSearcher.open([*reversed(paths(1, 2, 3))], threads=1)
    # the query took part in the first two iterations
    ((_, hits),) = merged.search_many([QUERY], merged.hits.settings.search)
    assert len(hits) == 0
    with pytest.raises(InputError, match="hits of iteration 2 of 3: search all parts again with --previous"):
        MergedSearcher.open(paths(1, 2), threads=1)
    with pytest.raises(InputError, match="of 2 parts, no file has the hits of 1, 2 in iteration 2"):
        MergedSearcher.open(paths(1, 3), threads=1)
    with pytest.raises(InputError, match="part 2 is given more than once"):
        MergedSearcher.open([*paths(1, 2, 3), str(tmp_path / "3.2")], threads=1)
    write_hits(tmp_path / "3.2", 2, ITERATED, iteration=3)
    with pytest.raises(InputError, match=r"not of the same queries as .*3\.1"):
        MergedSearcher.open(paths(1, 2, 3), threads=1)
    write_hits(tmp_path / "3.2", 2, ITERATED, iteration=4)
    with pytest.raises(InputError, match="iteration 4 of 3"):
        MergedSearcher.open(paths(1, 2, 3), threads=1)


def test_missing_parts_and_other_files_are_refused_by_name(tmp_path: Path) -> None:
    first = write_hits(tmp_path / "one", 1)
    with pytest.raises(InputError, match="of 2 parts, no file has the hits of 2"):
        MergedSearcher.open([first], threads=1)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(InputError, match="text: not a file of hits"):
        MergedSearcher.open([first, str(tmp_path / "text")], threads=1)
    damaged = write_hits(tmp_path / "two", 2, SEARCH | {"settings": {"search": {"evalue": -1}}})
    with pytest.raises(InputError, match="two: damaged file of hits"):
        MergedSearcher.open([damaged, first], threads=1)
