"""Invariant point attention, whose result does not depend on the global frame (Algorithm 22).

AlphaFold2 and AlphaFold-Multimer compute the same attention from differently arranged projections.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.chunking import row_slices
from model.alphafold2.modules.config import StructureConfig
from model.alphafold2.modules.embedders import ALL
from model.alphafold2.modules.evoformer import Mask
from model.layers.common import Linear, parameter
from model.layers.rigid import Rigid


class Projections(NamedTuple):
    """Queries, keys and values; points are in the global frame.

    Args:
        query: [N, H, D].
        key: [N, H, D].
        value: [N, H, D].
        query_points: [N, H, P, 3].
        key_points: [N, H, P, 3].
        value_points: [N, H, P', 3].
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    query_points: torch.Tensor
    key_points: torch.Tensor
    value_points: torch.Tensor


def point_attention_elements(config: StructureConfig) -> int:
    """Return the number of intermediate float32 elements of point attention per pair of residues."""
    return 2 * config.heads * (3 * config.query_points + 4)


class PointAttention(nn.Module):
    """The attention, without its projections."""

    def __init__(self, config: StructureConfig, pair_channels: int) -> None:
        super().__init__()
        self.config = config
        self.trainable_point_weights = parameter(config.heads)
        self.attention_2d = Linear(pair_channels, config.heads)
        outputs = config.heads * (config.scalar_channels + 4 * config.value_points + pair_channels)
        self.output_projection = Linear(outputs, config.channels)

    def project(self, single: torch.Tensor, frames: Rigid) -> Projections:
        """Project the single representation [N, C] to queries, keys and values."""
        raise NotImplementedError

    def norms(self, points: torch.Tensor) -> torch.Tensor:
        """Return the lengths [...] of points [..., 3]."""
        raise NotImplementedError

    def pair_logits(self, pair: torch.Tensor) -> torch.Tensor:
        """Project the normalised pair representation [N, N, Z] to its term of the logits [H, N, N].

        The result is the same in all iterations.
        """
        return 3.0**-0.5 * self.attention_2d(pair).permute(2, 0, 1).contiguous()

    def forward(
        self,
        single: torch.Tensor,
        pair: torch.Tensor,
        pair_logits: torch.Tensor,
        frames: Rigid,
        mask: Mask,
        residues: slice = ALL,
    ) -> torch.Tensor:
        """Compute the update [n, C] of the single representation [N, C] of some residues.

        Rows of the normalised pair are [n, N, Z], `pair_logits` [H, n, N] the result of the method of this
        name, `frames` those of the backbone [N], and the mask [N], or None for all ones.
        """
        config, length = self.config, single.shape[0]
        query, key, value, query_points, key_points, value_points = self.project(single, frames)
        # equal variance of the three terms of a logit at initialisation; a squared distance has variance 9/2
        scalar_weight = (3.0 * config.scalar_channels) ** -0.5
        point_weight = (3.0 * config.query_points * 4.5) ** -0.5 * F.softplus(self.trainable_point_weights)
        key, value = key.permute(1, 2, 0), value.transpose(0, 1)  # [H, D, N], [H, N, D]
        value_points = value_points.permute(1, 0, 2, 3).flatten(2)  # [H, N, P'*3]
        query, query_points = query[residues], query_points[residues]  # [n, H, D], [n, H, P, 3]
        query_mask = None if mask is None else mask[residues]  # [n]

        scalars, points, pairs = [], [], []
        for rows in row_slices(query, length * point_attention_elements(config)):
            logits = scalar_weight * (query[rows].transpose(0, 1) @ key)  # [H, n, N]
            squared = (query_points[rows, None] - key_points[None]).square().sum(dim=(-1, -2))  # [n, N, H]
            logits -= 0.5 * (point_weight * squared).permute(2, 0, 1)
            logits += pair_logits[:, rows]
            if mask is not None and query_mask is not None:
                logits -= 1e5 * (1.0 - query_mask[rows, None] * mask)
            weights = torch.softmax(logits, dim=-1)  # [H, n, N]
            scalars.append((weights @ value).transpose(0, 1).flatten(1))  # [n, H*D]
            points.append((weights @ value_points).transpose(0, 1))  # [n, H, P'*3]
            pairs.append((weights.transpose(0, 1) @ pair[rows]).flatten(1))  # [n, H*Z]
        local = torch.cat(points).reshape(len(query), -1, 3)  # [n, H*P', 3]
        local = frames[residues].unsqueeze(1).invert_apply(local)
        outputs = [torch.cat(scalars), *local.unbind(dim=-1), self.norms(local), torch.cat(pairs)]
        return self.output_projection(torch.cat(outputs, dim=-1))


class InvariantPointAttention(PointAttention):
    """Point attention of AlphaFold2, in which keys and values share their projections."""

    def __init__(self, config: StructureConfig, pair_channels: int) -> None:
        super().__init__(config, pair_channels)
        heads, width = config.heads, config.scalar_channels
        points = config.query_points + config.value_points
        self.q_scalar = Linear(config.channels, heads * width)
        self.kv_scalar = Linear(config.channels, heads * 2 * width)
        self.q_point_local = Linear(config.channels, 3 * heads * config.query_points)
        self.kv_point_local = Linear(config.channels, 3 * heads * points)

    def project(self, single: torch.Tensor, frames: Rigid) -> Projections:
        """Project the single representation [N, C] to queries, keys and values."""
        config = self.config
        heads, width = config.heads, config.scalar_channels
        query = self.q_scalar(single).unflatten(-1, (heads, width))  # [N, H, D]
        key, value = self.kv_scalar(single).unflatten(-1, (heads, 2 * width)).split(width, dim=-1)
        query_points = self._to_global(self.q_point_local(single), frames)  # [N, H, P, 3]
        key_points, value_points = self._to_global(self.kv_point_local(single), frames).split(
            [config.query_points, config.value_points], dim=2
        )
        return Projections(query, key, value, query_points, key_points, value_points)

    def norms(self, points: torch.Tensor) -> torch.Tensor:
        """Return the lengths [...] of points [..., 3], with 1e-8 added under the root."""
        return torch.sqrt(points.square().sum(dim=-1) + 1e-8)

    def _to_global(self, flat: torch.Tensor, frames: Rigid) -> torch.Tensor:
        """Transform local points [N, 3*H*P], stored as all x, all y, all z, to global points [N, H, P, 3]."""
        local = flat.unflatten(-1, (3, -1)).transpose(1, 2)  # [N, H*P, 3]
        return frames.unsqueeze(1).apply(local).unflatten(1, (self.config.heads, -1))


class HeadProjection(nn.Module):
    """A linear layer with an output for each head."""

    def __init__(self, inputs: int, heads: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weights = parameter(inputs, heads, outputs)
        self.bias = parameter(heads, outputs) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Project x [N, inputs] to [N, H, outputs]."""
        projected = (x @ self.weights.flatten(1)).unflatten(-1, self.weights.shape[1:])
        return projected if self.bias is None else projected + self.bias


class PointProjection(nn.Module):
    """A projection to points in the global frame."""

    def __init__(self, inputs: int, heads: int, points: int) -> None:
        super().__init__()
        self.point_projection = HeadProjection(inputs, heads, 3 * points, bias=True)

    def forward(self, single: torch.Tensor, frames: Rigid) -> torch.Tensor:
        """Project the single representation [N, C] to points [N, H, P, 3]."""
        # of each head all x, all y, all z
        local = self.point_projection(single).unflatten(-1, (3, -1)).transpose(-1, -2)
        return frames.unsqueeze(1).unsqueeze(1).apply(local)


class SeparatePointAttention(PointAttention):
    """Point attention of AlphaFold-Multimer, in which queries, keys and values have separate projections."""

    def __init__(self, config: StructureConfig, pair_channels: int) -> None:
        super().__init__(config, pair_channels)
        inputs, heads, width = config.channels, config.heads, config.scalar_channels
        self.q_scalar_projection = HeadProjection(inputs, heads, width, bias=False)
        self.k_scalar_projection = HeadProjection(inputs, heads, width, bias=False)
        self.v_scalar_projection = HeadProjection(inputs, heads, width, bias=False)
        self.q_point_projection = PointProjection(inputs, heads, config.query_points)
        self.k_point_projection = PointProjection(inputs, heads, config.query_points)
        self.v_point_projection = PointProjection(inputs, heads, config.value_points)

    def project(self, single: torch.Tensor, frames: Rigid) -> Projections:
        """Project the single representation [N, C] to queries, keys and values."""
        return Projections(
            self.q_scalar_projection(single),
            self.k_scalar_projection(single),
            self.v_scalar_projection(single),
            self.q_point_projection(single, frames),
            self.k_point_projection(single, frames),
            self.v_point_projection(single, frames),
        )

    def norms(self, points: torch.Tensor) -> torch.Tensor:
        """Return the lengths [...] of points [..., 3], at least 1e-8."""
        return torch.sqrt(points.square().sum(dim=-1).clip(min=1e-16))
