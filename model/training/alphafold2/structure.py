"""The differentiable structure module: Algorithms 20 to 24 with a batch axis, all iterations kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from model.alphafold2.modules.point_attention import InvariantPointAttention
from model.alphafold2.modules.structure_module import (
    FoldIteration,
    StructureModule,
    frames_to_atom14_positions,
    torsion_angles_to_frames,
)
from model.layers.rigid import Rigid, rotation_from_quaternion, update_quaternion
from model.training.alphafold2.layers import layer_norm, linear

DROPOUT = 0.1


@dataclass(frozen=True)
class FoldedStructure:
    """The results of all I iterations of the structure module, float32.

    Args:
        single: [B, N, C], the last single representation.
        backbone: frames of shape [I, B, N], Å.
        sin_cos: [I, B, N, 7, 2], unit vectors.
        unnormalised_sin_cos: [I, B, N, 7, 2].
        frames: the eight rigid groups of the last iteration, of shape [B, N, 8], Å.
        atom14: [B, N, 14, 3], Å, of the last iteration; zero in empty slots.
    """

    single: torch.Tensor
    backbone: Rigid
    sin_cos: torch.Tensor
    unnormalised_sin_cos: torch.Tensor
    frames: Rigid
    atom14: torch.Tensor


def fold(
    module: StructureModule,
    single: torch.Tensor,
    pair: torch.Tensor,
    aatype: torch.Tensor,
    seq_mask: torch.Tensor,
    dropout: torch.Tensor,
    iteration: Callable[..., Any] | None = None,
) -> FoldedStructure:
    """Run all iterations of the structure module, in float32.

    Gradients do not pass from one iteration to the next through rotations, as in DeepMind's code. Inputs are
    single [B, N, C] float32, pair [B, N, N, Z] of any dtype, aatype and seq_mask [B, N]; the scalar `dropout`
    is 1 to apply it and 0 for none. `iteration` is `fold_iteration` or a compiled form of it.
    """
    run_iteration = iteration or fold_iteration
    layer, scale = module.fold_iteration, module.config.position_scale
    batch, length = aatype.shape
    initial = layer_norm(single, module.single_layer_norm)
    single = linear(initial, module.initial_projection)
    normed = layer_norm(pair.float(), module.pair_layer_norm)
    attention = layer.invariant_point_attention
    pair_logits = 3.0**-0.5 * linear(normed, attention.attention_2d).permute(0, 3, 1, 2)  # [B, H, N, N]
    quaternion = torch.zeros(batch, length, 4, device=single.device)
    quaternion[..., 0] = 1.0
    # requires gradients like the translations of later iterations, so that one compiled function serves all
    translation = torch.zeros(batch, length, 3, device=single.device, requires_grad=torch.is_grad_enabled())
    rotation = rotation_from_quaternion(quaternion)
    backbones, angles, unnormalised_angles = [], [], []
    for _ in range(module.config.iterations):
        single, update = run_iteration(
            layer, single, normed, pair_logits, rotation, translation, seq_mask, dropout
        )
        rotation_update, translation_update = update.split(3, dim=-1)
        translation = Rigid(rotation, translation).apply(translation_update)
        quaternion = update_quaternion(quaternion, rotation_update)
        rotation = rotation_from_quaternion(quaternion)
        backbones.append(Rigid(rotation, translation * scale))
        unnormalised = layer.rigid_sidechain(single, initial)
        unnormalised_angles.append(unnormalised)
        angles.append(
            unnormalised / torch.sqrt(unnormalised.square().sum(dim=-1, keepdim=True).clip(min=1e-12))
        )
        quaternion, rotation = quaternion.detach(), rotation.detach()
    # these functions work on single residues, so the axes of batch and residues are joined
    flat = aatype.flatten()
    last = Rigid(backbones[-1].rotation.flatten(0, 1), backbones[-1].translation.flatten(0, 1))
    frames = torsion_angles_to_frames(flat, last, angles[-1].flatten(0, 1))  # [B*N, 8]
    atom14 = frames_to_atom14_positions(flat, frames)
    return FoldedStructure(
        single=single,
        backbone=Rigid(
            torch.stack([x.rotation for x in backbones]), torch.stack([x.translation for x in backbones])
        ),
        sin_cos=torch.stack(angles),
        unnormalised_sin_cos=torch.stack(unnormalised_angles),
        frames=Rigid(
            frames.rotation.unflatten(0, (batch, length)), frames.translation.unflatten(0, (batch, length))
        ),
        atom14=atom14.unflatten(0, (batch, length)),
    )


def fold_iteration(
    layer: FoldIteration,
    single: torch.Tensor,
    pair: torch.Tensor,
    pair_logits: torch.Tensor,
    rotation: torch.Tensor,
    translation: torch.Tensor,
    seq_mask: torch.Tensor,
    dropout: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run lines 6 to 10 of Algorithm 20; return the new single [B, N, C] and the frames' update [B, N, 6].

    Inputs are single [B, N, C], normalised pair [B, N, N, Z], pair_logits [B, H, N, N] and seq_mask [B, N];
    the backbone frames are rotations [B, N, 3, 3] and translations [B, N, 3] in units of
    `StructureConfig.position_scale`.
    """
    attention: Any = layer.invariant_point_attention
    frames = Rigid(rotation, translation)
    update = _point_attention(attention, single, pair, pair_logits, frames, seq_mask)
    single = layer_norm(_drop(single + update, dropout), layer.attention_layer_norm)
    hidden = torch.relu(linear(torch.relu(linear(single, layer.transition)), layer.transition_1))
    single = _drop(single + linear(hidden, layer.transition_2), dropout)
    single = layer_norm(single, layer.transition_layer_norm)
    return single, linear(single, layer.affine_update)


