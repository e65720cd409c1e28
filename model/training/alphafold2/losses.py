"""The losses of supplement section 1.9 (Jumper et al., Nature 596, 583, 2021), with a batch axis.

Each function returns one value per sample, [B] float32, so that samples can be weighted. Formulas and
constants are those of DeepMind's published code. All inputs are float32; lengths are in Å. `targets` is the
experimental structure. No gradient passes from the confidence losses to the predicted structure.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from model import residue_constants
from model.alphafold2.modules.heads import PAE_BINS, PLDDT_BINS, aligned_error_edges, distogram_edges
from model.alphafold2.modules.structure_module import atom14_to_atom37_positions
from model.layers.rigid import Rigid
from model.residue_tables import residue_rows
from model.training.alphafold2.features import Targets
from model.training.alphafold2.network import NetworkOutput
from model.training.alphafold2.structure import FoldedStructure
from model.training.alphafold2.violations import between_residue_clashes, structural_violations
from model.training.runtime.execution import Execution
from model.training.runtime.settings import LossWeights

CLAMP_DISTANCE = 10.0
LENGTH_SCALE = 10.0
# pairs of CA atoms up to the first distance count; errors above the second count linearly; Å
MAX_DISTANCE, LINEAR_FROM = 22.0, 2.0
CHI_WEIGHT, ANGLE_NORM_WEIGHT = 0.5, 0.01
LDDT_RADIUS = 15.0


def total_loss(
    output: NetworkOutput, targets: Targets, weights: LossWeights, execution: Execution
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the weighted sum of all losses [B], and the terms [B] by name, not weighted.

    As in DeepMind's code, the sum of a sample is multiplied by the square root of its residues, so that
    longer crops count more. The terms that take most of the time run with the options of `execution`.
    """
    terms = loss_terms(output, targets, weights, execution)
    total = sum(getattr(weights, name) * value for name, value in terms.items())
    assert isinstance(total, torch.Tensor)
    return total * targets.seq_mask.sum(dim=1).sqrt(), terms


def loss_terms(
    output: NetworkOutput, targets: Targets, weights: LossWeights, execution: Execution
) -> dict[str, torch.Tensor]:
    """Return the terms whose weight is not 0, each [B], by name."""
    structure, logits = output.structure, output.logits
    terms = {
        "backbone": backbone_fape(structure.backbone, targets),
        "torsion": torsion_loss(structure, targets),
        "distogram": distogram_loss(logits["distogram"], targets.beta, targets.beta_mask),
        "masked_msa": masked_msa_loss(logits["masked_msa"], targets.true_msa, targets.bert_mask),
        "predicted_lddt": predicted_lddt_loss(logits["predicted_lddt"], structure.atom14, targets),
    }
    if weights.distance:
        terms["distance"] = distance_loss(structure.backbone, targets)
    if weights.side_chain:
        terms["side_chain"] = side_chain_fape(structure, targets, execution)
    if weights.predicted_aligned_error:
        terms["predicted_aligned_error"] = aligned_error_loss(
            logits["predicted_aligned_error"], structure.backbone[-1], targets
        )
    if weights.experimentally_resolved:
        terms["experimentally_resolved"] = experimentally_resolved_loss(
            logits["experimentally_resolved"], targets
        )
    if weights.violation:
        terms["violation"] = structural_violations(
            structure.atom14,
            targets.aatype,
            targets.seq_mask,
            targets.bonded,
            execution.compile_if_enabled(between_residue_clashes),
        )
    return {name: value for name, value in terms.items() if getattr(weights, name)}


def frame_aligned_point_error(
    frames: Rigid,
    true_frames: Rigid,
    frames_mask: torch.Tensor,
    points: torch.Tensor,
    true_points: torch.Tensor,
    points_mask: torch.Tensor,
    clamp: float | None = None,
) -> torch.Tensor:
    """Return the frame aligned point error [...] (Algorithm 28) in units of LENGTH_SCALE.

    Predicted and true frames and their mask are [..., F], predicted and true points [..., P, 3] and their
    mask [..., P]. `clamp` is the largest error, or None for no limit.
    """
    local = _local_points(frames, points)  # [..., F, P, 3]
    true_local = _local_points(true_frames, true_points)
    error = torch.sqrt((local - true_local).square().sum(dim=-1) + 1e-4)  # [..., F, P]
    if clamp is not None:
        error = error.clip(max=clamp)
    pair_mask = frames_mask[..., :, None] * points_mask[..., None, :]
    total = (error * pair_mask).sum(dim=(-1, -2)) / LENGTH_SCALE
    return total / (1e-4 + frames_mask.sum(dim=-1) * points_mask.sum(dim=-1))


