"""The gapless filter: the best score of an ungapped local alignment with the query, for every target.

    M[i, j] = max(0, M[i−1, j−1] + Q[i, s_j]); the score is the largest M. Masked residues are scored as X.

`GaplessBounder` computes upper bounds of the scores, which is faster; `ListScorer` computes the exact scores
of listed targets, for several queries at once. Launch configurations measured per GPU are in tuning/*.json.
"""

from cuda.alignment.gapless.bounder import GaplessBounder
from cuda.alignment.gapless.generator import UNBOUNDED
from cuda.alignment.gapless.list_scorer import ListScorer
from cuda.alignment.gapless.lists import TargetLists
from cuda.alignment.gapless.runtime import TableUploader, UploadedArray, UploadedTable
from cuda.alignment.gapless.tables import ProfileLimits, profile_limits

__all__ = [
    "UNBOUNDED",
    "GaplessBounder",
    "ListScorer",
    "ProfileLimits",
    "TableUploader",
    "TargetLists",
    "UploadedArray",
    "UploadedTable",
    "profile_limits",
]
