"""The structure module: backbone updates, torsion angles, atom positions (Algorithms 20, 21, 23 and 24)."""

from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.chunking import chunk_budget, planned_budget, row_slices
from model import residue_constants
from model.alphafold2.modules.config import StructureConfig
from model.alphafold2.modules.evoformer import Mask
from model.alphafold2.modules.point_attention import InvariantPointAttention, SeparatePointAttention
from model.layers.common import LayerNorm, Linear
from model.layers.graphs import GraphedModules
from model.layers.kernels import Kernels
from model.layers.rigid import Rigid, rotation_from_quaternion, update_quaternion
from model.residue_tables import residue_rows


@dataclass(frozen=True)
class Backbone:
    """Backbone frames with rotations as quaternions.

    Args:
        quaternion: [N, 4], unit quaternions, real part first.
        translation: [N, 3], in units of `StructureConfig.position_scale`.
    """

    quaternion: torch.Tensor
    translation: torch.Tensor

    @classmethod
    def identity(cls, length: int, device: torch.device) -> "Backbone":
        """Return identity frames for all residues."""
        quaternion = torch.zeros(length, 4, device=device)
        quaternion[:, 0] = 1.0
        return cls(quaternion, torch.zeros(length, 3, device=device))

    def to_rigid(self, scale: float = 1.0) -> Rigid:
        """Return the frames with rotation matrices, and with translations multiplied by `scale`."""
        return Rigid(rotation_from_quaternion(self.quaternion), self.translation * scale)

    def compose_update(self, update: torch.Tensor, frames: Rigid) -> "Backbone":
        """Return these frames composed with local updates [N, 6] (Algorithm 23).

        An update is the vector part of a quaternion (1, b, c, d), then a translation. `frames` is the result
        of `to_rigid`, which callers have computed already.
        """
        vector, translation = update.split(3, dim=-1)
        return Backbone(update_quaternion(self.quaternion, vector), frames.apply(translation))


@dataclass(frozen=True)
class SidechainFrames:
    """Torsion angles predicted by one iteration, and the frames of the rigid groups that follow from them.

    Args:
        sin_cos: [N, 7, 2], sine and cosine of each torsion angle.
        unnormalised_sin_cos: [N, 7, 2], the network's output before normalisation to unit length.
        frames: shape [N, 8], local to global, Å.
    """

    sin_cos: torch.Tensor
    unnormalised_sin_cos: torch.Tensor
    frames: Rigid


class TorsionAngleNetwork(nn.Module):
    """The residual network that predicts torsion angles (Algorithm 20, lines 11 to 14)."""

    def __init__(self, config: StructureConfig) -> None:
        super().__init__()
        channels, inner = config.channels, config.sidechain_channels
        self.input_projection = Linear(channels, inner)
        self.input_projection_1 = Linear(channels, inner)
        self.resblock1 = Linear(inner, inner)
        self.resblock2 = Linear(inner, inner)
        self.resblock1_1 = Linear(inner, inner)
        self.resblock2_1 = Linear(inner, inner)
        self.unnormalized_angles = Linear(inner, 14)

    def forward(self, single: torch.Tensor, initial: torch.Tensor) -> torch.Tensor:
        """Predict unnormalised sine and cosine [..., 7, 2] of torsion angles.

        They depend on the single representation [..., C] of this iteration, and the normalised one of the
        trunk.
        """
        act = self.input_projection(torch.relu(single)) + self.input_projection_1(torch.relu(initial))
        act = act + self.resblock2(torch.relu(self.resblock1(torch.relu(act))))  # [N, C']
        act = act + self.resblock2_1(torch.relu(self.resblock1_1(torch.relu(act))))
        return self.unnormalized_angles(torch.relu(act)).unflatten(-1, (7, 2))