def _local_points(frames: Rigid, points: torch.Tensor) -> torch.Tensor:
    """Return R⁻¹ (x - t) of all frames [..., F] and points [..., P, 3], [..., F, P, 3]."""
    offset = points[..., None, :, :] - frames.translation[..., :, None, :]
    x, y, z = offset.unbind(dim=-1)  # each [..., F, P]
    r = frames.rotation[..., None, :, :]  # [..., F, 1, 3, 3]
    # products by hand: no [F, P, 3, 3] in memory, and no reduced precision as in a matrix product
    local = [r[..., 0, k] * x + r[..., 1, k] * y + r[..., 2, k] * z for k in range(3)]
    return torch.stack(local, dim=-1)


def backbone_fape(backbone: Rigid, targets: Targets) -> torch.Tensor:
    """Return the FAPE of CA atoms in the frames [I, B, N] of all iterations, the mean over iterations, [B].

    `targets.clamped` marks samples whose errors are clamped at 10 Å.
    """
    true, mask = targets.backbone, targets.backbone_mask
    arguments = (
        backbone,
        true.unsqueeze(0),
        mask[None],
        backbone.translation,
        true.translation[None],
        mask[None],
    )
    clamped = frame_aligned_point_error(*arguments, clamp=CLAMP_DISTANCE).mean(dim=0)
    unclamped = frame_aligned_point_error(*arguments).mean(dim=0)
    return clamped * targets.clamped + unclamped * (1.0 - targets.clamped)


def distance_loss(backbone: Rigid, targets: Targets) -> torch.Tensor:
    """Return the smooth L1 error of CA distances in units of LENGTH_SCALE, the mean over iterations, [B].

    The loss does not depend on the orientation of the frames [I, B, N], so it gives early structures, whose
    frames are still random, a gradient that the FAPE does not. It cannot tell mirror images apart.
    """
    distances, true = (_distances(x) for x in (backbone.translation, targets.backbone.translation))
    mask = targets.backbone_mask
    scored = mask[:, :, None] * mask[:, None] * (true < MAX_DISTANCE)  # [B, N, N]
    error = F.smooth_l1_loss(distances, true.expand_as(distances), reduction="none", beta=LINEAR_FROM)
    total = (error * scored).sum(dim=(-1, -2)).mean(dim=0) / LENGTH_SCALE
    return total / (1e-4 + scored.sum(dim=(-1, -2)))


def _distances(points: torch.Tensor) -> torch.Tensor:
    """Return all distances [..., N, N] of points [..., N, 3], with finite gradients at 0."""
    return torch.sqrt((points[..., :, None, :] - points[..., None, :, :]).square().sum(dim=-1) + 1e-3)


def use_alternative_names(
    predicted: torch.Tensor,
    true: torch.Tensor,
    alternative: torch.Tensor,
    mask: torch.Tensor,
    ambiguous: torch.Tensor,
) -> torch.Tensor:
    """Return 1 for residues that fit better with symmetric atoms' names exchanged, [B, N] (Algorithm 26).

    Positions are [B, N, 14, 3]: predicted, true, and true with exchanged names. `mask` [B, N, 14] marks atoms
    with known positions, `ambiguous` those that have a symmetric partner.
    """
    distances = _atom_distances(predicted)
    errors = [torch.sqrt(1e-10 + (distances - _atom_distances(x)).square()) for x in (true, alternative)]
    # errors of the distances between ambiguous and unambiguous atoms
    rows, columns = (mask * ambiguous).flatten(1), (mask * (1.0 - ambiguous)).flatten(1)
    pairs = rows[:, :, None] * columns[:, None]
    error_as_named, error_exchanged = (
        (error * pairs).sum(dim=-1).unflatten(1, (-1, 14)).sum(dim=-1) for error in errors
    )
    return (error_exchanged < error_as_named).float()


