"""Blocks of the trunk: triangle updates of the pair representation, MSA module and pairformer.

Both triangle multiplications, triangle attention and the outer product mean are AlphaFold2's, and read the
parameters that `model.checkpoints.openfold3` translates. Everything changes the representations in place.
Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

import torch
from torch import nn

from cuda.fused.chunking import row_slices
from model.alphafold2.modules.config import MsaConfig, PairConfig
from model.alphafold2.modules.evoformer import OuterProductMean, TriangleAttention, TriangleMultiplication
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.layers import MASK_PENALTY, GatedAttention, Mask, Norm, SwiGLUTransition, linear
from model.layers.graphs import GraphedModules
from model.layers.kernels import Kernels


class EndingAttention(TriangleAttention):
    """Triangle attention around the ending node (Algorithm 15) whose bias is not transposed."""

    transposed_bias = False

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update pair [N, N, C] in place and return it; mask is [N, N]."""
        norm = self.query_norm
        bias = self.kernels.pair_bias(pair, norm.scale, norm.offset, self.pair_bias)  # [H, N, N]
        self.kernels.add_attention(
            pair.transpose(0, 1), self.operands, None if mask is None else mask.T, bias
        )
        return pair


class PairBlock(nn.Module):
    """The pair half of a block: triangle updates and transition."""

    def __init__(self, config: PairConfig, kernels: Kernels, *, transposed_ending_bias: bool) -> None:
        super().__init__()
        self.tri_mul_out = TriangleMultiplication(config, kernels, outgoing=True)
        self.tri_mul_in = TriangleMultiplication(config, kernels, outgoing=False)
        self.tri_att_start = TriangleAttention(config, kernels, starting=True)
        ending = TriangleAttention if transposed_ending_bias else EndingAttention
        self.tri_att_end = ending(config, kernels, starting=False)
        self.pair_transition = SwiGLUTransition(config.channels, config.transition_factor)

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update pair [N, N, C] in place and return it; mask is [N, N]."""
        self.tri_mul_out(pair, mask)
        self.tri_mul_in(pair, mask)
        self.tri_att_start(pair, mask)
        self.tri_att_end(pair, mask)
        return self.pair_transition(pair, mask)


class BiasProjection(nn.Module):
    """A base class of modules that project the normalised pair representation to one bias for each head."""

    layer_norm_z: Norm
    linear_z: nn.Linear
    kernels: Kernels

    def pair_bias(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Return the bias [H, N, N] of pair [N, N, C]; mask is [N, N] for pairs, or [N] for keys."""
        norm = self.layer_norm_z
        bias = self.kernels.pair_bias(pair, norm.weight, norm.bias, self.linear_z.weight.T)
        bias = bias[..., : pair.shape[1]]  # the kernels pad the keys
        return bias if mask is None else bias + MASK_PENALTY * (1 - mask)


