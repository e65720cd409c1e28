"""The diffusion module: one denoising step of atom positions.

What does not depend on the noise level (pair conditioning, attention biases, all conditions of the atoms) is
computed once for a prediction. Algorithm numbers are those of the supplement of Abramson et al., Nature 630,
493 (2024).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.attention import attend
from cuda.fused.attention.reference import padded_keys
from cuda.fused.chunking import residue_slices
from cuda.fused.residual_norm import GatedUpdate, add_gated
from model.alphafold3.atoms import AtomConditions, AtomDecoder, AtomEncoder, BlockConditions
from model.alphafold3.config import AlphaFold3Config, DiffusionConfig
from model.alphafold3.embedding import RelativePositions
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import (
    HALF,
    HEAD_CHANNELS,
    MASK_PENALTY,
    AdaptiveLayerNorm,
    ConditionedTransition,
    GatedAttention,
    Mask,
    Modulation,
    SwiGLUTransition,
    joint_modulations,
    linear,
    normalise,
    run_block,
    scale_norm,
)
from model.layers.block_graphs import run_module


class FourierEmbedding(nn.Module):
    """The embedding of a noise level (Algorithm 22)."""

    w: torch.Tensor
    b: torch.Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("w", torch.empty(channels))
        self.register_buffer("b", torch.empty(channels))

    def forward(self, level: torch.Tensor) -> torch.Tensor:
        """Embed levels [...]: [..., C]."""
        return torch.cos(2 * math.pi * (level[..., None] * self.w + self.b))


class DiffusionConditioning(nn.Module):
    """Conditions from the trunk's representations and the noise level (Algorithm 21)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        single, pair = config.single_channels, config.pair.channels
        pair_inputs = pair + config.relative_channels
        single_inputs = single + config.input_channels
        noise = config.diffusion.noise_channels
        self.sigma_data = config.diffusion.sigma_data
        self.layer_norm_z = scale_norm(pair_inputs)
        self.linear_z = linear(pair_inputs, pair)
        self.transition_z = nn.ModuleList([SwiGLUTransition(pair, 2) for _ in range(2)])
        self.layer_norm_s = scale_norm(single_inputs)
        self.linear_s = linear(single_inputs, single)
        self.fourier_emb = FourierEmbedding(noise)
        self.layer_norm_n = scale_norm(noise)
        self.linear_n = linear(noise, single)
        self.transition_s = nn.ModuleList([SwiGLUTransition(single, 2) for _ in range(2)])

    def pair(
        self, trunk_pair: torch.Tensor, relative: RelativePositions, mask: Mask, rows: slice = slice(None)
    ) -> torch.Tensor:
        """Compute rows of the pair conditioning (lines 1 to 3, 5) from the trunk's [n, N, Z]; mask [N, N]."""
        recorded = torch.is_grad_enabled()  # operations in place have no gradient
        dtype = trunk_pair.dtype if recorded else self.linear_z.weight.dtype
        row_mask = None if mask is None else mask[rows]
        parts = [trunk_pair.to(dtype), relative.features(rows, dtype)]
        result = self.linear_z(self.layer_norm_z(torch.cat(parts, dim=-1)))
        for transition in cast(Iterable[SwiGLUTransition], self.transition_z):
            result = (
                result + transition.update(result, row_mask) if recorded else transition(result, row_mask)
            )
        return result

    @property
    def pair_elements(self) -> int:
        """Elements of the intermediates of `pair` for each pair of tokens."""
        return 4 * self.linear_z.in_features + 2 * self.linear_z.out_features

    def single(self, trunk_single: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Compute the single conditioning [N, S] without the noise level (lines 6 and 7)."""
        joined = torch.cat([trunk_single, features], dim=-1)
        return self.linear_s(self.layer_norm_s(joined)).to(trunk_single.dtype)

    def at_noise(self, single: torch.Tensor, sigma: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Add noise levels [...], Å, to the single conditioning [N, S]: [..., N, S] (lines 8 to 12)."""
        embedded = self.fourier_emb(torch.log(sigma / self.sigma_data) / 4)
        single = single + self.linear_n(self.layer_norm_n(embedded))[..., None, :].to(single.dtype)
        for transition in cast(Iterable[SwiGLUTransition], self.transition_s):
            single = single + transition.update(single, mask)
        return single


class TokenAttention(nn.Module):
    """Attention of the tokens, conditioned and biased by the pair conditioning (Algorithm 24)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        diffusion = config.diffusion
        self.layer_norm_a = AdaptiveLayerNorm(diffusion.channels, config.single_channels)
        self.linear_ada_out = linear(config.single_channels, diffusion.channels, bias=True)
        if not diffusion.shared_pair_norm:
            self.layer_norm_z = scale_norm(config.pair.channels)
        self.linear_z = linear(config.pair.channels, diffusion.heads)
        self.mha = GatedAttention(diffusion.channels, diffusion.heads)

    def forward(self, x: torch.Tensor, condition: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return the update of x [S, N, T]; condition is [N, C] or [S, N, C], bias [H, N, N]."""
        modulation = self.layer_norm_a(condition, self.linear_ada_out)
        return modulation.gated(self.mha(modulation.norm(x), bias))


class TokenBlock(nn.Module):
    """One block of the token transformer (Algorithm 23)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        diffusion = config.diffusion
        self.attention_pair_bias = TokenAttention(config)
        self.conditioned_transition = ConditionedTransition(
            diffusion.channels, config.single_channels, diffusion.transition_factor
        )

    def forward(
        self, x: torch.Tensor, condition: torch.Tensor, bias: torch.Tensor, mask: Mask
    ) -> torch.Tensor:
        """Return the updated x [S, N, T]; condition is [N, C] or [S, N, C], bias [H, N, N], mask [N]."""
        x = x + self.attention_pair_bias(x, condition, bias)
        return self.conditioned_transition(x, self.conditioned_transition.modulation(condition), mask)


class TokenTransformer(nn.Module):
    """The transformer over tokens (Algorithm 23)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        self.shared_pair_norm = config.diffusion.shared_pair_norm
        # operands of half precision, on a GPU
        self.half_precision = False
        if self.shared_pair_norm:
            self.layer_norm_z = scale_norm(config.pair.channels)
        self.blocks = nn.ModuleList([TokenBlock(config) for _ in range(config.diffusion.blocks)])

    def empty_biases(self, pair: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return memory for the bias [H, n, N] of each block; pair is [n, N, Z].

        In half precision, keys are padded; see `cuda.fused.attention`.
        """
        (queries, tokens), first = pair.shape[:2], cast(TokenBlock, self.blocks[0]).attention_pair_bias
        dtype = HALF if self.half_precision else first.linear_z.weight.dtype
        keys = padded_keys(tokens) if self.half_precision else tokens
        shape = (first.linear_z.out_features, queries, keys)
        return tuple(pair.new_full(shape, float("-inf"), dtype=dtype) for _ in self.blocks)

    def write_biases(
        self, biases: tuple[torch.Tensor, ...], rows: slice, pair: torch.Tensor, mask: Mask
    ) -> None:
        """Write the biases of some rows of the pair conditioning [n, N, Z]; masked keys [N] get a penalty."""
        normed = self.layer_norm_z(pair) if self.shared_pair_norm else None
        for bias, block in zip(biases, cast(Iterable[TokenBlock], self.blocks), strict=True):
            attention = block.attention_pair_bias
            values = attention.linear_z(attention.layer_norm_z(pair) if normed is None else normed)
            if mask is not None:
                values = values + MASK_PENALTY * (1 - mask[:, None])
            bias[:, rows, : pair.shape[1]] = values.permute(2, 0, 1)

    def joint_biases(self, pair: torch.Tensor, mask: Mask) -> tuple[torch.Tensor, ...]:
        """Compute the biases of all blocks from the pair conditioning [N, N, Z] in one product."""
        attentions = [block.attention_pair_bias for block in cast(Iterable[TokenBlock], self.blocks)]
        if self.shared_pair_norm:
            normed, weights = self.layer_norm_z(pair), [x.linear_z.weight for x in attentions]
        else:
            normed = normalise(pair)
            weights = [x.linear_z.weight * x.layer_norm_z.weight for x in attentions]
        joined = torch.cat(weights).to(pair.dtype) @ normed.flatten(0, 1).T  # [blocks · H, N · N]
        biases = joined.view(len(attentions), -1, *pair.shape[:2])
        if mask is not None:
            biases = biases + MASK_PENALTY * (1 - mask).to(biases.dtype)
        return biases.unbind()

    def forward(
        self, x: torch.Tensor, condition: torch.Tensor, biases: tuple[torch.Tensor, ...], mask: Mask
    ) -> torch.Tensor:
        """Return the updated x [S, N, T]; condition is [N, C] or [S, N, C], mask [N]."""
        if self.half_precision and not torch.is_grad_enabled():
            return self._in_half_precision(x.contiguous(), condition, biases, mask)
        for block, bias in zip(self.blocks, biases, strict=True):
            x = run_module(TokenBlock.forward, block, (x, condition, bias), (mask,))
        return x

    def _in_half_precision(
        self, x: torch.Tensor, condition: torch.Tensor, biases: tuple[torch.Tensor, ...], mask: Mask
    ) -> torch.Tensor:
        """Update x in place, and return it; same arguments as `forward`."""
        update: GatedUpdate | None = None
        modulations = self._modulations(condition)
        no_offset = x.new_zeros(len(biases[0]), HEAD_CHANNELS, dtype=HALF)  # of gates
        for block, bias in zip(cast(Iterable[TokenBlock], self.blocks), biases, strict=True):
            attention, transition = block.attention_pair_bias, block.conditioned_transition
            first, second = next(modulations), next(modulations)
            gated = self._attended(attention.mha, first.half_norm(x, update), no_offset, bias)
            output = attention.mha.padded_weights()[2]
            update = transition.half_update(x, first.update(gated, output), second, mask)
        return x if update is None else add_gated(x, update)

    def _attended(
        self, mha: GatedAttention, normed: torch.Tensor, no_offset: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        """Return gated attended values [S, N, D] of normalised x [S, N, T], both in half precision."""
        weights, offset, _ = mha.padded_weights()
        return attend(F.linear(normed, weights, offset), no_offset, bias)

    def _modulations(self, condition: torch.Tensor) -> Iterator[Modulation]:
        """Return the modulations of attention and transition of each block by a condition [N, C]."""
        blocks = [(x.attention_pair_bias, x.conditioned_transition) for x in self._token_blocks()]
        norms = [norm for first, second in blocks for norm in (first.layer_norm_a, second.layer_norm)]
        gates = [gate for first, second in blocks for gate in (first.linear_ada_out, second.linear_g)]
        return joint_modulations(norms, gates, condition)

    def _token_blocks(self) -> Iterable[TokenBlock]:
        return cast(Iterable[TokenBlock], self.blocks)


@dataclass(frozen=True)
class DiffusionConditions:
    """Conditions of a prediction, the same for all denoising steps.

    Args:
        single: [N, S], single conditioning without the noise level.
        token_mask: [N], or None if all tokens are real.
        token_biases: [H, N, N] for each block of the token transformer.
        atoms: conditions of the atom encoder.
        decoder: conditions of the decoder's blocks.
    """

    single: torch.Tensor
    token_mask: Mask
    token_biases: tuple[torch.Tensor, ...]
    atoms: AtomConditions
    decoder: tuple[BlockConditions, ...]


class DiffusionModule(nn.Module):
    """The network that denoises atom positions (Algorithm 20)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        diffusion: DiffusionConfig = config.diffusion
        trunk = (config.single_channels, config.pair.channels)
        self.sigma_data = diffusion.sigma_data
        self.diffusion_conditioning = DiffusionConditioning(config)
        self.atom_attn_enc = AtomEncoder(diffusion.atoms, diffusion.channels, trunk)
        self.layer_norm_s = scale_norm(config.single_channels)
        self.linear_s = linear(config.single_channels, diffusion.channels)
        self.diffusion_transformer = TokenTransformer(config)
        self.layer_norm_a = scale_norm(diffusion.channels)
        self.atom_attn_dec = AtomDecoder(diffusion.atoms, diffusion.channels)

    def use_half_precision(self) -> None:
        """Use half-precision operands in the transformers, on a GPU."""
        for stack in (self.atom_attn_enc, self.atom_attn_dec):
            stack.atom_transformer.half_precision = True
        self.diffusion_transformer.half_precision = True

    def conditions(
        self,
        inputs: AlphaFold3Inputs,
        features: torch.Tensor,
        single: torch.Tensor,
        pair: torch.Tensor,
        relative: RelativePositions,
        rows: slice = slice(None),
    ) -> DiffusionConditions:
        """Compute what does not change between steps; biases are of the queries `rows`.

        Inputs are the input representation [N, I], and the trunk's single representation [N, S] and rows of
        its pair representation [n, N, Z].
        """
        mask = None if bool(inputs.token_mask.all()) else inputs.token_mask
        pair_mask = None if mask is None else mask[:, None] * mask
        embedder = self.atom_attn_enc.noisy_position_embedder
        if torch.is_grad_enabled():
            conditioned = run_block(self.diffusion_conditioning.pair, pair, relative, pair_mask)
            biases = self.diffusion_transformer.joint_biases(conditioned, mask)
            token_pair = embedder.token_pair(conditioned)
        else:
            biases = self.diffusion_transformer.empty_biases(pair)
            shape = (*pair.shape[:2], embedder.linear_z.out_features)
            token_pair = pair.new_empty(shape, dtype=self.diffusion_conditioning.linear_z.weight.dtype)
            # by rows, so that the pair conditioning itself is never in memory
            elements = pair.shape[1] * self.diffusion_conditioning.pair_elements
            for part, tokens in residue_slices(pair, elements, rows):
                conditioned = self.diffusion_conditioning.pair(pair[part], relative, pair_mask, tokens)
                self.diffusion_transformer.write_biases(biases, part, conditioned, mask)
                token_pair[part] = embedder.token_pair(conditioned)
        atoms = self.atom_attn_enc.conditions(inputs, (single, token_pair))
        return DiffusionConditions(
            self.diffusion_conditioning.single(single, features),
            mask,
            biases,
            atoms,
            self.atom_attn_dec.conditions(atoms),
        )

    def forward(
        self,
        inputs: AlphaFold3Inputs,
        conditions: DiffusionConditions,
        noisy: torch.Tensor,
        sigma: torch.Tensor,
    ) -> torch.Tensor:
        """Denoise positions [S, A, 3], Å, of a noise level, Å, a scalar or [S]."""
        noisy = noisy * inputs.atom_mask[:, None]
        level = sigma[..., None, None]
        variance = level**2 + self.sigma_data**2
        at_noise = self.diffusion_conditioning.at_noise
        condition = run_block(at_noise, conditions.single, sigma, conditions.token_mask)
        tokens, atoms = self.atom_attn_enc(inputs, conditions.atoms, noisy / torch.sqrt(variance))
        tokens = tokens + self.linear_s(self.layer_norm_s(condition))
        tokens = self.diffusion_transformer(tokens, condition, conditions.token_biases, conditions.token_mask)
        update = self.atom_attn_dec(
            inputs, self.layer_norm_a(tokens), atoms, conditions.atoms, conditions.decoder
        )
        denoised = self.sigma_data**2 / variance * noisy
        denoised = denoised + self.sigma_data * level / torch.sqrt(variance) * update
        return denoised * inputs.atom_mask[:, None]
