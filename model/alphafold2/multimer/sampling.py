"""Samples of an alignment inside AlphaFold-Multimer's network: row order, masking, cluster profiles.

The definitions are those of DeepMind's code for AlphaFold-Multimer (Evans et al., bioRxiv 2021.10.04.463034);
they differ from the monomer's in `features.alphafold2.sampling`.
"""

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.alphafold2.multimer.draws import gumbel_noise
from msa.base.residues import GAP, MASK, NUM_CODES, NUM_MASKED_CODES

# Probabilities of replacing a masked position by a uniformly drawn amino acid, by a code drawn from the
# profile, or by itself; otherwise it gets the mask code.
_UNIFORM, _PROFILE, _SAME = 0.1, 0.1, 0.1
# added to the Gumbel noise of preferred rows, and subtracted from that of empty rows
_ROW_PREFERENCE = np.float32(1e6)
# weight of one agreement in the softmax over clusters; so large that only ties divide a sequence
_AGREEMENT_SHARPNESS = 1e3


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy an array to a device, asynchronously to a GPU."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def order_rows(msa_mask: np.ndarray, preferred: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a random order of all rows, int64 [M]: preferred ones first, empty ones last.

    The mask [M, N] is 0 in padding; `preferred` [M] is 1 for rows that are always sampled, such as the query;
    `uniform` [M] are random numbers, float32 in [0, 1).
    """
    occupied = np.clip(msa_mask.sum(axis=1), 0, 1).astype(np.float32)
    logits = (occupied - 1) * _ROW_PREFERENCE + preferred.astype(np.float32) * _ROW_PREFERENCE
    noise = gumbel_noise(torch.from_numpy(uniform)).numpy()
    return np.argsort(logits + noise, kind="stable")[::-1].copy()


def profile(msa: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the frequency of each code in each column of an alignment, [N, 22] float32.

    Codes are [M, N], 0 to 21, the mask [M, N] is float32.
    """
    counts = [((msa == code) * mask).sum(dim=0) for code in range(NUM_CODES)]
    return torch.stack(counts, dim=-1) / (mask.sum(dim=0)[:, None] + 1e-10)


def replace_masked(
    msa: torch.Tensor, column_profile: torch.Tensor, masked: np.ndarray, uniform: np.ndarray
) -> torch.Tensor:
    """Replace masked positions by a random amino acid, a code of the profile, themselves, or the mask code.

    Codes [S, N] are 0 to 21, those of the result 0 to 22; `column_profile` [N, 22] is the result of
    `profile`; masked is bool [S, N]; `uniform` [masked positions, 23] are random numbers, float32 in [0, 1).
    """
    row, column = (to_device(index, msa.device) for index in np.nonzero(masked))
    probabilities = column_profile.new_zeros(len(row), NUM_MASKED_CODES)
    probabilities[:, :20] = _UNIFORM / 20
    probabilities[:, :NUM_CODES] += _PROFILE * column_profile[column]
    original = msa[row, column].long()
    probabilities.scatter_add_(1, original[:, None], torch.full_like(probabilities[:, :1], _SAME))
    probabilities[:, MASK] = 1.0 - _UNIFORM - _PROFILE - _SAME
    noise = gumbel_noise(to_device(uniform, msa.device))
    replaced = msa.clone()
    replaced[row, column] = (torch.log(probabilities + 1e-6) + noise).argmax(dim=1).to(msa.dtype)
    return replaced


def cluster_profiles(
    msa: torch.Tensor,
    mask: torch.Tensor,
    deletions: torch.Tensor,
    extra: torch.Tensor,
    extra_mask: torch.Tensor,
    extra_deletions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Average all rows that were not sampled over their nearest sampled rows.

    The nearest row agrees in the most columns; gaps and masked positions never agree. Equally near rows share
    a sequence. As in DeepMind's code, its weight is the number of columns that are not padding, while a
    sampled row itself has weight 1.

    Codes, masks and deletions of the sampled rows, with replacements, are [S, N], those of the others [U, N];
    masks and deletions are float32. Returns profiles [S, N, 23] and mean numbers of deletions [S, N],
    float32.
    """
    sampled, length = msa.shape
    one_hot = [((msa == code) * mask) for code in range(NUM_MASKED_CODES)]  # each [S, N]
    result = torch.stack(one_hot, dim=-1)  # [S, N, 23]
    deletion_sum = deletions.clone()
    count = mask.new_ones(sampled)
    for rows in row_slices(extra, 2 * (length + sampled)):
        extra_codes, codes_mask = extra[rows], extra_mask[rows]
        agreement = mask.new_zeros(sampled, len(extra_codes))
        for code in range(GAP):
            agreement.addmm_(one_hot[code], ((extra_codes == code) * codes_mask).T)
        weights = torch.softmax(_AGREEMENT_SHARPNESS * agreement, dim=0)  # [S, u]
        weights *= mask @ codes_mask.T
        count += weights.sum(dim=1)
        for code in range(NUM_CODES):
            result[..., code] += weights @ ((extra_codes == code) * codes_mask)
        deletion_sum.addmm_(weights, codes_mask * extra_deletions[rows])
    return result / count[:, None, None], deletion_sum / count[:, None]
