"""The Evoformer and extra MSA stacks (Algorithms 6 to 19 of the supplement)."""

from functools import cached_property

import torch
from torch import nn

from cuda.fused.attention import AttentionWeights
from cuda.fused.attention.reference import global_attention
from cuda.fused.outer_product_mean import OuterProductMeanWeights
from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights
from model.alphafold2.modules.config import MsaConfig, PairConfig, StackConfig
from model.layers.common import Attention, LayerNorm, Linear, Transition, parameter
from model.layers.kernels import Kernels

# A float mask, 1 for real positions; None means all ones and saves a pass over every logit.
Mask = torch.Tensor | None


class SelfAttention(nn.Module):
    """A base class of modules with one self-attention layer and its input normalisation."""

    query_norm: LayerNorm
    attention: Attention

    def gather_operands(self) -> AttentionWeights:
        """Return the parameters in the form that the fused operation takes; torch.compile can trace this."""
        own = {name: getattr(self.attention, name) for name in AttentionWeights._fields[2:]}
        return AttentionWeights(self.query_norm.scale, self.query_norm.offset, **own)

    operands = cached_property(gather_operands)


class MsaRowAttention(SelfAttention):
    """Gated self-attention along each MSA row, biased by the pair representation (Algorithm 7)."""

    update_dropout = (0.15, 0)  # see `model.layers.dropout`

    def __init__(self, msa: MsaConfig, pair: PairConfig, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.query_norm = LayerNorm(msa.channels, kernels)
        self.pair_norm = LayerNorm(pair.channels, kernels)
        self.pair_bias = parameter(pair.channels, msa.attention_heads)
        self.attention = Attention(msa.channels, msa.attention_heads, msa.attention_channels)

    def forward(self, msa: torch.Tensor, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update msa [S, N, C] in place and return it; pair is [N, N, Z], mask [S, N]."""
        norm = self.pair_norm
        bias = self.kernels.pair_bias(pair, norm.scale, norm.offset, self.pair_bias)  # [H, N, N]
        return self.kernels.add_attention(msa, self.operands, mask, bias)


class MsaColumnAttention(SelfAttention):
    """Gated self-attention along each MSA column (Algorithm 8, or Algorithm 19 if global)."""

    def __init__(self, msa: MsaConfig, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.is_global = msa.global_column_attention
        self.query_norm = LayerNorm(msa.channels, kernels)
        self.attention = Attention(
            msa.channels, msa.attention_heads, msa.attention_channels, shared_key=self.is_global
        )

    def forward(self, msa: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update msa [S, N, C] in place and return it; mask is [S, N]."""
        columns = msa.transpose(0, 1)  # [N, S, C]
        if self.is_global:
            mask = msa.new_ones(msa.shape[:2]) if mask is None else mask
            columns += global_attention(columns, self.operands, mask.T)
        else:
            self.kernels.add_attention(columns, self.operands, None if mask is None else mask.T)
        return msa


class OuterProductMean(nn.Module):
    """The outer product mean, which updates the pair representation from the MSA (Algorithm 10)."""

    def __init__(self, msa: MsaConfig, pair: PairConfig, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.layer_norm_input = LayerNorm(msa.channels, kernels)
        self.left_projection = Linear(msa.channels, msa.outer_channels)
        self.right_projection = Linear(msa.channels, msa.outer_channels)
        self.output = parameter(msa.outer_channels, msa.outer_channels, pair.channels)
        self.output_bias = parameter(pair.channels)

    def forward(self, pair: torch.Tensor, msa: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update pair [N, N, Z] in place and return it; msa is [S, N, C], mask [S, N]."""
        return self.kernels.add_outer_product_mean(pair, msa, self.operands, mask)

    def gather_operands(self) -> OuterProductMeanWeights:
        """Return the parameters in the form that the fused operation takes; torch.compile can trace this."""
        norm, left, right = self.layer_norm_input, self.left_projection, self.right_projection
        projections = (left.weights, left.bias, right.weights, right.bias)
        return OuterProductMeanWeights(norm.scale, norm.offset, *projections, self.output, self.output_bias)

    operands = cached_property(gather_operands)


class TriangleMultiplication(nn.Module):
    """The triangle multiplicative update with outgoing or incoming edges (Algorithms 11 and 12)."""

    update_dropout = (0.25, 0)

    def __init__(self, config: PairConfig, kernels: Kernels, *, outgoing: bool) -> None:
        super().__init__()
        self.kernels = kernels
        self.outgoing = outgoing
        channels, inner = config.channels, config.multiplication_channels
        self.layer_norm_input = LayerNorm(channels, kernels)
        self.left_projection = Linear(channels, inner)
        self.right_projection = Linear(channels, inner)
        self.left_gate = Linear(channels, inner)
        self.right_gate = Linear(channels, inner)
        self.center_layer_norm = LayerNorm(inner, kernels)
        self.output_projection = Linear(inner, channels)
        self.gating_linear = Linear(channels, channels)

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update pair [N, N, C] in place and return it; mask is [N, N]."""
        return self.kernels.add_triangle_multiplication(pair, self.operands, mask, outgoing=self.outgoing)

    def gather_operands(self) -> TriangleMultiplicationWeights:
        """Return the parameters in the form that the fused operation takes; torch.compile can trace this."""
        return TriangleMultiplicationWeights(
            norm_scale=self.layer_norm_input.scale,
            norm_offset=self.layer_norm_input.offset,
            left=self.left_projection.weights,
            left_bias=self.left_projection.bias,
            right=self.right_projection.weights,
            right_bias=self.right_projection.bias,
            left_gate=self.left_gate.weights,
            left_gate_bias=self.left_gate.bias,
            right_gate=self.right_gate.weights,
            right_gate_bias=self.right_gate.bias,
            center_scale=self.center_layer_norm.scale,
            center_offset=self.center_layer_norm.offset,
            output=self.output_projection.weights,
            output_bias=self.output_projection.bias,
            gating=self.gating_linear.weights,
            gating_bias=self.gating_linear.bias,
        )

    operands = cached_property(gather_operands)


class TriangleAttention(SelfAttention):
    """Triangle self-attention around the starting or ending node (Algorithms 13 and 14)."""

    # whether the ending node's bias comes from the transposed pair representation
    transposed_bias = True

    def __init__(self, config: PairConfig, kernels: Kernels, *, starting: bool) -> None:
        super().__init__()
        self.kernels = kernels
        self.starting = starting
        self.update_dropout = (0.25, 0 if starting else 1)
        self.query_norm = LayerNorm(config.channels, kernels)
        self.pair_bias = parameter(config.channels, config.attention_heads)
        self.attention = Attention(config.channels, config.attention_heads, config.attention_channels)

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update pair [N, N, C] in place and return it; mask is [N, N]."""
        rows = pair if self.starting else pair.transpose(0, 1)
        rows_mask = mask if mask is None or self.starting else mask.T
        norm = self.query_norm
        # computed for all rows before the attention changes any of them
        bias = self.kernels.pair_bias(rows, norm.scale, norm.offset, self.pair_bias)  # [H, N, N]
        self.kernels.add_attention(rows, self.operands, rows_mask, bias)
        return pair


class EvoformerBlock(nn.Module):
    """One Evoformer block (Algorithm 6) or extra MSA block (Algorithm 18)."""

    def __init__(self, config: StackConfig, kernels: Kernels) -> None:
        super().__init__()
        msa, pair = config.msa, config.pair
        self.outer_product_first = config.outer_product_first
        column = "msa_column_global_attention" if msa.global_column_attention else "msa_column_attention"
        self.column_attention_name = column
        self.msa_row_attention_with_pair_bias = MsaRowAttention(msa, pair, kernels)
        self.add_module(column, MsaColumnAttention(msa, kernels))
        self.msa_transition = Transition(msa.channels, msa.transition_factor, kernels)
        self.outer_product_mean = OuterProductMean(msa, pair, kernels)
        self.triangle_multiplication_outgoing = TriangleMultiplication(pair, kernels, outgoing=True)
        self.triangle_multiplication_incoming = TriangleMultiplication(pair, kernels, outgoing=False)
        self.triangle_attention_starting_node = TriangleAttention(pair, kernels, starting=True)
        self.triangle_attention_ending_node = TriangleAttention(pair, kernels, starting=False)
        self.pair_transition = Transition(pair.channels, pair.transition_factor, kernels)

    def forward(
        self, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update msa [S, N, C] and pair [N, N, Z] in place and return them; masks are [S, N] and [N, N]."""
        if self.outer_product_first:
            self.outer_product_mean(pair, msa, msa_mask)
        self.msa_row_attention_with_pair_bias(msa, pair, msa_mask)
        self.get_submodule(self.column_attention_name)(msa, msa_mask)
        self.msa_transition(msa)
        if not self.outer_product_first:
            self.outer_product_mean(pair, msa, msa_mask)
        self.triangle_multiplication_outgoing(pair, pair_mask)
        self.triangle_multiplication_incoming(pair, pair_mask)
        self.triangle_attention_starting_node(pair, pair_mask)
        self.triangle_attention_ending_node(pair, pair_mask)
        self.pair_transition(pair)
        return msa, pair