class FoldIteration(nn.Module):
    """One iteration of Algorithm 20. All iterations share its weights."""

    input_dropout = MappingProxyType({"attention_layer_norm": 0.1, "transition_layer_norm": 0.1})

    def __init__(self, config: StructureConfig, pair_channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.config = config
        channels = config.channels
        attention = SeparatePointAttention if config.separate_projections else InvariantPointAttention
        self.invariant_point_attention = attention(config, pair_channels)
        self.attention_layer_norm = LayerNorm(channels, kernels)
        self.transition = Linear(channels, channels)
        self.transition_1 = Linear(channels, channels)
        self.transition_2 = Linear(channels, channels)
        self.transition_layer_norm = LayerNorm(channels, kernels)
        self.affine_update = Linear(channels, 6)
        self.rigid_sidechain = TorsionAngleNetwork(config)

    def forward(
        self,
        single: torch.Tensor,
        pair: torch.Tensor,
        pair_logits: torch.Tensor,
        backbone: Backbone,
        mask: Mask,
    ) -> tuple[torch.Tensor, Backbone]:
        """Update the single representation [N, C] and the backbone.

        The normalised pair is [N, N, Z], `pair_logits` [H, N, N] the result of `PointAttention.pair_logits`,
        and the mask [N], or None for all ones.
        """
        frames = backbone.to_rigid()
        single = single + self.invariant_point_attention(single, pair, pair_logits, frames, mask)
        single = self.attention_layer_norm(single)
        hidden = torch.relu(self.transition_1(torch.relu(self.transition(single))))
        single = self.transition_layer_norm(single + self.transition_2(hidden))
        return single, backbone.compose_update(self.affine_update(single), frames)

    def predict_sidechains(
        self, single: torch.Tensor, initial: torch.Tensor, backbone: Backbone, aatype: torch.Tensor
    ) -> SidechainFrames:
        """Predict torsion angles and build the rigid groups' frames on the backbone of residues aatype [N].

        They depend on the single representation [N, C] of this iteration, and the normalised one of the
        trunk.
        """
        unnormalised = self.rigid_sidechain(single, initial)
        sin_cos = unnormalised / torch.sqrt(unnormalised.square().sum(dim=-1, keepdim=True).clip(min=1e-12))
        frames = torsion_angles_to_frames(aatype, backbone.to_rigid(self.config.position_scale), sin_cos)
        return SidechainFrames(sin_cos, unnormalised, frames)


class _UpdateInPlace(nn.Module):
    """One iteration that replaces the single representation and the backbone, so that it can be repeated."""

    def __init__(self, iteration: FoldIteration) -> None:
        super().__init__()
        self.iteration = iteration

    def forward(
        self,
        single: torch.Tensor,
        pair: torch.Tensor,
        pair_logits: torch.Tensor,
        quaternion: torch.Tensor,
        translation: torch.Tensor,
        mask: Mask,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Update and return `single`, `quaternion` and `translation`; see `FoldIteration.forward`."""
        backbone = Backbone(quaternion, translation)
        new_single, backbone = self.iteration(single, pair, pair_logits, backbone, mask)
        single.copy_(new_single)
        quaternion.copy_(backbone.quaternion)
        translation.copy_(backbone.translation)
        return single, quaternion, translation


class StructureModule(nn.Module):
    """The structure module: atom positions from the trunk's representations, in float32 (Algorithm 20)."""

    def __init__(self, config: StructureConfig, pair_channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.config = config
        self.single_layer_norm = LayerNorm(config.channels, kernels)
        self.initial_projection = Linear(config.channels, config.channels)
        self.pair_layer_norm = LayerNorm(pair_channels, kernels)
        self.fold_iteration = FoldIteration(config, pair_channels, kernels)
        self.iterations = GraphedModules([_UpdateInPlace(self.fold_iteration)], config.iterations)

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, aatype: torch.Tensor, mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute the last single representation, positions [N, 37, 3], Å, and atom mask (Algorithm 20).

        Inputs are single [N, C], float32, pair [N, N, Z] of any floating-point type, with several ranks a
        rank's rows [n, N, Z], aatype [N], and the mask [N], or None for all ones.
        """
        initial = self.single_layer_norm(single)  # [N, C]
        single = self.initial_projection(initial)
        normed = torch.empty_like(pair, dtype=single.dtype)  # [N, N, Z]
        # factor 4: intermediates are float32, while the budget counts elements of the trunk's dtype
        for rows in row_slices(pair, 4 * pair.shape[1] * pair.shape[2]):
            normed[rows] = self.pair_layer_norm(pair[rows].float())
        pair_logits = self.fold_iteration.invariant_point_attention.pair_logits(normed)  # [H, N, N]
        backbone = Backbone.identity(single.shape[0], single.device)
        budget = planned_budget()
        # the plan counts elements of the trunk's dtype; here they are float32
        with chunk_budget(budget and budget * pair.element_size() // normed.element_size()):
            single, quaternion, translation = self.iterations(
                len(single), single, normed, pair_logits, backbone.quaternion, backbone.translation, mask
            )
        backbone = Backbone(quaternion, translation)
        # side chains of earlier iterations only matter in training
        sidechains = self.fold_iteration.predict_sidechains(single, initial, backbone, aatype)
        atom14 = frames_to_atom14_positions(aatype, sidechains.frames)  # [N, 14, 3]
        positions, atom_mask = atom14_to_atom37_positions(aatype, atom14)
        return single, positions, atom_mask


def torsion_angles_to_frames(aatype: torch.Tensor, backbone: Rigid, sin_cos: torch.Tensor) -> Rigid:
    """Return the frames [N, 8], local to global, of the rigid groups.

    They are backbone, pre-omega, phi, psi, chi1 to chi4. Residue codes are [N], backbone frames [N] in Å, and
    sin_cos [N, 7, 2] unit vectors of sine and cosine.
    """
    default_frames = residue_rows(residue_constants.default_frames, aatype)  # [N, 8, 3, 4]
    default = Rigid(default_frames[..., :3], default_frames[..., 3])  # [N, 8]
    # the backbone group has no torsion: angle 0
    sine, cosine = (F.pad(x, (1, 0), value=v) for x, v in zip(sin_cos.unbind(-1), (0.0, 1.0), strict=True))
    rotation = sin_cos.new_zeros(*sine.shape, 3, 3)  # rotation about x
    rotation[..., 0, 0] = 1.0
    rotation[..., 1, 1] = rotation[..., 2, 2] = cosine
    rotation[..., 1, 2] = -sine
    rotation[..., 2, 1] = sine
    in_parent = default.compose(Rigid(rotation, torch.zeros_like(default.translation)))  # [N, 8]
    frames = [in_parent[:, group] for group in range(8)]
    for group in (5, 6, 7):  # the parent of chi2 to chi4 is the previous chi group
        frames[group] = frames[group - 1].compose(frames[group])
    local = Rigid(
        torch.stack([frame.rotation for frame in frames], dim=1),
        torch.stack([frame.translation for frame in frames], dim=1),
    )
    return backbone.unsqueeze(1).compose(local)


def frames_to_atom14_positions(aatype: torch.Tensor, frames: Rigid) -> torch.Tensor:
    """Return atom positions [N, 14, 3], Å, from the rigid groups' frames [N, 8]; zero in empty slots."""
    groups = residue_rows(residue_constants.atom14_rigid_group, aatype)  # [N, 14]
    residues = torch.arange(aatype.shape[0], device=aatype.device)[:, None]
    positions = frames[residues, groups].apply(residue_rows(residue_constants.atom14_positions, aatype))
    return positions * residue_rows(residue_constants.atom14_mask, aatype)[..., None]


def atom14_to_atom37_positions(
    aatype: torch.Tensor, atom14: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return positions [N, 14, 3] as [N, 37, 3], zero for absent atoms, and their mask [N, 37]."""
    slots = residue_rows(residue_constants.atom37_to_atom14, aatype)  # [N, 37]
    mask = residue_rows(residue_constants.atom37_mask, aatype)  # [N, 37]
    positions = torch.gather(atom14, 1, slots[..., None].expand(-1, -1, 3))
    return positions * mask[..., None], mask
