"""States of a target: groups of similar models, each with the model in its middle."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foldcli.outputs.facts import State
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelResult
from model.comparison.scores import tm_score
from msa.io.structures import read_structure

# models of a state have at least this TM-score with each other
SAME_STATE = 0.8
# all pairs of models are compared
_MAX_MODELS = 100
# fragments of each length from which superpositions start
_STARTS = 8


def group_models(files: TargetFiles, ranked: Sequence[ModelResult]) -> list[State]:
    """Return the states of the best 100 models, in the order of their best models.

    Raises:
        InputError, OSError: a structure cannot be read.
    """
    traces = []
    for rank, result in enumerate(ranked[:_MAX_MODELS], 1):
        traces.append(_trace(files.existing_structures(rank, result.tag)[0]))
    if len(traces[0]) < 3:
        return []
    scores = np.eye(len(traces))
    for i in range(len(traces)):
        for j in range(i):
            scores[i, j] = scores[j, i] = tm_score(traces[i], traces[j], len(traces[i]), max_starts=_STARTS)
    groups: list[list[int]] = []
    for index in range(len(traces)):
        fitting = [group for group in groups if (scores[index, group] >= SAME_STATE).all()]
        if fitting:
            fitting[0].append(index)
        else:
            groups.append([index])
    medoids = [group[int(scores[np.ix_(group, group)].sum(axis=1).argmax())] for group in groups]
    return [
        State(
            models=[ranked[index].tag for index in group],
            medoid=ranked[medoid].tag,
            tm_score=round(float(scores[medoid, medoids[0]]), 3),
        )
        for group, medoid in zip(groups, medoids, strict=True)
    ]


def _trace(path: Path) -> np.ndarray:
    """Return the positions of all CA and, of nucleotides, C3', [N, 3]."""
    (model, *_) = read_structure(path).structure
    found = [
        residue.find_atom("CA", "*") or residue.find_atom("C3'", "*") for chain in model for residue in chain
    ]
    return np.array([atom.pos.tolist() for atom in found if atom is not None]).reshape(-1, 3)
