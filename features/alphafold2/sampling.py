"""Sampled features of each seed and recycling iteration: MSA rows, BERT masks, clusters and extra MSA.

Jumper et al. 2021, Supplementary Information 1.2.6 to 1.2.9. Rows are not padded to a fixed number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from features.alphafold2 import compiled_sampling
from features.alphafold2.random_draws import PhiloxDraws
from msa.base.network_inputs import GIVEN, MONOMER, UNCHANGING
from msa.base.residues import MASK, NUM_MASKED_CODES, UNKNOWN

# probabilities of replacing a masked position by a uniformly drawn residue, by one drawn from the profile, or
# by itself; otherwise it gets the mask code
_UNIFORM, _PROFILE, _SAME = 0.1, 0.1, 0.1
_MSA_CHANNELS = MONOMER["msa_feat"].channels
_TEMPLATES = tuple(name for name in UNCHANGING if name.startswith("template_"))
# the "iteration" whose numbers draw the masked columns of a seed
_COLUMNS = 2**64 - 1
# returns memory for an array, given its name, shape and dtype
Allocate: TypeAlias = Callable[[str, tuple[int, ...], np.dtype], np.ndarray]


@dataclass(frozen=True)
class SamplingSettings:
    """Sizes of the samples that one iteration draws from the alignment.

    Args:
        max_seq: maximum rows of the MSA representation, including the template slots.
        max_extra_seq: maximum rows of the extra MSA.
        template_slots: number of templates that the network takes; 0 for networks without templates.
        resample: whether each iteration draws anew, as in AlphaFold2, instead of repeating the first.
        seeds_differ: whether the seed has other effects on a prediction.

    Raises:
        ValueError: a value is out of range.
    """

    max_seq: int = 512
    max_extra_seq: int = 5120
    template_slots: int = 0
    masked_fraction: float = 0.15
    resample: bool = True
    masked_columns: float = 0.0
    seeds_differ: bool = False

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
        """Maximum number of rows without the template slots: 508 of 512 with four slots."""
        return self.max_seq - self.template_slots

    def is_random(self, rows: int) -> bool:
        """Return whether the seed changes more than the order of the rows of an alignment."""
        varies = self.masked_fraction > 0 or self.masked_columns > 0 or self.seeds_differ
        return varies or rows > self.sampled_rows


def sample_features(
    features: Mapping[str, np.ndarray],
    settings: SamplingSettings,
    num_iterations: int,
    seed: int,
    allocate: Allocate = lambda name, shape, dtype: np.empty(shape, dtype),
) -> dict[str, np.ndarray]:
    """Compute the network's inputs of several iterations, stacked along a leading axis.

    Args:
        features: result of `features.alphafold2.deterministic.make_features`.
        settings: numbers of rows and the masked fraction.
        num_iterations: number of recycling iterations including the first pass, at least 1.
        seed: 0 ≤ seed < 2⁶⁴. An iteration's features do not depend on `num_iterations`.
        allocate: returns memory for the feature of a name, with a shape and dtype.

    Returns:
        The features in `msa.base.network_inputs.MONOMER`, without those of templates if there are no template
        slots, each [num_iterations, …], and those in `msa.base.network_inputs.GIVEN` as they are.

    Raises:
        ValueError: `num_iterations` or `seed` is out of range.
    """
    if num_iterations < 1:
        raise ValueError(f"num_iterations must be at least 1, got {num_iterations}")
    features = mask_columns(features, settings.masked_columns, seed)
    rows, length = features["msa"].shape
    # most of the memory, which is slow to touch for the first time, so each iteration writes to it directly
    shape = num_iterations, min(rows, settings.sampled_rows), length, _MSA_CHANNELS
    stacked = {"msa_feat": allocate("msa_feat", shape, np.dtype(np.float32))}
    for iteration in range(num_iterations if settings.resample else 1):
        draws = PhiloxDraws(seed, iteration)
        sampled = sample_iteration(features, settings, draws, stacked["msa_feat"][iteration])
        for name, value in sampled.items():
            if name not in stacked:
                stacked[name] = allocate(name, (num_iterations, *value.shape), value.dtype)
            if name != "msa_feat":
                stacked[name][iteration] = value
    if not settings.resample:
        for value in stacked.values():
            value[1:] = value[0]
    for name in GIVEN & features.keys():
        stacked[name] = allocate(name, features[name].shape, features[name].dtype)
        stacked[name][...] = features[name]
    return stacked


def mask_columns(features: Mapping[str, np.ndarray], fraction: float, seed: int) -> Mapping[str, np.ndarray]:
    """Return features whose alignment has X instead of residues in some columns, except for the query.

    Source: AFsample2 (Kalakoti and Wallner, Commun. Biol. 8, 373, 2025).

    Args:
        features: those of a chain or of a complex.
        fraction: share of the columns, 0 to 1.
        seed: seed of the draw of the columns.
    """
    rows, length = features["msa"].shape
    if not (count := round(fraction * length)):
        return features
    columns = PhiloxDraws(seed, _COLUMNS).sample_order(length)[:count]
    masked = {"msa": features["msa"].copy()}
    masked["msa"][1:, columns] = UNKNOWN
    if "hhblits_profile" in features:
        masked["hhblits_profile"] = features["hhblits_profile"].copy()
        masked["hhblits_profile"][columns] = 0
        masked["hhblits_profile"][columns, UNKNOWN] = (rows - 1) / rows
        masked["hhblits_profile"][columns, features["msa"][0, columns]] += 1 / rows
    return {**features, **masked}


def sample_iteration(
    features: Mapping[str, np.ndarray],
    settings: SamplingSettings,
    draws: PhiloxDraws,
    msa_feat: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Compute the network's inputs of one iteration; see `sample_features`.

    If all rows are sampled, there is one extra row, all zero and masked, because attention over the extra MSA
    needs at least one row. DeepMind's padding has the same effect.

    Args:
        features: see `sample_features`.
        settings: see `sample_features`.
        draws: the random choices.
        msa_feat: memory for the feature of this name, float32 [S, R, 49], or None.
    """
    msa, deletions = features["msa"], features["deletion_matrix"]
    order = np.append(0, 1 + draws.sample_order(len(msa) - 1))
    sampled, others = order[: settings.sampled_rows], order[settings.sampled_rows :]

    true_msa = msa[sampled]
    masked_msa, bert_mask = _mask(true_msa, features["hhblits_profile"], settings.masked_fraction, draws)
    other_msa, other_deletions = msa[others], deletions[others]
    assignment = assign_to_clusters(masked_msa, other_msa)
    profile, deletion_mean = summarize_clusters(
        masked_msa, deletions[sampled], other_msa, other_deletions, assignment
    )
    extra = draws.extra_order(len(others))[: settings.max_extra_seq]

    inputs = {
        "seq_mask": np.ones(msa.shape[1], np.float32),
        "is_distillation": np.array(0, np.float32),
        "target_feat": _target_feat(features["between_segment_residues"], features["aatype"]),
        "msa_feat": _msa_feat(masked_msa, deletions[sampled], profile, deletion_mean, msa_feat),
        "msa_mask": np.ones(true_msa.shape, np.float32),
        "msa_row_mask": np.ones(len(true_msa), np.float32),
        "true_msa": true_msa.astype(np.int32),
        "bert_mask": bert_mask.astype(np.float32),
        **_extra_features(other_msa[extra], other_deletions[extra]),
    }
    inputs |= {name: features[name] for name in UNCHANGING if name not in _TEMPLATES}
    return inputs | _template_features(features, settings.template_slots)


