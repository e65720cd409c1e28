"""The features drawn anew per seed and recycling iteration: sampled rows, BERT masks, clusters, extra MSA.

Jumper et al. 2021, Supplementary Information 1.2.6 to 1.2.9. Rows are never padded to a fixed number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from features.clusters import NUM_CODES, nearest_rows, summarize_clusters
from features.draws import Draws, PhiloxDraws
from features.residues import MASK
from features.schema import PASSED, PASSED_TEMPLATES

# probabilities of what a masked position becomes; the rest is the mask code
_UNIFORM, _PROFILE, _SAME = 0.1, 0.1, 0.1


@dataclass(frozen=True)
class SamplingSettings:
    """How much of the alignment one iteration sees.

    Attributes:
        max_seq: rows of the MSA representation, the template slots among them.
        max_extra_seq: rows of the extra MSA.
        template_slots: templates the network takes; 0 for a network without a template stack.
        masked_fraction: share of positions of the sampled rows that are masked or replaced.
    """

    max_seq: int = 512
    max_extra_seq: int = 5120
    template_slots: int = 0
    masked_fraction: float = 0.15

    def __post_init__(self) -> None:
        if self.max_seq <= self.template_slots:
            raise ValueError(
                f"max_seq must exceed the {self.template_slots} template slots, got {self.max_seq}"
            )
        if self.max_extra_seq < 1:
            raise ValueError(f"max_extra_seq must be at least 1, got {self.max_extra_seq}")
        if not 0 <= self.masked_fraction <= 1:
            raise ValueError(f"masked_fraction must be between 0 and 1, got {self.masked_fraction}")

    @property
    def sampled_rows(self) -> int:
        """Rows left for the MSA once the template rows have theirs: 508 of 512 with four slots."""
        return self.max_seq - self.template_slots


def sample_features(
    features: Mapping[str, np.ndarray], settings: SamplingSettings, num_iterations: int, seed: int
) -> dict[str, np.ndarray]:
    """The network's inputs for `num_iterations` iterations, stacked on a leading axis.

    Args:
        features: what `features.deterministic.make_features` returns.
        settings: numbers of rows and the masked fraction.
        num_iterations: at least 1; recycling iterations, the first included.
        seed: 0 ≤ seed < 2⁶⁴. Iteration k of a seed does not depend on how many are asked for.

    Returns:
        `features.schema.DRAWN`, `PASSED` and, with template slots, the template features, each
        [num_iterations, …].
    """
    if num_iterations < 1:
        raise ValueError(f"num_iterations must be at least 1, got {num_iterations}")
    stacked: dict[str, np.ndarray] = {}
    for iteration in range(num_iterations):
        one = sample_iteration(features, settings, PhiloxDraws(seed, iteration))
        for name, value in one.items():
            if iteration == 0:
                stacked[name] = np.empty((num_iterations, *value.shape), value.dtype)
            stacked[name][iteration] = value
    return stacked


def sample_iteration(
    features: Mapping[str, np.ndarray], settings: SamplingSettings, draws: Draws
) -> dict[str, np.ndarray]:
    """The network's inputs for one iteration; see `sample_features`.

    An alignment that fits into the sampled rows leaves one extra row, all zero and masked: the network's
    attention over extra rows then has something to be blind to, as in DeepMind's padding.
    """
    msa, deletions = features["msa"], features["deletion_matrix"]
    order = np.append(0, 1 + draws.sample_order(len(msa) - 1))
    sampled, others = order[: settings.sampled_rows], order[settings.sampled_rows :]

    true_msa = msa[sampled]
    masked_msa, bert_mask = _mask(true_msa, features["hhblits_profile"], settings.masked_fraction, draws)
    other_msa, other_deletions = msa[others], deletions[others]
    assignment = nearest_rows(masked_msa, other_msa)
    profile, deletion_mean = summarize_clusters(
        masked_msa, deletions[sampled], other_msa, other_deletions, assignment
    )
    extra = draws.extra_order(len(others))[: settings.max_extra_seq]

    drawn = {
        "seq_mask": np.ones(msa.shape[1], np.float32),
        "is_distillation": np.array(0, np.float32),
        "target_feat": _target_feat(features["between_segment_residues"], features["aatype"]),
        "msa_feat": _msa_feat(masked_msa, deletions[sampled], profile, deletion_mean),
        "msa_mask": np.ones(true_msa.shape, np.float32),
        "msa_row_mask": np.ones(len(true_msa), np.float32),
        "true_msa": true_msa.astype(np.int32),
        "bert_mask": bert_mask.astype(np.float32),
        **_extra_features(other_msa[extra], other_deletions[extra]),
    }
    passed = {name: features[name] for name in PASSED}
    return drawn | passed | _template_features(features, settings.template_slots)


def _mask(
    msa: np.ndarray, profile: np.ndarray, fraction: float, draws: Draws
) -> tuple[np.ndarray, np.ndarray]:
    """Replace masked positions by a residue of the profile, a uniform one, themselves, or the mask code.

    Returns:
        The msa with replacements, int8 [S, R], and the masked positions, bool [S, R].
    """
    masked = draws.mask_positions(*msa.shape) < fraction
    row, column = np.nonzero(masked)
    chances = np.zeros((len(row), NUM_CODES))
    chances[:, :20] = _UNIFORM / 20
    chances[:, : profile.shape[1]] += _PROFILE * profile[column]
    chances[np.arange(len(row)), msa[row, column]] += _SAME
    chances[:, MASK] = 1 - _UNIFORM - _PROFILE - _SAME
    replaced = msa.copy()
    replaced[row, column] = draws.replacements(chances, masked)
    return replaced, masked


def _target_feat(between_segments: np.ndarray, aatype: np.ndarray) -> np.ndarray:
    """Domain break and one-hot residue type, float32 [R, 22]."""
    feat = np.zeros((len(aatype), 22), np.float32)
    feat[:, 0] = np.clip(between_segments, 0, 1)
    feat[np.arange(len(aatype)), 1 + aatype] = 1
    return feat


def _msa_feat(
    msa: np.ndarray, deletions: np.ndarray, profile: np.ndarray, deletion_mean: np.ndarray
) -> np.ndarray:
    """Residue (23), has deletion, deletion value, cluster profile (23), mean deletion: float32 [S, R, 49]."""
    rows, length = msa.shape
    feat = np.zeros((rows, length, 2 * NUM_CODES + 3), np.float32)
    feat[np.arange(rows)[:, None], np.arange(length), msa] = 1
    feat[..., NUM_CODES] = deletions > 0
    feat[..., NUM_CODES + 1] = _squash(deletions)
    feat[..., NUM_CODES + 2 : -1] = profile
    feat[..., -1] = _squash(deletion_mean)
    return feat


def _squash(deletions: np.ndarray) -> np.ndarray:
    """Deletion counts, or their means, to [0, 1): 2/π · arctan(d/3), float32."""
    # in double precision, so that the rounded result does not depend on the machine's arctan
    return (np.arctan(deletions.astype(np.float64) / 3) * (2 / np.pi)).astype(np.float32)


def _extra_features(msa: np.ndarray, deletions: np.ndarray) -> dict[str, np.ndarray]:
    """The extra MSA; at least one row, masked when there is none."""
    mask = np.ones(msa.shape, np.float32)
    if len(msa) == 0:
        mask, msa, deletions = (np.zeros((1, msa.shape[1]), array.dtype) for array in (mask, msa, deletions))
    return {
        "extra_msa": msa.astype(np.int32),
        "extra_msa_mask": mask,
        "extra_msa_row_mask": mask[:, 0].copy(),
        "extra_has_deletion": (deletions > 0).astype(np.float32),
        "extra_deletion_value": _squash(deletions),
    }


def _template_features(features: Mapping[str, np.ndarray], slots: int) -> dict[str, np.ndarray]:
    """The first `slots` templates, zeros and a zero mask where there are fewer; nothing without slots."""
    if slots == 0:
        return {}
    filled = min(slots, len(features["template_aatype"]))
    padded = {"template_mask": np.zeros(slots, np.float32)}
    padded["template_mask"][:filled] = 1
    for name in PASSED_TEMPLATES:
        value = features[name]
        padded[name] = np.zeros((slots, *value.shape[1:]), value.dtype)
        padded[name][:filled] = value[:filled]
    return padded