class PairWeightedAveraging(BiasProjection):
    """Averages of an alignment row over its tokens, weighted by the pair representation (Algorithm 10)."""

    update_dropout = (0.15, 0)  # see `model.layers.dropout`

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        msa = config.msa
        inner = msa.heads * msa.head_channels
        self.kernels, self.heads = kernels, msa.heads
        self.layer_norm_m = Norm(msa.channels)
        self.layer_norm_z = Norm(config.pair.channels)
        self.linear_z = linear(config.pair.channels, msa.heads)
        self.linear_v = linear(msa.channels, inner)
        self.linear_g = linear(msa.channels, inner)
        self.linear_o = linear(inner, msa.channels)

    def forward(self, msa: torch.Tensor, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update msa [R, N, M] in place and return it; pair is [N, N, C], mask [N, N]."""
        return self.add_averages(msa, self.pair_bias(pair, mask).softmax(dim=-1))

    def add_averages(self, msa: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Update msa [R, N, M] in place and return it, given the weights of tokens [H, N, N]."""
        length = msa.shape[1]
        for rows in row_slices(msa, 5 * length * self.linear_v.out_features):
            msa[rows] += self.update(msa[rows], weights)
        return msa

    def update(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the update of rows [r, N, M], given the weights of tokens [H, N, N]."""
        normed = self.layer_norm_m(rows)
        values = self.linear_v(normed).unflatten(-1, (self.heads, -1))  # [r, N, H, D]
        values = values.permute(2, 1, 0, 3).flatten(2)  # [H, N, r*D]
        averages = torch.bmm(weights, values).unflatten(2, (normed.shape[0], -1))  # [H, N, r, D]
        averages = averages.permute(2, 1, 0, 3).flatten(2)  # [r, N, H*D]
        return self.linear_o(torch.sigmoid(self.linear_g(normed)) * averages)


class MsaBlock(nn.Module):
    """One block of the MSA module (Algorithm 8, lines 6 to 13); the last one leaves the MSA as it is."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels, *, last: bool) -> None:
        super().__init__()
        msa = config.msa
        sizes = MsaConfig(channels=msa.channels, outer_channels=msa.outer_channels)
        self.outer_product_mean = OuterProductMean(sizes, config.pair, kernels)
        self.msa_att_row = None if last else PairWeightedAveraging(config, kernels)
        self.msa_transition = None if last else SwiGLUTransition(msa.channels, msa.transition_factor)
        self.pair_stack = PairBlock(
            config.pair, kernels, transposed_ending_bias=config.transposed_ending_bias
        )

    def forward(
        self, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update msa [R, N, M] and pair [N, N, C] in place and return them; masks are [R, N] and [N, N]."""
        self.outer_product_mean(pair, msa, msa_mask)
        if self.msa_att_row is not None and self.msa_transition is not None:
            self.msa_att_row(msa, pair, pair_mask)
            self.msa_transition(msa, msa_mask)
        return msa, self.pair_stack(pair, pair_mask)


class SingleAttention(BiasProjection):
    """Attention of the single representation, biased by the pair representation (Algorithm 24)."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.layer_norm_a = Norm(config.single_channels)
        self.layer_norm_z = Norm(config.pair.channels)
        self.linear_z = linear(config.pair.channels, config.single_heads)
        self.mha = GatedAttention(config.single_channels, config.single_heads)

    def forward(self, single: torch.Tensor, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Return the update [N, S] of single [N, S]; pair is [N, N, C], mask [N]."""
        return self.update(single, self.pair_bias(pair, mask))

    def update(self, single: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return the update of single [N, S], given the bias [H, N, N]."""
        return self.mha(self.layer_norm_a(single)[None], bias)[0]


class PairformerBlock(nn.Module):
    """One block of the pairformer (Algorithm 17)."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        self.pair_stack = PairBlock(
            config.pair, kernels, transposed_ending_bias=config.transposed_ending_bias
        )
        self.attn_pair_bias = SingleAttention(config, kernels)
        self.single_transition = SwiGLUTransition(config.single_channels, config.single_transition_factor)

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, token_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update single [N, S] and pair [N, N, C] in place and return them; masks are [N] and [N, N]."""
        self.pair_stack(pair, pair_mask)
        single += self.attn_pair_bias(single, pair, token_mask)
        return self.single_transition(single, token_mask), pair


class MsaModule(nn.Module):
    """The MSA module (Algorithm 8)."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        last = config.msa.blocks - 1
        self.blocks = nn.ModuleList([MsaBlock(config, kernels, last=i == last) for i in range(last + 1)])
        stacks = (self.blocks[:last], self.blocks[last:])
        self.graphed = [GraphedModules(blocks) for blocks in stacks if len(blocks)]

    def forward(self, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, pair_mask: Mask) -> torch.Tensor:
        """Return the updated pair [N, N, C]; it and msa [R, N, M] are overwritten, masks as in blocks."""
        for blocks in self.graphed:
            msa, pair = blocks(len(pair), msa, pair, msa_mask, pair_mask)
        return pair


class Pairformer(nn.Module):
    """A stack of pairformer blocks, replayed as CUDA graphs for few tokens.

    Args:
        config: the network.
        blocks: number of blocks.
        kernels: implementation of the heavy operations.
    """

    def __init__(self, config: AlphaFold3Config, blocks: int, kernels: Kernels) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([PairformerBlock(config, kernels) for _ in range(blocks)])
        self.graphed = GraphedModules(self.blocks)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its parameters, which the representations must have."""
        return next(self.parameters()).dtype

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, token_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the updated single [N, S] and pair [N, N, C], which are overwritten; masks as in blocks."""
        result: tuple[torch.Tensor, torch.Tensor] = self.graphed(
            len(single), single, pair, token_mask, pair_mask
        )
        return result
