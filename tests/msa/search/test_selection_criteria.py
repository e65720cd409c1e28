"""The selection of candidates of several queries at once never excludes one that passes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from msa.engines.engine import SelectionCriteria
from msa.profile.gumbel import gumbel_parameters
from msa.profile.statistics import evalues, max_target_lengths
from msa.search.windows import _Origin, _with_origins

PARAMETERS = gumbel_parameters(11, 1)
RESIDUES = 10**9
QUERY_LENGTHS = [30, 200, 1500]
RNG = np.random.default_rng(6)
LENGTHS = RNG.integers(1, 4000, 500).astype(np.int32)


def selection(max_evalue: float) -> SelectionCriteria:
    def of_candidates(
        queries: np.ndarray,
        targets: np.ndarray,
        scores: np.ndarray,
        reversed_scores: np.ndarray | None = None,
    ) -> np.ndarray:
        lengths = np.array(QUERY_LENGTHS)[queries]
        return evalues(scores, lengths, LENGTHS[targets], RESIDUES, PARAMETERS)

    return SelectionCriteria(
        of_candidates,
        max_evalue,
        max_target_lengths=lambda query: max_target_lengths(
            QUERY_LENGTHS[query], RESIDUES, PARAMETERS, max_evalue
        ),
    )


@pytest.mark.parametrize("max_evalue", [1e-10, 1e-3, 10.0, math.inf])
@pytest.mark.parametrize("windows", [False, True])
def test_possible_candidates_include_all_that_pass(max_evalue: float, windows: bool) -> None:
    each, selected = 2000, selection(max_evalue)
    queries = [0, 1, 2]
    if windows:
        # the engine's queries are windows of other queries
        with_origins = _with_origins(selected, [_Origin(2, 1, 0), _Origin(0, 0, 0), _Origin(1, 0, 0)])
        assert with_origins is not None
        selected, queries = with_origins, [1, 2, 0]
    owners = np.repeat(np.arange(3, dtype=np.int32), each)
    targets = RNG.integers(0, len(LENGTHS), 3 * each)
    scores = RNG.integers(0, 300, 3 * each).astype(np.int32)
    possible = selected.possible(queries, owners, LENGTHS[targets], scores)
    passing, capped = selected.passing(queries, [each] * 3, targets, scores)
    assert not any(capped) and set(passing.tolist()) <= set(possible.tolist())
    if max_evalue < 1:
        # most others are excluded
        assert len(possible) < len(passing) + 0.2 * 3 * each


def test_without_limits_all_that_score_are_possible() -> None:
    scores = np.array([3, 0, 1], np.int32)
    every = SelectionCriteria(lambda *arguments: np.zeros(3), 1.0)
    assert every.possible([0], np.zeros(3, np.int32), LENGTHS[:3], scores).tolist() == [0, 2]


@pytest.mark.parametrize("windows", [False, True])
def test_queries_are_selected_as_each_alone(windows: bool) -> None:
    limited, queries = replace(selection(10.0), max_aligned=20), [0, 1, 2]
    if windows:
        origins = [_Origin(0, 0, 0), _Origin(1, 1, 0), _Origin(1, 1, 0), _Origin(2, 0, 0)]
        with_origins = _with_origins(limited, origins)
        assert with_origins is not None
        limited, queries = with_origins, [0, 1, 2, 3]
    counts = [300, 400, 0, 500][: len(queries)]
    targets = np.concatenate([RNG.permutation(len(LENGTHS))[:count] for count in counts])
    scores = RNG.integers(0, 300, len(targets)).astype(np.int32)
    passing, capped = limited.passing(queries, counts, targets, scores)
    expected, ends = [], np.cumsum(counts).tolist()
    for k, (query, count, end) in enumerate(zip(queries, counts, ends, strict=True)):
        own = slice(end - count, end)
        indices, (is_capped,) = limited.passing([query], [count], targets[own], scores[own])
        expected += (indices + end - count).tolist()
        assert capped[k] == is_capped == (len(indices) == 20)
    assert passing.tolist() == expected
    # the number of candidates of a query with windows is not limited
    assert capped == ([True, False, False, True] if windows else [True, True, False])
