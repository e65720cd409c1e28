"""The selection of candidates of several queries at once never excludes one that passes."""

import math

import numpy as np
import pytest

from msa.profile.gumbel import gumbel_parameters
from msa.profile.statistics import evalues, longest_targets
from msa.search.engine import Selection
from msa.search.windows import _Origin, _with_origins

PARAMETERS = gumbel_parameters(11, 1)
RESIDUES = 10**9
QUERY_LENGTHS = [30, 200, 1500]
RNG = np.random.default_rng(6)
LENGTHS = RNG.integers(1, 4000, 500).astype(np.int32)


def selection(max_evalue: float) -> Selection:
    def of_query(
        query: int, targets: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
    ) -> np.ndarray:
        return evalues(scores, QUERY_LENGTHS[query], LENGTHS[targets], RESIDUES, PARAMETERS, max_evalue)

    return Selection(
        of_query,
        max_evalue,
        longest_targets=lambda query: longest_targets(QUERY_LENGTHS[query], RESIDUES, PARAMETERS, max_evalue),
    )


@pytest.mark.parametrize("max_evalue", [1e-10, 1e-3, 10.0, math.inf])
@pytest.mark.parametrize("windows", [False, True])
def test_possible_candidates_include_all_that_pass(max_evalue: float, windows: bool) -> None:
    each, selected = 2000, selection(max_evalue)
    queries = [0, 1, 2]
    if windows:
        # the engine's queries are windows of other queries
        with_origins = _with_origins(selected, [_Origin(2, 1), _Origin(0, 0), _Origin(1, 0)])
        assert with_origins is not None
        selected, queries = with_origins, [1, 2, 0]
    owners = np.repeat(np.arange(3, dtype=np.int32), each)
    targets = RNG.integers(0, len(LENGTHS), 3 * each)
    scores = RNG.integers(0, 300, 3 * each).astype(np.int32)
    possible = selected.possible(queries, owners, LENGTHS[targets], scores)
    passing = [
        k * each + selected.passing(query, targets[owners == k], scores[owners == k])[0]
        for k, query in enumerate(queries)
    ]
    assert set(np.concatenate(passing).tolist()) <= set(possible.tolist())
    if max_evalue < 1:
        # most others are excluded
        assert len(possible) < len(np.concatenate(passing)) + 0.2 * 3 * each


def test_without_limits_all_that_score_are_possible() -> None:
    scores = np.array([3, 0, 1], np.int32)
    every = Selection(lambda *arguments: np.zeros(3), 1.0)
    assert every.possible([0], np.zeros(3, np.int32), LENGTHS[:3], scores).tolist() == [0, 2]