def _mask(
    msa: np.ndarray, profile: np.ndarray, fraction: float, draws: PhiloxDraws
) -> tuple[np.ndarray, np.ndarray]:
    """Replace masked positions by a residue of the profile, a uniform one, themselves, or the mask code.

    Returns:
        The alignment with replacements, int8 [S, R], and the masked positions, bool [S, R].
    """
    masked = draws.mask_positions(*msa.shape) < fraction
    row, column = np.nonzero(masked)
    probabilities = np.zeros((len(row), NUM_MASKED_CODES))
    probabilities[:, :20] = _UNIFORM / 20
    probabilities[:, : profile.shape[1]] += _PROFILE * profile[column]
    probabilities[np.arange(len(row)), msa[row, column]] += _SAME
    probabilities[:, MASK] = 1 - _UNIFORM - _PROFILE - _SAME
    replaced = msa.copy()
    replaced[row, column] = draws.replacements(probabilities, masked)
    return replaced, masked


def assign_to_clusters(centres: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Assign each row to the cluster centre with which it agrees in the most columns; ties go to the first.

    Columns agree if both have the same residue or both have X; gaps and masked positions never agree
    (Supplementary Information 1.2.7, step 3).

    Args:
        centres: integers [S, R], 0 to 22.
        others: integers [U, R], 0 to 21.

    Returns:
        Indices of centres, int64 [U].
    """
    assignment = np.empty(len(others), np.int64)
    # transposed, so that one instruction compares a residue with many centres
    columns = np.ascontiguousarray(centres.T, np.int8)
    compiled_sampling.assign(columns, np.ascontiguousarray(others, np.int8), assignment)
    return assignment


def summarize_clusters(
    centres: np.ndarray,
    deletions: np.ndarray,
    others: np.ndarray,
    other_deletions: np.ndarray,
    assignment: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute each cluster's profile and mean deletion counts (Supplementary Information 1.2.7, step 4).

    Args:
        centres: integers [S, R], 0 to 22; each belongs to its own cluster.
        deletions: unsigned integers [S, R], deletions of the centres.
        others: integers [U, R], 0 to 21.
        other_deletions: unsigned integers [U, R], deletions of `others`.
        assignment: integers [U], result of `assign_to_clusters`.

    Returns:
        The profiles, float32 [S, R, 23], and the mean deletion counts, float32 [S, R].
    """
    clusters, length = centres.shape
    counts = np.zeros((clusters, length, NUM_MASKED_CODES), np.float32)
    counts[np.arange(clusters)[:, None], np.arange(length), centres] = 1
    sums = deletions.astype(np.int64)
    compiled_sampling.add_members(others, other_deletions, assignment, counts, sums)
    # DeepMind's code adds 1e-6 in single precision against division by zero
    sizes = np.float32(1e-6) + np.float32(1) + np.bincount(assignment, minlength=clusters).astype(np.float32)
    counts /= sizes[:, None, None]
    return counts, sums.astype(np.float32) / sizes[:, None]


def _target_feat(between_segments: np.ndarray, aatype: np.ndarray) -> np.ndarray:
    """Return domain break and one-hot residue type: float32 [R, 22]."""
    feat = np.zeros((len(aatype), MONOMER["target_feat"].channels), np.float32)
    feat[:, 0] = np.clip(between_segments, 0, 1)
    feat[np.arange(len(aatype)), 1 + aatype] = 1
    return feat


def _msa_feat(
    msa: np.ndarray,
    deletions: np.ndarray,
    profile: np.ndarray,
    deletion_mean: np.ndarray,
    feat: np.ndarray | None,
) -> np.ndarray:
    """Return the `msa_feat` of Table 1, float32 [S, R, 49], in the given memory or in new memory.

    Channels: code (23), has deletion, deletion value, cluster profile (23), mean deletion.
    """
    if feat is None:
        feat = np.empty((*msa.shape, _MSA_CHANNELS), np.float32)
    compiled_sampling.fill_msa_feat(
        feat, msa, _scale_counts(deletions), profile, _scale_deletions(deletion_mean)
    )
    return feat


def _scale_counts(deletions: np.ndarray) -> np.ndarray:
    """Scale deletion counts; see `_scale_deletions`."""
    # counts are small, so few arctangents are needed
    return _scale_deletions(np.arange(int(deletions.max(initial=0)) + 1))[deletions]


def _scale_deletions(deletions: np.ndarray) -> np.ndarray:
    """Scale deletion counts or their means to [0, 1), float32: 2/π · arctan(d/3)."""
    # in double precision, so that the rounded result does not depend on the machine's arctan
    return (np.arctan(deletions.astype(np.float64) / 3) * (2 / np.pi)).astype(np.float32)


def _extra_features(msa: np.ndarray, deletions: np.ndarray) -> dict[str, np.ndarray]:
    """Return the features of the extra MSA: one masked row if it is empty."""
    mask = np.ones(msa.shape, np.float32)
    if len(msa) == 0:
        mask, msa, deletions = (np.zeros((1, msa.shape[1]), array.dtype) for array in (mask, msa, deletions))
    return {
        "extra_msa": msa.astype(np.int32),
        "extra_msa_mask": mask,
        "extra_msa_row_mask": mask[:, 0].copy(),
        "extra_has_deletion": (deletions > 0).astype(np.float32),
        "extra_deletion_value": _scale_counts(deletions),
    }


def _template_features(features: Mapping[str, np.ndarray], slots: int) -> dict[str, np.ndarray]:
    """Return the first `slots` templates and their mask, padded with zeros; empty without slots."""
    if slots == 0:
        return {}
    filled = min(slots, len(features["template_aatype"]))
    padded = {"template_mask": np.zeros(slots, np.float32)}
    padded["template_mask"][:filled] = 1
    for name in _TEMPLATES:
        value = features[name]
        padded[name] = np.zeros((slots, *value.shape[1:]), value.dtype)
        padded[name][:filled] = value[:filled]
    return padded