def _atom_distances(atom14: torch.Tensor) -> torch.Tensor:
    """Return distances [B, N*14, N*14] of all atoms."""
    flat = atom14.flatten(1, 2)
    return torch.sqrt(1e-10 + (flat[:, :, None] - flat[:, None]).square().sum(dim=-1))


def side_chain_fape(structure: FoldedStructure, targets: Targets, execution: Execution) -> torch.Tensor:
    """Return the FAPE of all atoms in all rigid groups' frames of the last iteration, [B]."""
    with torch.no_grad():
        exchanged = execution.compile_if_enabled(use_alternative_names)(
            structure.atom14,
            targets.atom14,
            targets.alternative_atom14,
            targets.atom14_mask,
            targets.ambiguous,
        )
    atoms = _select(exchanged, targets.alternative_atom14, targets.atom14)
    atoms_mask = _select(exchanged, targets.alternative_mask, targets.atom14_mask)
    true = Rigid(
        _select(exchanged, targets.alternative_frames.rotation, targets.frames.rotation),
        _select(exchanged, targets.alternative_frames.translation, targets.frames.translation),
    )
    frames = structure.frames
    return execution.compile_if_enabled(frame_aligned_point_error)(
        Rigid(frames.rotation.flatten(1, 2), frames.translation.flatten(1, 2)),
        Rigid(true.rotation.flatten(1, 2), true.translation.flatten(1, 2)),
        targets.frames_mask.flatten(1),
        structure.atom14.flatten(1, 2),
        atoms.flatten(1, 2),
        atoms_mask.flatten(1),
        clamp=CLAMP_DISTANCE,
    )


def _select(condition: torch.Tensor, if_true: torch.Tensor, if_false: torch.Tensor) -> torch.Tensor:
    weight = condition.view(*condition.shape, *[1] * (if_true.dim() - 2))
    return if_true * weight + if_false * (1.0 - weight)


def torsion_loss(structure: FoldedStructure, targets: Targets) -> torch.Tensor:
    """Return the loss of the chi angles and of the norms of all angles (Algorithm 27), [B].

    For symmetric side chains, the better of the two equivalent angles counts.
    """
    predicted = structure.sin_cos[..., 3:, :]  # [I, B, N, 4, 2]
    true, shifted = targets.chi_sin_cos, targets.alternative_chi_sin_cos
    error = torch.minimum(
        (true - predicted).square().sum(dim=-1), (shifted - predicted).square().sum(dim=-1)
    )  # [I, B, N, 4]
    chi_loss = _masked_mean(error, targets.chi_mask.expand_as(error), (0, 2, 3))
    norm = torch.sqrt(structure.unnormalised_sin_cos.square().sum(dim=-1) + 1e-6)  # [I, B, N, 7]
    deviation = (norm - 1.0).abs()
    norm_loss = _masked_mean(deviation, targets.seq_mask[None, :, :, None].expand_as(deviation), (0, 2, 3))
    return CHI_WEIGHT * chi_loss + ANGLE_NORM_WEIGHT * norm_loss


