"""Tests of pairing by species: against a slow reference, and laws that hold for all alignments."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.alphafold2.deterministic import make_features
from features.complexes.pairing import PairingCandidates, PairStrategy, pair_rows, pairing_candidates
from msa.alignments.files import parse_alignment

SPECIES = [b"BOVIN", b"HUMAN", b"MOUSE", b"9606"]


@st.composite
def entities(draw: st.DrawFn) -> list[PairingCandidates]:
    """Draw the candidates of two to four entities, each row with one species or several."""
    result = []
    for _ in range(draw(st.integers(2, 4))):
        rows = draw(
            st.lists(st.tuples(st.integers(1, 6), st.sampled_from(SPECIES)), max_size=12, unique=True)
        )
        similarity = draw(st.lists(st.integers(0, 3), min_size=7, max_size=7))
        row, species = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [])
        result.append(
            PairingCandidates(
                np.array(row, np.int64),
                np.array(species, np.bytes_),
                np.array(similarity, np.int64)[np.array(row, np.int64)],
                draw(st.integers(1, 3)),
            )
        )
    return result


def slow_pairs(drawn: list[PairingCandidates], strategy: PairStrategy) -> list[tuple[int, ...]]:
    """Return the pairs by definition, chain by chain instead of entity by entity."""
    chains = [number for number, entity in enumerate(drawn) for _ in range(entity.copies)]
    ranked: dict[bytes, list[list[int]]] = {}
    for species in SPECIES:
        ranked[species] = []
        for entity in drawn:
            own = [k for k in range(len(entity.rows)) if entity.species[k] == species]
            own.sort(key=lambda k, entity=entity: -entity.identities[k])
            ranked[species].append([int(entity.rows[k]) for k in own])
    result = []
    for species in sorted(SPECIES):
        present = [number for number in chains if ranked[species][number]]
        if len(present) < (2 if strategy == "greedy" else len(chains)):
            continue
        for rank in range(min(len(ranked[species][number]) for number in present)):
            pair = tuple(rows[rank] if rows else -1 for rows in ranked[species])
            result.append((len(present), abs(int(np.prod([pair[number] for number in chains]))), pair))
    result.sort(key=lambda item: (-item[0], item[1]))
    return list(dict.fromkeys([(0,) * len(drawn), *(pair for _, _, pair in result)]))


@given(entities(), st.sampled_from(["greedy", "complete"]))
@settings(deadline=None, max_examples=50)
def test_pairs_equal_the_definition(drawn: list[PairingCandidates], strategy: PairStrategy) -> None:
    assert list(map(tuple, pair_rows(drawn, strategy)[0].tolist())) == slow_pairs(drawn, strategy)


@given(entities())
@settings(deadline=None, max_examples=50)
def test_pairs_never_mix_species_and_start_with_the_queries(drawn: list[PairingCandidates]) -> None:
    pairs, _ = pair_rows(drawn)
    assert pairs[0].tolist() == [0] * len(drawn)
    for pair in pairs[1:].tolist():
        of_rows = [
            set(entity.species[entity.rows == row])
            for entity, row in zip(drawn, pair, strict=True)
            if row >= 0
        ]
        assert set.intersection(*of_rows), pair
    complete = {tuple(pair) for pair in pair_rows(drawn, "complete")[0].tolist()}
    assert complete <= {tuple(pair) for pair in pairs.tolist()}
    assert all(min(pair) >= 0 for pair in complete)
    chains = [
        sum(e.copies for e, row in zip(drawn, pair, strict=True) if row >= 0) for pair in pairs.tolist()
    ]
    assert chains == sorted(chains, reverse=True)
    assert max(Counter(map(tuple, pairs.tolist())).values()) == 1


@pytest.mark.parametrize(("rows", "pairs"), [(600, 3), (601, 1)])
def test_species_with_more_than_600_rows_are_not_paired(rows: int, pairs: int) -> None:
    of_one = PairingCandidates(np.arange(1, rows + 1), np.full(rows, b"ECOLI"), np.zeros(rows, int))
    other = PairingCandidates(np.array([1, 2]), np.array([b"ECOLI", b"ECOLI"]), np.array([5, 6]))
    found, _ = pair_rows([of_one, other])
    # of equally similar rows the first ones, with the most similar row of the other chain first
    assert found.tolist() == [[0, 0], [1, 2], [2, 1]][:pairs]


def test_rows_are_paired_by_similarity_to_their_query() -> None:
    first = make_features(
        [parse_alignment(b">q\nMKVL\n>a OX=1\nMAAA\n>b OX=1\nMKVA\n>c OX=2\nMKVL\n>d\nMKAL\n")]
    )
    second = make_features([parse_alignment(b">q\nWWW\n>e OX=1\nWWA\n>f OX=1\nWAA\n>g OX=3\nWAW\n")])
    candidates = [pairing_candidates(first), pairing_candidates(second)]
    # b with e, then a with f; the row that equals its query has no partner
    assert sorted(pair_rows(candidates)[0].tolist()) == [[0, 0], [1, 2], [2, 1]]


def test_products_of_many_rows_are_exact() -> None:
    """Products beyond 64 bits still order the rows."""
    rows = np.array([40_000, 50_000])
    entity = PairingCandidates(rows, np.array([b"a", b"b"]), np.array([1, 1]), copies=1)
    found, _ = pair_rows([entity] * 8)
    assert found.tolist() == [[0] * 8, [40_000] * 8, [50_000] * 8]
