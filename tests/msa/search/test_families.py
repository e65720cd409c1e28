"""Tests of families: the hits that join a family and those that leave it."""

from collections.abc import Sequence

import numpy as np
import pytest

from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search import families
from msa.search.families import RELIABLE_EVALUE, Family, FamilyBuilder
from msa.search.hits import Hit
from msa.search.iterations import IteratedSearch
from msa.search.settings import SearchSettings

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
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
    return IteratedSearch(database, SearchSettings(num_iterations=3), CpuEngine())


def member_hits(iterated_search: IteratedSearch, family: Family | None, query: FastaRecord) -> list[Hit]:
    """Search with a family, or with the query alone, and return the hits that may join."""
    profile = iterated_search.family_builder.initial_profile(query) if family is None else family.profile
    k_factors = None if family is None else [family.k_factor]
    (found,) = iterated_search.search_once(
        [profile], [len(query.sequence)], 0.1, lambda pairs: None, k_factors
    )
    return found.member_hits


def names(hits: Sequence[Hit], kind: str) -> set[str]:
    """Return the ids of the hits of one kind of target."""
    return {hit.id for hit in hits if hit.id.startswith(kind)}


def test_unconfirmed_member_leaves_and_confirmed_members_stay(
    query: FastaRecord, iterated_search: IteratedSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = member_hits(iterated_search, None, query)
    (impostor,) = [hit for hit in first if hit.id == "impostor"]
    assert impostor.evalue > RELIABLE_EVALUE, "the impostor should be doubtful"
    doubtful = {hit.id for hit in first if hit.evalue > RELIABLE_EVALUE} & names(first, "far")
    assert doubtful, "some far relatives should be doubtful"
    family = iterated_search.family_builder.update(query, None, first)
    assert family is not None and names(family.members, "impostor")
    # add the impostor to the hits, because a profile usually finds its own members
    second = [hit for hit in member_hits(iterated_search, family, query) if hit.id != "impostor"] + [impostor]
    updated = iterated_search.family_builder.update(query, family, second)
    assert updated is not None
    assert not names(updated.members, "impostor") and doubtful <= names(updated.members, "far")
    assert len(names(updated.members, "near")) == 4
    monkeypatch.setattr(families, "CONFIRMATION_EVALUE", np.inf)
    updated = iterated_search.family_builder.update(query, family, second)
    assert updated is not None and names(updated.members, "impostor")


def test_doubtful_member_without_reliable_members_stays(
    query: FastaRecord, iterated_search: IteratedSearch
) -> None:
    doubtful_only = [hit for hit in member_hits(iterated_search, None, query) if hit.id == "impostor"]
    family = iterated_search.family_builder.update(query, None, doubtful_only)
    assert family is not None
    second = [hit for hit in member_hits(iterated_search, family, query) if hit.id == "impostor"]
    updated = iterated_search.family_builder.update(query, family, second)
    assert updated is None or names(updated.members, "impostor")


def test_unchanged_family_is_reported_as_none(query: FastaRecord, iterated_search: IteratedSearch) -> None:
    assert iterated_search.family_builder.update(query, None, []) is None
    near = [hit for hit in member_hits(iterated_search, None, query) if hit.id.startswith("near")]
    family = iterated_search.family_builder.update(query, None, near)
    assert family is not None and iterated_search.family_builder.update(query, family, near) is None
    # without members, the profile is that of the query alone again
    empty = iterated_search.family_builder.update(query, family, [])
    assert empty is not None
    np.testing.assert_array_equal(
        empty.profile.profile, iterated_search.family_builder.initial_profile(query).profile
    )


def test_family_uses_the_matrix_and_gap_costs_of_the_settings(
    query: FastaRecord, iterated_search: IteratedSearch
) -> None:
    settings = SearchSettings(matrix="PAM70", gap_open=10, profile_gap_open=9, num_iterations=2)
    other = FamilyBuilder(iterated_search.database, settings)
    near = [hit for hit in member_hits(iterated_search, None, query) if hit.id.startswith("near")]
    one, another = iterated_search.family_builder.update(query, None, near), other.update(query, None, near)
    assert one is not None and another is not None
    assert not np.array_equal(one.profile.profile, another.profile.profile)
    assert other.family_settings.gap_open == 9