def _masked_mean(x: torch.Tensor, mask: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    return (x * mask).sum(dim=axes) / (mask.sum(dim=axes) + 1e-10)


def distogram_loss(logits: torch.Tensor, beta: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of CB distances in 64 bins (section 1.9.8), [B].

    Logits are [B, N, N, 64], CB positions [B, N, 3] and their mask [B, N].
    """
    squared = (beta[:, :, None] - beta[:, None]).square().sum(dim=-1, keepdim=True)  # [B, N, N, 1]
    bins = (squared > distogram_edges(beta.device).square()).sum(dim=-1)  # [B, N, N]
    errors = cross_entropy(logits, bins)
    pair_mask = mask[:, :, None] * mask[:, None]
    return (errors * pair_mask).sum(dim=(1, 2)) / (1e-6 + pair_mask.sum(dim=(1, 2)))


def cross_entropy(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Return -log p of the classes, in the shape of `classes`."""
    return -torch.gather(torch.log_softmax(logits, dim=-1), -1, classes[..., None]).squeeze(-1)


def masked_msa_loss(logits: torch.Tensor, true_msa: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of masked alignment positions (section 1.9.9), [B].

    Logits are [B, S, N, 23], codes int64 [B, S, N]; the mask [B, S, N] is 1 for the masked positions.
    """
    errors = cross_entropy(logits, true_msa) * mask
    return errors.sum(dim=(1, 2)) / (1e-8 + mask.sum(dim=(1, 2)))


def lddt_ca(alpha: torch.Tensor, true_alpha: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the lDDT of each residue's CA, 0 to 1, [B, N] (Mariani et al., Bioinformatics 29, 2722, 2013).

    Predicted and true positions are [B, N, 3], their mask is [B, N].
    """
    distances, true = (
        torch.sqrt(1e-10 + (x[:, :, None] - x[:, None]).square().sum(dim=-1)) for x in (alpha, true_alpha)
    )
    scored = (true < LDDT_RADIUS).float() * mask[:, :, None] * mask[:, None]
    scored = scored * (1.0 - torch.eye(alpha.shape[1], device=alpha.device))
    difference = (distances - true).abs()
    score = (
        sum(((difference < limit).float() for limit in (0.5, 1.0, 2.0, 4.0)), torch.zeros_like(difference))
        / 4.0
    )
    return (1e-10 + (scored * score).sum(dim=-1)) / (1e-10 + scored.sum(dim=-1))


def predicted_lddt_loss(logits: torch.Tensor, atom14: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return the cross-entropy of the confidence head with the lDDT of the prediction (section 1.9.6), [B].

    Logits are [B, N, 50], predicted positions [B, N, 14, 3].
    """
    mask = targets.atom14_mask[:, :, 1]
    score = lddt_ca(atom14[:, :, 1].detach(), targets.atom14[:, :, 1], mask)
    bins = (score * PLDDT_BINS).floor().long().clip(max=PLDDT_BINS - 1)
    return (cross_entropy(logits, bins) * mask).sum(dim=1) / (mask.sum(dim=1) + 1e-8)


def aligned_error_loss(logits: torch.Tensor, backbone: Rigid, targets: Targets) -> torch.Tensor:
    """Return the cross-entropy of the predicted aligned error (section 1.9.7), [B].

    Logits are [B, N, N, 64], the frames of the last iteration [B, N].
    """
    true, mask = targets.backbone, targets.backbone_mask
    predicted = Rigid(backbone.rotation.detach(), backbone.translation.detach())
    local = _local_points(predicted, predicted.translation)  # [B, N, N, 3]
    squared = (local - _local_points(true, true.translation)).square().sum(dim=-1, keepdim=True)
    bins = (squared > aligned_error_edges(logits.device).square()).sum(dim=-1).clip(max=PAE_BINS - 1)
    pair_mask = mask[:, :, None] * mask[:, None]
    return (cross_entropy(logits, bins) * pair_mask).sum(dim=(1, 2)) / (1e-8 + pair_mask.sum(dim=(1, 2)))


def experimentally_resolved_loss(logits: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return the binary cross-entropy of the prediction whether atoms are resolved (section 1.9.10), [B].

    Logits are [B, N, 37]. The loss is 0 for samples without side chains.
    """
    flat = targets.aatype.flatten()
    _, exists = atom14_to_atom37_positions(flat, targets.atom14.flatten(0, 1))
    slots = residue_rows(residue_constants.atom37_to_atom14, flat)
    resolved = torch.gather(targets.atom14_mask.flatten(0, 1), 1, slots) * exists
    resolved, exists = resolved.view_as(logits), exists.view_as(logits) * targets.seq_mask[..., None]
    errors = F.binary_cross_entropy_with_logits(logits, resolved, reduction="none") * exists
    return targets.full_atom * errors.sum(dim=(1, 2)) / (1e-8 + exists.sum(dim=(1, 2)))


def mean_terms(terms: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the mean of each term over the batch, detached."""
    return {name: value.detach().mean() for name, value in terms.items()}
