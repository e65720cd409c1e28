"""Tests of the engine for clustered databases: members are aligned if their representatives are hits."""

from pathlib import Path

import numpy as np
import pytest

from msa.alphabet import encode
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import EngineRequest, SelectionCriteria
from msa.engines.search_settings import SearchSettings
from msa.profile.pssm import QueryProfile, query_profile
from msa.search.cluster_expansion import ClusterExpandingEngine

QUERIES = ("MQIFVKTLTGKTITLEVEPSDTIENVKAKI", "MTYKLILNGKTLKGETTTEAVDAATAEKVF")
UNRELATED = "WCWCHPHPWCWCHPHPWCWCHPHPWCWC"
# representatives, each followed by the other members of its cluster; the last member has no similarity
CLUSTERS = {
    "a": [QUERIES[0], QUERIES[0][2:], "GG" + QUERIES[0][:20], UNRELATED],
    "b": [QUERIES[1][:-3], QUERIES[1]],
    # similar to the first query, but its representative is not
    "c": [UNRELATED + "H", QUERIES[0] + "G"],
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> TargetDatabase:
    folder = tmp_path_factory.mktemp("clusters")
    records = {f"{name}{k}": x for name, listed in CLUSTERS.items() for k, x in enumerate(listed)}
    (folder / "t.fasta").write_text("".join(f">{name}\n{x}\n" for name, x in records.items()))
    (folder / "t.tsv").write_text("".join(f"{name[0]}0\t{name}\n" for name in records))
    settings = BuildSettings(mask=False, clusters=Path(folder / "t.tsv"), threads=1)
    build_database([folder / "t.fasta"], folder / "db", settings)
    return TargetDatabase.open(folder / "db")


def profiles() -> list[QueryProfile]:
    return [QueryProfile(codes, query_profile(codes)) for codes in map(encode, QUERIES)]


def test_members_follow_the_representatives_that_are_hits(database: TargetDatabase) -> None:
    settings = SearchSettings(min_ungapped_score=1)

    def evalues(
        owners: np.ndarray, targets: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None
    ) -> np.ndarray:
        return np.where(scores >= 40, 0.0, np.inf)

    progress: list[int] = []
    # the limit is that of representatives
    request = EngineRequest(
        database.arrays, settings, progress.append, SelectionCriteria(evalues, 1.0, max_aligned=1)
    )
    found = list(ClusterExpandingEngine(CpuEngine(), database).run(profiles(), request))
    assert len(found) == len(QUERIES)
    names = [[database.id(int(target)) for target in each.targets[each.aligned]] for each in found]
    assert [(first[0], set(first)) for first in names] == [("a0", {"a0", "a1", "a2"}), ("b0", {"b0", "b1"})]
    everything = EngineRequest(database.arrays, settings)
    for profile, candidates in zip(profiles(), found, strict=True):
        # each member has the score of its own alignment
        (alone,) = CpuEngine().align([(profile, candidates.targets)], everything)
        kept = np.isin(np.arange(len(candidates.targets)), candidates.aligned)
        np.testing.assert_array_equal(candidates.scores[kept], alone.scores[kept])
    # as if all sequences of the database were filtered
    assert progress[-1] == len(QUERIES) * len(database)
