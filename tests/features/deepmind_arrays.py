"""Raw arrays of DeepMind's template search, as template features."""

from collections.abc import Mapping

import numpy as np

from features.templates.template_features import with_pseudo_beta

# The network's residue code for each HHblits code. HHblits orders residues alphabetically by letter (A, C, D,
# …, Y), then X and gap.
HHBLITS_TO_AATYPE = np.array(
    [0, 4, 3, 6, 13, 7, 8, 9, 11, 10, 12, 2, 14, 5, 1, 15, 16, 19, 17, 18, 20, 21], np.int32
)


def process_templates(raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert the arrays of DeepMind's template search into cached template features.

    Args:
        raw: `template_aatype` one-hot [T, R, 22] in HHblits' order, `template_all_atom_positions`
            [T, R, 37, 3] in Å, `template_all_atom_masks` [T, R, 37], `template_sum_probs` [T, 1].

    Returns:
        The features that `no_templates` returns, for T templates. Pseudo-beta is CB, or CA for glycine.
    """
    aatype = HHBLITS_TO_AATYPE[np.argmax(raw["template_aatype"], axis=-1)]
    positions = np.asarray(raw["template_all_atom_positions"], np.float32)
    masks = np.asarray(raw["template_all_atom_masks"], np.float32)
    return with_pseudo_beta(aatype, positions, masks, np.asarray(raw["template_sum_probs"], np.float32))
