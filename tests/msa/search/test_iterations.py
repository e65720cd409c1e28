"""Tests of iterated searches: hits beyond those of a single search, and queries that leave early."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileQuery
from msa.search.engine import Candidates, EngineRequest, QueryProfile
from msa.search.hits import Hit
from msa.search.search import search, search_many
from msa.search.settings import SearchSettings

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[FastaRecord, TargetDatabase]:
    """Create a query, and a database with relatives of it.

    The near relatives all share the same half of the query's residues; the far relative shares a part of it.
    """
    rng = np.random.default_rng(5)
    query = rng.choice(LETTERS, 120)
    kept = rng.random(120) < 0.5

    def relative(changed: float, also_kept: bool = False) -> str:
        may_change = ~kept if also_kept else np.ones(120, bool)
        return "".join(np.where(may_change & (rng.random(120) < changed), rng.choice(LETTERS, 120), query))

    records = [(f"near{k}", relative(1.0, also_kept=True)) for k in range(12)]
    far = np.where(kept & (rng.random(120) < 0.62), query, rng.choice(LETTERS, 120))
    records += [("far", "".join(far))]
    records += [(f"noise{k}", "".join(rng.choice(LETTERS, 150))) for k in range(400)]
    folder = tmp_path_factory.mktemp("family")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    return FastaRecord("query", "".join(query)), TargetDatabase.open(folder / "db")


class CountingEngine(CpuEngine):
    """A CPU engine that records the number of profiles in each run."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        profiles = list(queries)
        self.runs.append(len(profiles))
        return super().run(profiles, request)


def evalues(hits: Sequence[Hit], name: str) -> list[float]:
    return [hit.evalue for hit in hits if hit.id == name]


def test_second_iteration_finds_far_relative(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    once = search(query, database)
    assert sum(hit.id.startswith("near") for hit in once) == 12 and not evalues(once, "far")
    twice = search(query, database, SearchSettings(num_iterations=2))
    assert evalues(twice, "far")
    assert not any(hit.id.startswith("noise") for hit in twice)


def test_hits_above_e_profile_do_not_join_the_profile(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    # without corrections, which iterated searches make in the profile
    settings = SearchSettings(evalue=1e-3, e_profile=0.0, num_iterations=4, comp_bias_corr=False)
    found, once = (
        search(query, database, settings),
        search(query, database, replace(settings, num_iterations=1)),
    )
    assert [(hit.id, hit.score, hit.cigar) for hit in found] == [
        (hit.id, hit.score, hit.cigar) for hit in once
    ]


def test_query_with_unchanged_profile_leaves_the_search(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    unrelated = FastaRecord("unrelated", "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFK")
    engine = CountingEngine()
    settings = SearchSettings(num_iterations=4)
    found = dict(search_many([unrelated, query, unrelated], database, settings, engine))
    # the query without relatives leaves after the first iteration
    assert engine.runs[0] == 3 and engine.runs[1] == 1
    assert len(found[unrelated]) == len(search(unrelated, database)) == 0
    assert [hit.id for hit in found[query]] == [hit.id for hit in search(query, database, settings)]


def test_search_uses_the_profile_of_a_profile_query(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    profiles: list[np.ndarray] = []

    def found(record: FastaRecord, iterations: int, e_profile: float) -> list[tuple[str, int]]:
        settings = SearchSettings(num_iterations=iterations, e_profile=e_profile)
        searched = search_many(
            [record],
            database,
            settings,
            on_profile=lambda _, profile, of_family: profiles.append(profile.profile),
        )
        ((_, hits),) = list(searched)
        return [(hit.id, hit.score) for hit in hits]

    twice, thrice = found(query, 2, 0.1), found(query, 3, 0.1)
    own = ProfileQuery(query.header, query.sequence, profiles[0], "a test")
    assert found(own, 1, 0.1) == twice != found(query, 1, 0.1)
    assert found(own, 2, 0.1) == thrice
    # no hit may join, so the profile does not change
    assert found(own, 3, 0.0) == twice
    np.testing.assert_array_equal(profiles[-1], profiles[0])


def test_progress_rises_and_ends_at_the_total(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    reported: list[tuple[int, int | None]] = []
    list(
        search_many(
            [query] * 3,
            database,
            SearchSettings(num_iterations=9),
            progress=lambda done, total: reported.append((done, total)),
        )
    )
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert reported[-1] == (3 * 9 * len(database.arrays.lengths),) * 2


@pytest.mark.parametrize("invalid", [{"num_iterations": 0}, {"e_profile": -1.0}, {"e_profile": float("nan")}])
def test_settings_out_of_range_are_rejected(invalid: dict[str, float], tmp_path: Path) -> None:
    (name,) = invalid
    with pytest.raises(InputError, match=name):
        SearchSettings(**invalid)  # type: ignore[arg-type]
