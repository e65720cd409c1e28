"""Tests of the builder of families: the hits that join a family and those that leave it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.database_search import search
from msa.search.families import builder
from msa.search.families.builder import RELIABLE_EVALUE, FamilyBuilder
from msa.search.families.family import ProfileFamily, family_settings, initial_profile
from msa.search.iterations import IteratedSearch
from msa.search.profile_search import ProfileSearch

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
SETTINGS = SearchSettings(matrix="BLOSUM62", gap_open=11, num_iterations=3)
"""Random sequences have none of the contexts of real ones."""
REPLACED = slice(60, 74)
"""Part of the query that all its relatives replace by the same other sequence."""


@pytest.fixture(scope="module")
def query() -> FastaRecord:
    return FastaRecord("query", "".join(np.random.default_rng(5).choice(LETTERS, 130)))


@pytest.fixture(scope="module")
def iterated_search(query: FastaRecord, tmp_path_factory: pytest.TempPathFactory) -> IteratedSearch:
    """Create a database and a search of it.

    The targets are near relatives, far relatives, an impostor that shares with the query only the part that
    its relatives replace, and unrelated sequences.
    """
    rng = np.random.default_rng(6)
    residues = np.array(list(query.sequence))

    def random(count: int) -> np.ndarray:
        return rng.choice(LETTERS, count)

    ancestor = residues.copy()
    ancestor[REPLACED] = random(14)

    def relative(kept: float) -> str:
        return "".join(np.where(rng.random(130) < kept, ancestor, random(130)))

    records = [(f"near{k}", relative(0.75)) for k in range(4)]
    records += [(f"far{k}", relative(0.22 + k / 50)) for k in range(6)]
    records += [("impostor", "".join([*random(40), *residues[61:72], *random(60)]))]
    records += [(f"other{k}", "".join(random(150))) for k in range(400)]
    folder = tmp_path_factory.mktemp("families")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{text}\n" for name, text in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    database = TargetDatabase.open(folder / "db")
    return IteratedSearch(database, SETTINGS, CpuEngine())


def member_hits(iterated_search: IteratedSearch, family: ProfileFamily | None, query: FastaRecord) -> Hits:
    """Search with a family, or with the query alone, and return the hits that may join."""
    profile = initial_profile(query, iterated_search.settings) if family is None else family
    one = iterated_search
    searched = ProfileSearch(one.database, one.settings, one.engine, family is not None, 0.1)
    (found,) = searched.run([profile], lambda pairs: None)
    return found.member_hits


def update(
    iterated_search: IteratedSearch, query: FastaRecord, family: ProfileFamily | None, hits: Sequence[Hit]
) -> ProfileFamily | None:
    """Update a family with these hits."""
    arrays = Hits.from_sequence(len(query.sequence), hits)
    return iterated_search.family_builder.update(query, family, arrays)


def names(hits: Sequence[Hit] | None, kind: str) -> set[str]:
    """Return the ids of the hits of one kind of target."""
    assert hits is not None
    return {hit.id for hit in hits if hit.id.startswith(kind)}


def test_doubtful_hits_join_if_reliable_members_confirm_them(
    query: FastaRecord, iterated_search: IteratedSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = member_hits(iterated_search, None, query)
    (impostor,) = [hit for hit in first if hit.id == "impostor"]
    assert impostor.evalue > RELIABLE_EVALUE, "the impostor should be doubtful"
    doubtful = {hit.id for hit in first if hit.evalue > RELIABLE_EVALUE} & names(first, "far")
    assert doubtful, "some far relatives should be doubtful"
    family = update(iterated_search, query, None, first)
    assert family is not None and not names(family.members, "impostor")
    assert doubtful <= names(family.members, "far") and len(names(family.members, "near")) == 4
    monkeypatch.setattr(builder, "CONFIRMATION_EVALUE", np.inf)
    lenient = update(iterated_search, query, None, first)
    assert lenient is not None and names(lenient.members, "impostor")
    monkeypatch.undo()
    # the lenient profile finds its own member, which leaves all the same
    second = member_hits(iterated_search, lenient, query)
    (own,) = [hit for hit in second if hit.id == "impostor"] or [impostor]
    updated = update(iterated_search, query, lenient, [*(h for h in second if h.id != "impostor"), own])
    assert updated is not None and not names(updated.members, "impostor")


def test_without_reliable_members_only_better_hits_join(
    query: FastaRecord, iterated_search: IteratedSearch
) -> None:
    hits = [hit for hit in member_hits(iterated_search, None, query) if hit.evalue > RELIABLE_EVALUE]
    better = {hit.id for hit in hits if hit.evalue <= builder.UNCONFIRMED_EVALUE}
    assert 0 < len(better) < len(hits)
    family = update(iterated_search, query, None, hits)
    assert family is not None and names(family.members, "") == better


def test_unchanged_family_is_reported_as_none(query: FastaRecord, iterated_search: IteratedSearch) -> None:
    assert update(iterated_search, query, None, []) is None
    near = [hit for hit in member_hits(iterated_search, None, query) if hit.id.startswith("near")]
    family = update(iterated_search, query, None, near)
    assert family is not None and update(iterated_search, query, family, near) is None
    # without members, the profile is that of the query alone again
    empty = update(iterated_search, query, family, [])
    assert empty is not None
    np.testing.assert_array_equal(
        empty.profile.profile, initial_profile(query, iterated_search.settings).profile
    )


def test_family_uses_the_matrix_and_gap_costs_of_the_settings(
    query: FastaRecord, iterated_search: IteratedSearch
) -> None:
    settings = SearchSettings(matrix="PAM70", gap_open=10, profile_gap_open=9, num_iterations=2)
    other = FamilyBuilder(iterated_search.database, settings)
    near = [hit for hit in member_hits(iterated_search, None, query) if hit.id.startswith("near")]
    arrays = Hits.from_sequence(len(query.sequence), near)
    one, another = (
        builder.update(query, None, arrays) for builder in (iterated_search.family_builder, other)
    )
    assert one is not None and another is not None
    assert not np.array_equal(one.profile.profile, another.profile.profile)
    assert family_settings(other.settings).gap_open == 9


def test_chance_hit_does_not_join_the_globins(root: Path, tmp_path: Path) -> None:
    """SUMO1 resembles a part of myoglobin by chance; in the profile, it would find itself at E = 5e-12."""
    build_database([root / "examples/demo.fasta"], tmp_path / "db", BuildSettings(threads=1))
    (query,) = read_fasta(root / "examples/myoglobin.fasta")
    database = TargetDatabase.open(tmp_path / "db")
    once, iterated = (
        search(query, database, SearchSettings(evalue=0.1, num_iterations=count)) for count in (1, 3)
    )
    assert "SUMO1_HUMAN" in {hit.id for hit in once}
    assert all(hit.evalue > 1e-3 for hit in iterated if hit.id == "SUMO1_HUMAN")
    assert len(iterated) > len(once)
