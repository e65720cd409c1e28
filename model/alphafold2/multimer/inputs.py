"""Inputs of AlphaFold-Multimer's passes, sampled anew from the alignment for each pass."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F

from model.alphafold2.modules.config import MultimerConfig
from model.alphafold2.modules.embedders import Features
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.sampling import (
    cluster_profiles,
    order_rows,
    profile,
    replace_masked,
    to_device,
)
from msa.base.network_inputs import COMPLEX
from msa.base.residues import NUM_MASKED_CODES, UNKNOWN

TARGET_CODES = UNKNOWN + 1


class MultimerInputs:
    """The features of a complex on the network's device, from which each pass draws its own inputs.

    Padding rows are left out. DeepMind's network embeds every empty template slot; here equal slots are
    embedded once, with the sum of their weights in the mean over slots. Results are the same.

    Args:
        features: DeepMind's features of the merged chains, without a leading axis: aatype, residue_index
            (restarting at 0 in each chain), asym_id, entity_id and sym_id [N]; msa [M, N], codes 0 to 21;
            deletion_matrix [M, N]; optionally msa_mask [M, N], seq_mask [N] and cluster_bias_mask [M], by
            default 1 for the first row; template_aatype [T, N], template_all_atom_positions [T, N, 37, 3] in
            Å and template_all_atom_mask [T, N, 37] with at least one slot; optionally cycle_length [N] as
            `recycling.feature_tensors` takes it. Other features are ignored.
        config: sizes of the samples.
        draws: returns the random numbers of a pass, given its 0-based index.
        device: the device that the network runs on.
    """

    def __init__(
        self,
        features: Mapping[str, np.ndarray],
        config: MultimerConfig,
        draws: Callable[[int], PhiloxMsaDraws],
        device: torch.device,
    ) -> None:
        self._config, self._draws, self._device = config, draws, device
        mask = features.get("msa_mask", np.ones(features["msa"].shape)).astype(np.float32)
        first_row = np.arange(len(mask)) == 0
        # keep all rows up to the last that is not padding: leaving out others would change the random order
        rows = slice(1 + np.flatnonzero(mask.any(axis=1)).max(initial=0))
        self._mask = mask[rows]
        self._has_no_padding: np.ndarray = np.all(self._mask, axis=1)  # [M]
        self._preferred = features.get("cluster_bias_mask", first_row)[rows].astype(np.float32)
        self._msa = to_device(features["msa"][rows].astype(np.int8), self._device)
        self._deletions = to_device(features["deletion_matrix"][rows].astype(np.float32), self._device)
        self._row_mask = to_device(self._mask, self._device)
        self._profile = profile(self._msa, self._row_mask)
        self._constant = self._constant_features(features)

    def __call__(self, iteration: int) -> Features:
        """Draw the inputs of a pass, as `model.alphafold2.network.AlphaFold.forward` takes them."""
        config, draws = self._config, self._draws(iteration)
        order = order_rows(self._mask, self._preferred, draws.rows(len(self._mask)))
        sampled, others = order[: config.msa_rows], order[config.msa_rows :]
        masked = draws.positions(len(sampled), self._mask.shape[1]) < config.masked_fraction
        if not self._has_no_padding[sampled].all():
            masked &= self._mask[sampled] > 0
        msa, mask, deletions = self._rows(sampled)
        msa = replace_masked(msa, self._profile, masked, draws.codes(masked)) * (mask > 0)
        extra, extra_mask, extra_deletions = self._rows(others)
        profiles, mean_deletions = cluster_profiles(msa, mask, deletions, extra, extra_mask, extra_deletions)
        inputs = {
            **self._constant,
            "msa_feat": _msa_features(msa, deletions, profiles, mean_deletions),
            "msa_mask": mask,
            **_extra_features(*(x[: config.extra_rows] for x in (extra, extra_mask, extra_deletions))),
        }
        # masks of all ones are left out
        if self._has_no_padding[sampled].all():
            del inputs["msa_mask"]
        if len(others) and self._has_no_padding[others[: config.extra_rows]].all():
            del inputs["extra_msa_mask"]
        return inputs

    def _rows(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rows of the alignment with their mask and deletions."""
        index = to_device(indices, self._device)
        return self._msa[index], self._row_mask[index], self._deletions[index]

    def _constant_features(self, features: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """Return the inputs that all passes share."""
        slots, weights = distinct_slots(features)
        constant = {}
        for name, array in COMPLEX.items():
            if array.kind in ("index", "number"):
                dtype = np.int64 if array.kind == "index" else np.float32
                values = features[name][slots] if name.startswith("template_") else features[name]
                constant[name] = to_device(values.astype(dtype), self._device)
        constant["template_all_atom_masks"] = constant.pop("template_all_atom_mask")
        constant["target_feat"] = F.one_hot(constant["aatype"], TARGET_CODES).float()
        if "cycle_length" in features:
            constant["cycle_length"] = to_device(features["cycle_length"], self._device)
        if not (seq_mask := features.get("seq_mask", np.ones(1))).all():
            constant["seq_mask"] = to_device(seq_mask.astype(np.float32), self._device)
        has_atoms = features["template_all_atom_mask"][slots].any(axis=(1, 2))
        # on the CPU, where they decide which templates are computed
        constant["template_mask"] = torch.from_numpy(has_atoms.astype(np.float32))
        constant["template_weights"] = torch.from_numpy(weights)
        constant["template_chains"] = constant["asym_id"].expand(len(slots), -1)
        return constant


def distinct_slots(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the template slots to embed, and their weights in the mean over all slots.

    Slots without atoms are embedded like others, but equal ones only once.

    Returns:
        Indices of the slots, empty ones last, int64 [T'], and their weights with sum 1, float32 [T'].
    """
    has_atoms = np.asarray(features["template_all_atom_mask"].any(axis=(1, 2)))
    with_atoms, empty = np.flatnonzero(has_atoms), np.flatnonzero(~has_atoms)
    _, first, copies = np.unique(
        features["template_aatype"][empty], axis=0, return_index=True, return_counts=True
    )
    slots = np.concatenate([with_atoms, empty[first]])
    weights = np.concatenate([np.ones(len(with_atoms)), copies]) / len(has_atoms)
    return slots, weights.astype(np.float32)


def _msa_features(
    msa: torch.Tensor, deletions: torch.Tensor, profiles: torch.Tensor, mean_deletions: torch.Tensor
) -> torch.Tensor:
    """Return the channels of each position of the sampled rows, [S, N, 49].

    They are the code (23), whether there is a deletion, its scaled length, the cluster's profile (23), and
    the scaled mean length of its deletions.
    """
    codes = F.one_hot(msa.long(), NUM_MASKED_CODES).float()
    lengths = [_scale(x)[..., None] for x in (deletions, mean_deletions)]
    return torch.cat([codes, deletions.clip(0, 1)[..., None], lengths[0], profiles, lengths[1]], dim=-1)


def _extra_features(
    msa: torch.Tensor, mask: torch.Tensor, deletions: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the features of the extra MSA; an empty one gets a masked row, because attention needs a row."""
    if not len(msa):
        msa, mask, deletions = (x.new_zeros(1, x.shape[1]) for x in (msa, mask, deletions))
    return {
        "extra_msa": msa.long(),
        "extra_msa_mask": mask,
        "extra_has_deletion": deletions.clip(0, 1),
        "extra_deletion_value": _scale(deletions),
    }


def _scale(deletions: torch.Tensor) -> torch.Tensor:
    """Scale numbers of deletions, or their means, to [0, 1)."""
    return torch.atan(deletions / 3.0) * (2.0 / torch.pi)
