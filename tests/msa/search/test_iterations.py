"""Iterated searches: what they find that one search does not, and when they end."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileQuery
from msa.search.candidates import Candidates
from msa.search.engine import EngineRequest, QueryProfile
from msa.search.search import SearchSettings, search, search_many

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))


def text(residues: np.ndarray) -> str:
    return "".join(residues)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[FastaRecord, TargetDatabase]:
    """A query with relatives, most of which keep one half of it, and far ones that keep a part of that."""
    rng = np.random.default_rng(5)
    query = rng.choice(LETTERS, 120)
    kept = rng.random(120) < 0.5

    def relative(changed: float, also_kept: bool = False) -> str:
        may_change = ~kept if also_kept else np.ones(120, bool)
        return text(np.where(may_change & (rng.random(120) < changed), rng.choice(LETTERS, 120), query))

    records = [(f"near{k}", relative(1.0, also_kept=True)) for k in range(12)]
    far = np.where(kept & (rng.random(120) < 0.62), query, rng.choice(LETTERS, 120))
    records += [("far", text(far))]
    records += [(f"noise{k}", text(rng.choice(LETTERS, 150))) for k in range(400)]
    folder = tmp_path_factory.mktemp("family")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    return FastaRecord("query", text(query)), TargetDatabase.open(folder / "db")


class Counting(CpuEngine):
    """The engine, which notes how many profiles each of its runs takes."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        given = list(queries)
        self.runs.append(len(given))
        return super().run(given, request)


def evalues(hits: list, name: str) -> list[float]:  # type: ignore[type-arg]
    return [hit.evalue for hit in hits if hit.id == name]


def test_a_profile_finds_what_the_query_alone_does_not(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    once = search(query, database)
    assert sum(hit.id.startswith("near") for hit in once) == 12 and not evalues(once, "far")
    twice = search(query, database, SearchSettings(num_iterations=2))
    assert evalues(twice, "far")
    assert not any(hit.id.startswith("noise") for hit in twice)


def test_a_target_above_the_limit_stays_out_of_the_profile(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    settings = SearchSettings(evalue=1e-3, e_profile=0.0, num_iterations=4)
    found, once = search(query, database, settings), search(query, database)
    assert [(hit.id, hit.score, hit.cigar) for hit in found] == [
        (hit.id, hit.score, hit.cigar) for hit in once
    ]


def test_a_query_whose_profile_has_settled_is_not_searched_again(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    alone = FastaRecord("alone", "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFK")
    engine = Counting()
    settings = SearchSettings(num_iterations=4)
    found = dict(search_many([alone, query, alone], database, settings, engine))
    # the one without relatives ends at once
    assert engine.runs[0] == 3 and engine.runs[1] == 1
    assert found[alone] == search(alone, database)
    assert [hit.id for hit in found[query]] == [hit.id for hit in search(query, database, settings)]


def test_a_query_with_a_profile_keeps_it_until_there_is_a_better(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    used: list[np.ndarray] = []

    def found(of: FastaRecord, iterations: int, e_profile: float) -> list[tuple[str, int]]:
        settings = SearchSettings(num_iterations=iterations, e_profile=e_profile)
        searched = search_many(
            [of], database, settings, used=lambda _, profile, of_family: used.append(profile.profile)
        )
        ((_, hits),) = list(searched)
        return [(hit.id, hit.score) for hit in hits]

    twice, thrice = found(query, 2, 0.1), found(query, 3, 0.1)
    own = ProfileQuery(query.header, query.sequence, used[0], "a test")
    assert found(own, 1, 0.1) == twice != found(query, 1, 0.1)
    assert found(own, 2, 0.1) == thrice
    # no hit is good enough to make another
    assert found(own, 3, 0.0) == twice
    np.testing.assert_array_equal(used[-1], used[0])


def test_progress_ends_at_what_was_announced(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    told: list[tuple[int, int | None]] = []
    list(
        search_many(
            [query] * 3,
            database,
            SearchSettings(num_iterations=9),
            progress=lambda done, total: told.append((done, total)),
        )
    )
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (3 * 9 * len(database.lengths),) * 2


@pytest.mark.parametrize("wrong", [{"num_iterations": 0}, {"e_profile": -1.0}, {"e_profile": float("nan")}])
def test_settings_out_of_range_are_refused(wrong: dict[str, float], tmp_path: Path) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        SearchSettings(**wrong)  # type: ignore[arg-type]
