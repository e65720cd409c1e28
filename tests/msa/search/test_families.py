"""What joins a family, and what has to leave it again."""

from collections.abc import Sequence

import numpy as np
import pytest

from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.io.fasta import FastaRecord
from msa.search import families
from msa.search.families import SURE, Families, Family
from msa.search.hits import Hit
from msa.search.iterations import Searched
from msa.search.search import SearchSettings

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
OWN = slice(60, 74)
"""Residues of the query in place of which its relatives have others, all the same."""


@pytest.fixture(scope="module")
def query() -> FastaRecord:
    return FastaRecord("query", "".join(np.random.default_rng(5).choice(LETTERS, 130)))


@pytest.fixture(scope="module")
def searched(query: FastaRecord, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Relatives; far ones; an impostor with some residues of the query that no relative has; and others."""
    rng = np.random.default_rng(6)
    residues = np.array(list(query.sequence))

    def random(count: int) -> np.ndarray:
        return rng.choice(LETTERS, count)

    theirs = residues.copy()
    theirs[OWN] = random(14)

    def relative(kept: float) -> str:
        return "".join(np.where(rng.random(130) < kept, theirs, random(130)))

    records = [(f"near{k}", relative(0.75)) for k in range(4)]
    records += [(f"far{k}", relative(0.22 + k / 50)) for k in range(6)]
    records += [("impostor", "".join([*random(40), *residues[61:72], *random(60)]))]
    records += [(f"other{k}", "".join(random(150))) for k in range(400)]
    folder = tmp_path_factory.mktemp("families")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{text}\n" for name, text in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    database = TargetDatabase.open(folder / "db")
    targets = SequenceArrays(database.residues, database.offsets, database.lengths)
    return Searched(database, targets, SearchSettings(num_iterations=3), CpuEngine())


def found_with(searched: Searched, family: Family | None, query: FastaRecord) -> list[Hit]:
    """What may join after a search with a family, or the query alone."""
    profile = searched.families.alone(query) if family is None else family.profile
    excess = None if family is None else [family.excess]
    (found,) = searched.hits([profile], [len(query.sequence)], 0.1, lambda pairs: None, excess)
    return found.members


def names(hits: Sequence[Hit], kind: str) -> set[str]:
    return {hit.id for hit in hits if hit.id.startswith(kind)}


def test_an_impostor_has_to_leave_and_far_relatives_may_stay(
    query: FastaRecord, searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found_with(searched, None, query)
    (impostor,) = [hit for hit in first if hit.id == "impostor"]
    assert impostor.evalue > SURE, "it is no doubtful one"
    doubtful = {hit.id for hit in first if hit.evalue > SURE} & names(first, "far")
    assert doubtful, "no far relative is doubtful"
    family = searched.families.grown(query, None, first)
    assert family is not None and names(family.members, "impostor")
    # it is found again, as by every profile in which it has weight enough
    second = [hit for hit in found_with(searched, family, query) if hit.id != "impostor"] + [impostor]
    grown = searched.families.grown(query, family, second)
    assert grown is not None
    assert not names(grown.members, "impostor") and doubtful <= names(grown.members, "far")
    assert len(names(grown.members, "near")) == 4
    monkeypatch.setattr(families, "CONFIRMED", np.inf)
    grown = searched.families.grown(query, family, second)
    assert grown is not None and names(grown.members, "impostor")


def test_a_doubtful_member_without_others_stays(query: FastaRecord, searched: Searched) -> None:
    lonely = [hit for hit in found_with(searched, None, query) if hit.id == "impostor"]
    family = searched.families.grown(query, None, lonely)
    assert family is not None
    second = [hit for hit in found_with(searched, family, query) if hit.id == "impostor"]
    grown = searched.families.grown(query, family, second)
    assert grown is None or names(grown.members, "impostor")


def test_a_family_that_stays_the_same_is_not_grown(query: FastaRecord, searched: Searched) -> None:
    assert searched.families.grown(query, None, []) is None
    near = [hit for hit in found_with(searched, None, query) if hit.id.startswith("near")]
    family = searched.families.grown(query, None, near)
    assert family is not None and searched.families.grown(query, family, near) is None
    # all have left: the query alone is something else
    left = searched.families.grown(query, family, [])
    assert left is not None
    np.testing.assert_array_equal(left.profile.profile, searched.families.alone(query).profile)


def test_families_are_of_the_matrix_asked_for(query: FastaRecord, searched: Searched) -> None:
    settings = SearchSettings(matrix="PAM70", gap_open=10, profile_gap_open=9, num_iterations=2)
    other = Families(searched.database, searched.targets, settings)
    near = [hit for hit in found_with(searched, None, query) if hit.id.startswith("near")]
    one, another = searched.families.grown(query, None, near), other.grown(query, None, near)
    assert one is not None and another is not None
    assert not np.array_equal(one.profile.profile, another.profile.profile)
    assert other.how[0].gap_open == 9