def _point_attention(
    layer: InvariantPointAttention,
    single: torch.Tensor,
    pair: torch.Tensor,
    pair_logits: torch.Tensor,
    frames: Rigid,
    seq_mask: torch.Tensor,
) -> torch.Tensor:
    """Return the update [B, N, C] of Algorithm 22."""
    config = layer.config
    heads, width = config.heads, config.scalar_channels
    points = [config.query_points, config.value_points]
    query = linear(single, layer.q_scalar).unflatten(-1, (heads, width))  # [B, N, H, D]
    key, value = linear(single, layer.kv_scalar).unflatten(-1, (heads, 2 * width)).split(width, dim=-1)
    query_points = _to_global(linear(single, layer.q_point_local), frames, heads)  # [B, N, H, P, 3]
    key_points, value_points = _to_global(linear(single, layer.kv_point_local), frames, heads).split(
        points, dim=3
    )
    scalar_weight = (3.0 * width) ** -0.5
    # 9/2 is the variance of a squared distance at initialisation
    point_weight = (3.0 * config.query_points * 4.5) ** -0.5 * F.softplus(layer.trainable_point_weights)
    logits = scalar_weight * (query.transpose(1, 2) @ key.permute(0, 2, 3, 1))  # [B, H, N, N]
    squared_distances = (
        (query_points[:, :, None] - key_points[:, None]).square().sum(dim=(-1, -2))
    )  # [B, N, N, H]
    logits = logits - 0.5 * (point_weight * squared_distances).permute(0, 3, 1, 2) + pair_logits
    logits = logits - 1e5 * (1.0 - seq_mask[:, None, :, None] * seq_mask[:, None, None])
    weights = torch.softmax(logits, dim=-1)  # [B, H, N, N]
    scalars = (weights @ value.transpose(1, 2)).transpose(1, 2).flatten(2)  # [B, N, H*D]
    global_points = weights @ value_points.permute(0, 2, 1, 3, 4).flatten(3)  # [B, H, N, P*3]
    global_points = global_points.transpose(1, 2).unflatten(-1, (-1, 3)).flatten(2, 3)  # [B, N, H*P, 3]
    local = frames.unsqueeze(2).invert_apply(global_points)
    norms = torch.sqrt(local.square().sum(dim=-1) + 1e-8)
    pairs = (weights.transpose(1, 2) @ pair).flatten(2)  # [B, N, H*Z]
    outputs = [scalars, *local.unbind(dim=-1), norms, pairs]
    return linear(torch.cat(outputs, dim=-1), layer.output_projection)


def _to_global(flat: torch.Tensor, frames: Rigid, heads: int) -> torch.Tensor:
    """Transform local points [B, N, 3*H*P], stored as all x, all y, all z, to global ones [B, N, H, P, 3]."""
    local = flat.unflatten(-1, (3, -1)).transpose(-1, -2)  # [B, N, H*P, 3]
    return frames.unsqueeze(2).apply(local).unflatten(2, (heads, -1))


def _drop(x: torch.Tensor, dropout: torch.Tensor) -> torch.Tensor:
    """Drop entries of x, and divide the others by their probability of being kept."""
    keep_probability = 1.0 - DROPOUT * dropout
    return x * ((torch.rand_like(x) < keep_probability) / keep_probability)
