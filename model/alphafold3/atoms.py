"""Atoms: windows, the embedding of reference conformers, and the atom encoder and decoder.

Everything that depends neither on the noise level nor on noisy positions is computed once for a prediction
(`AtomConditions`). Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.dispatch import needs_gradients
from cuda.fused.residual_norm import GatedUpdate, add_gated
from cuda.fused.weights import cached_weights, join_rows
from cuda.fused.window_attention import differentiable, window_attention
from model.alphafold3.config import ELEMENTS, NAME_CHARACTERS, AtomConfig
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import (
    HALF,
    MASK_PENALTY,
    AdaptiveLayerNorm,
    ConditionedTransition,
    GatedAttention,
    Modulation,
    linear,
    masked,
    run_block,
    scale_norm,
    uses_kernels,
)

# atoms of a token in the layout of DeepMind's code
TOKEN_PLACES = 24
# atoms of all samples that a block sees at once, except in half precision
GRADIENT_ATOMS = 3 * 2**16
# channels of a head that the kernels of attention within windows take
KERNEL_WIDTHS = (16, 32, 64)


@dataclass(frozen=True)
class AtomWindows:
    """Windows of consecutive query atoms, each with the keys around it, shifted inwards at both ends.

    Args:
        atoms: A, number of atoms.
        starts: int64 [W], first key of each window.
        key_index: int64 [W, K], atoms that are keys.
        mask: float [W, Q, K], 1 for pairs of real atoms.
    """

    atoms: int
    starts: torch.Tensor
    key_index: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def of(cls, atom_mask: torch.Tensor, queries: int, keys: int) -> "AtomWindows":
        """Divide atoms with a mask [A] into windows of `queries` and `keys` atoms (Algorithm 7)."""
        atoms = len(atom_mask)
        count = -(-atoms // queries)
        real = int(atom_mask.sum())
        starts = queries * torch.arange(count, device=atom_mask.device) + (queries - keys) // 2
        starts = starts.clamp(max=real - keys).clamp(min=0)
        index = starts[:, None] + torch.arange(keys, device=atom_mask.device)  # [W, K]
        key_mask = atom_mask[index.clamp(max=atoms - 1)] * (index < real)
        query_mask = F.pad(atom_mask, (0, count * queries - atoms)).view(count, queries)
        mask = query_mask[:, :, None] * key_mask[:, None, :]
        return cls(atoms, starts, index.clamp(max=max(real - 1, 0)), mask)

    def queries(self, x: torch.Tensor) -> torch.Tensor:
        """Arrange x [..., A, C] by window: [..., W, Q, C], zero past the last atom."""
        count, queries = self.mask.shape[:2]
        return F.pad(x, (0, 0, 0, count * queries - self.atoms)).unflatten(-2, (count, queries))

    def keys(self, x: torch.Tensor) -> torch.Tensor:
        """Gather the keys of x [..., A, C]: [..., W, K, C]."""
        return x[..., self.key_index, :]

    def atoms_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the atoms of queries x [..., W, Q, C]: [..., A, C]."""
        return x.flatten(-3, -2)[..., : self.atoms, :]


class BlockConditions(NamedTuple):
    """Conditions of one block of an atom transformer, the same for all denoising steps.

    Args:
        bias: [W, H, Q, K], logits of the pairs, with the penalty of masked ones.
        query: modulation of the queries and of the attention's output, [A, C] each.
        key: modulation of keys and values.
        transition: modulation of the transition.
    """

    bias: torch.Tensor
    query: Modulation
    key: Modulation
    transition: Modulation


class AtomAttention(nn.Module):
    """Attention of atoms within windows (Algorithm 24)."""

    def __init__(self, config: AtomConfig) -> None:
        super().__init__()
        channels = config.channels
        self.layer_norm_a_q = AdaptiveLayerNorm(channels, channels)
        self.layer_norm_a_k = AdaptiveLayerNorm(channels, channels)
        self.linear_ada_out = linear(channels, channels, bias=True)
        self.linear_z = linear(config.pair_channels, config.heads)
        self.mha = GatedAttention(channels, config.heads)
        self.has_kernel = channels // config.heads in KERNEL_WIDTHS

    def forward(self, x: torch.Tensor, conditions: BlockConditions, windows: AtomWindows) -> torch.Tensor:
        """Return the update of atoms x [S, A, C]."""
        mha, heads = self.mha, self.mha.heads
        queries, keys = conditions.query.norm(x), conditions.key.norm(x)
        recorded = needs_gradients(x, conditions.bias, mha.linear_q.weight)
        if recorded and self.has_kernel and uses_kernels(x):
            return conditions.query.gated(self._attended_with_gradients(queries, keys, conditions, windows))
        query = windows.queries(mha.linear_q(queries))  # [S, W, Q, C]
        # projected before they are gathered, since an atom is a key of several windows
        key, value = (windows.keys(projection(keys)) for projection in (mha.linear_k, mha.linear_v))
        query, key, value = (y.unflatten(-1, (heads, -1)).transpose(-2, -3) for y in (query, key, value))
        logits = query @ (key.transpose(-1, -2) * query.shape[-1] ** -0.5)  # [S, W, H, Q, K]
        weights = logits.add_(conditions.bias).softmax(dim=-1)
        attended = windows.atoms_of((weights @ value).transpose(-2, -3).flatten(-2))  # [S, A, C]
        return conditions.query.gated(mha.output(queries, attended))

    def _attended_with_gradients(
        self, queries: torch.Tensor, keys: torch.Tensor, conditions: BlockConditions, windows: AtomWindows
    ) -> torch.Tensor:
        """Return projected attended values [S, A, C] from kernels that do not gather keys."""
        mha, dtype = self.mha, queries.dtype
        weights = torch.cat([mha.linear_q.weight, mha.linear_g.weight]).to(dtype)
        offset = F.pad(mha.linear_q.bias, (0, len(mha.linear_q.bias))).to(dtype)  # gates have no bias
        key_weights = torch.cat([mha.linear_k.weight, mha.linear_v.weight]).to(dtype)
        query, key = F.linear(queries, weights, offset), F.linear(keys, key_weights)
        attended = differentiable.window_attention(query, key, conditions.bias, windows.starts, fused=True)
        return mha.linear_o(attended)

    def half_attended(
        self, x: torch.Tensor, update: GatedUpdate | None, conditions: BlockConditions, windows: AtomWindows
    ) -> torch.Tensor:
        """Add an update to atoms x in place; return gated attended values [S, A, C] in half precision."""
        mha = self.mha
        bias = mha.linear_q.bias
        # gates have no bias
        offset = cached_weights("of queries and gates", (bias,), lambda: torch.cat([bias, 0 * bias]).to(HALF))
        query_weights = join_rows(HALF, mha.linear_q.weight, mha.linear_g.weight)
        key_weights = join_rows(HALF, mha.linear_k.weight, mha.linear_v.weight)
        queries = F.linear(conditions.query.half_norm(x, update), query_weights, offset)
        keys = F.linear(conditions.key.half_norm(x), key_weights)
        return window_attention(queries, keys, conditions.bias, windows.starts)


class AtomBlock(nn.Module):
    """One block of the atom transformer (Algorithm 23)."""

    def __init__(self, config: AtomConfig) -> None:
        super().__init__()
        self.attention_pair_bias = AtomAttention(config)
        self.conditioned_transition = ConditionedTransition(
            config.channels, config.channels, config.transition_factor
        )

    def conditions(self, single: torch.Tensor, pair: torch.Tensor, penalty: torch.Tensor) -> BlockConditions:
        """Compute what depends on single [A, C], normalised pair [W, Q, K, P] and penalty [W, Q, K] alone."""
        attention = self.attention_pair_bias
        return BlockConditions(
            attention.linear_z(pair).permute(0, 3, 1, 2) + penalty[:, None],
            attention.layer_norm_a_q(single, attention.linear_ada_out),
            attention.layer_norm_a_k(single),
            self.conditioned_transition.modulation(single),
        )

    def forward(
        self, x: torch.Tensor, conditions: BlockConditions, windows: AtomWindows, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the updated atoms x [S, A, C]; mask is [A]."""
        x = x + self.attention_pair_bias(x, conditions, windows)
        return self.conditioned_transition(x, conditions.transition, mask)


class AtomTransformer(nn.Module):
    """A stack of attention blocks within windows (Algorithm 7)."""

    def __init__(self, config: AtomConfig) -> None:
        super().__init__()
        # operands of half precision, on a GPU
        self.half_precision = False
        self.layer_norm_z = scale_norm(config.pair_channels)
        self.blocks = nn.ModuleList([AtomBlock(config) for _ in range(config.blocks)])

    def conditions(
        self, single: torch.Tensor, pair: torch.Tensor, windows: AtomWindows
    ) -> tuple[BlockConditions, ...]:
        """Compute what depends on single [A, C] and pair [W, Q, K, P] alone, for each block."""
        normed, penalty = self.layer_norm_z(pair), MASK_PENALTY * (1 - windows.mask)
        blocks = cast(Iterable[AtomBlock], self.blocks)
        return tuple(block.conditions(single, normed, penalty) for block in blocks)

    def forward(
        self,
        x: torch.Tensor,
        conditions: tuple[BlockConditions, ...],
        windows: AtomWindows,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the updated atoms x [S, A, C], which may be changed; mask is [A]."""
        if self.half_precision and not torch.is_grad_enabled():
            return self._in_half_precision(x.contiguous(), conditions, windows, mask)
        parts = list(x.chunk(-(-x.shape[0] * x.shape[1] // GRADIENT_ATOMS)))
        for index in range(len(parts)):
            for block, block_conditions in zip(self.blocks, conditions, strict=True):
                parts[index] = run_block(block, parts[index], block_conditions, windows, mask)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _in_half_precision(
        self,
        x: torch.Tensor,
        conditions: tuple[BlockConditions, ...],
        windows: AtomWindows,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Update x in place, and return it; same arguments as `forward`."""
        update: GatedUpdate | None = None
        for block, condition in zip(cast(Iterable[AtomBlock], self.blocks), conditions, strict=True):
            attention, transition = block.attention_pair_bias, block.conditioned_transition
            attended = attention.half_attended(x, update, condition, windows)
            output = join_rows(HALF, attention.mha.linear_o.weight)
            update = condition.query.update(attended, output)
            update = transition.half_update(x, update, condition.transition, mask)
        return x if update is None else add_gated(x, update)


class ReferenceEmbedder(nn.Module):
    """The embedding of reference conformers (Algorithm 5, lines 1 to 6)."""

    def __init__(self, config: AtomConfig) -> None:
        super().__init__()
        channels, pair_channels = config.channels, config.pair_channels
        self.shifted_conformers = config.shifted_conformers
        self.linear_ref_pos = linear(3, channels)
        self.linear_ref_charge = linear(1, channels)
        self.linear_ref_mask = linear(1, channels)
        self.linear_ref_element = linear(ELEMENTS, channels)
        self.linear_ref_atom_chars = linear(NAME_CHARACTERS, channels)
        self.linear_ref_offset = linear(3, pair_channels)
        self.linear_inv_sq_dists = linear(1, pair_channels)
        self.linear_valid_mask = linear(1, pair_channels)

    def forward(self, inputs: AlphaFold3Inputs, windows: AtomWindows) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the embeddings of atoms [A, C] and of the pairs in windows [W, Q, K, P]."""
        dtype = inputs.ref_pos.dtype
        single = (
            self.linear_ref_pos(inputs.ref_pos)
            + self.linear_ref_charge(torch.arcsinh(inputs.ref_charge)[:, None])
            + self.linear_ref_mask(inputs.ref_mask[:, None])
            + self.linear_ref_element(inputs.ref_element.to(dtype))
            + self.linear_ref_atom_chars(inputs.ref_atom_name_chars.flatten(1).to(dtype))
        )
        mask = windows.mask[..., None]
        position, conformer = inputs.ref_pos, inputs.ref_space_uid[:, None]
        offset = windows.queries(position)[:, :, None] - windows.keys(position)[:, None]
        offset = offset * mask  # [W, Q, K, 3]
        known = conformer
        if self.shifted_conformers:
            tokens = torch.arange(len(conformer), device=conformer.device) // TOKEN_PLACES
            known = conformer[inputs.start_atom_index[tokens]]
        same = windows.queries(conformer)[:, :, None] == windows.keys(known)[:, None]
        same = same.to(dtype) * mask  # [W, Q, K, 1]
        closeness = 1 / (1 + offset.square().sum(dim=-1, keepdim=True))
        pair = self.linear_ref_offset(offset) + self.linear_inv_sq_dists(closeness)
        return single, (pair + self.linear_valid_mask(same)) * same


class NoisyPositionEmbedder(nn.Module):
    """The embedding of the trunk's representations and of noisy positions (Algorithm 5, lines 8 to 12)."""

    def __init__(self, config: AtomConfig, single_channels: int, pair_channels: int) -> None:
        super().__init__()
        self.layer_norm_s = scale_norm(single_channels)
        self.linear_s = linear(single_channels, config.channels)
        self.layer_norm_z = scale_norm(pair_channels)
        self.linear_z = linear(pair_channels, config.pair_channels)
        self.linear_r = linear(3, config.channels)

    def token_pair(self, pair: torch.Tensor) -> torch.Tensor:
        """Project rows of the pair conditioning [n, N, Z] to the channels of atom pairs, [n, N, P]."""
        projected: torch.Tensor = self.linear_z(self.layer_norm_z(pair))
        return projected

    def of_atoms(self, token_pair: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Return token_pair [N, N, P] of the tokens of query [W, Q, 1] and key [W, 1, K]: [W, Q, K, P]."""
        return token_pair[query, key]


@dataclass(frozen=True)
class AtomConditions:
    """Conditions of an encoder and its decoder, the same for all denoising steps.

    Args:
        windows: the windows of atoms.
        members: the atoms of tokens.
        single: [A, C], conditioning of the atoms.
        pair: [W, Q, K, P], conditioning of the pairs.
        encoder: conditions of the encoder's blocks.
    """

    windows: AtomWindows
    members: "TokenMembers"
    single: torch.Tensor
    pair: torch.Tensor
    encoder: tuple[BlockConditions, ...]


class AtomEncoder(nn.Module):
    """The encoder from atoms to tokens (Algorithm 5).

    Args:
        config: sizes.
        token_channels: channels of the tokens.
        trunk: channels of the trunk's single and pair representation, if the atoms see them and noisy
            positions.
    """

    def __init__(self, config: AtomConfig, token_channels: int, trunk: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.config = config
        self.ref_atom_feature_embedder = ReferenceEmbedder(config)
        if trunk is not None:
            self.noisy_position_embedder = NoisyPositionEmbedder(config, *trunk)
        self.linear_l = linear(config.channels, config.pair_channels)
        self.linear_m = linear(config.channels, config.pair_channels)
        steps = [(nn.ReLU(), linear(config.pair_channels, config.pair_channels)) for _ in range(3)]
        self.pair_mlp = nn.Sequential(*(layer for step in steps for layer in step))
        self.atom_transformer = AtomTransformer(config)
        self.linear_q = nn.Sequential(linear(config.channels, token_channels), nn.ReLU())

    def conditions(
        self, inputs: AlphaFold3Inputs, trunk: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> AtomConditions:
        """Compute what does not depend on noise (lines 1 to 6 and 8 to 14).

        `trunk` has the single representation [N, S], and the projected pair conditioning [N, N, P].
        """
        windows = AtomWindows.of(inputs.atom_mask, self.config.queries, self.config.keys)
        mask = windows.mask[..., None]
        single, pair = self.ref_atom_feature_embedder(inputs, windows)
        if trunk is not None:
            noisy = self.noisy_position_embedder
            token = inputs.atom_to_token_index
            single = single + noisy.linear_s(noisy.layer_norm_s(trunk[0]))[token]
            query_token = windows.queries(token[:, None])  # [W, Q, 1]
            key_token = windows.keys(token[:, None]).transpose(-1, -2)  # [W, 1, K]
            pair = pair + noisy.of_atoms(trunk[1], query_token, key_token) * mask
        activated = F.relu(single)
        query_part = windows.queries(self.linear_l(activated))[:, :, None]
        key_part = windows.keys(self.linear_m(activated))[:, None]
        pair = pair + (query_part + key_part) * mask
        pair = (pair + self.pair_mlp(pair)) * mask
        if trunk is not None:
            single, pair = single.to(trunk[1].dtype), pair.to(trunk[1].dtype)
        members = TokenMembers.of(inputs)
        encoder = self.atom_transformer.conditions(single, pair, windows)
        return AtomConditions(windows, members, single, pair, encoder)

    def forward(
        self, inputs: AlphaFold3Inputs, conditions: AtomConditions, positions: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode atoms (lines 7, 15 to 17), with scaled noisy positions [S, A, 3] if the encoder sees them.

        Returns:
            tokens: [S, N, T].
            atoms: [S, A, C]; S is 1 without positions.
        """
        atoms = conditions.single[None]
        if positions is not None:
            atoms = atoms + self.noisy_position_embedder.linear_r(positions).to(atoms.dtype)
        mask = inputs.atom_mask
        atoms = self.atom_transformer(atoms, conditions.encoder, conditions.windows, mask)
        atoms = masked(atoms, mask)
        return run_block(self._means, atoms, conditions.members), atoms

    def _means(self, atoms: torch.Tensor, members: "TokenMembers") -> torch.Tensor:
        """Return the mean of the projected atoms [S, A, C] of each token, [S, N, T]."""
        return members.mean(self.linear_q(atoms))


class AtomDecoder(nn.Module):
    """The decoder from tokens to updates of atom positions (Algorithm 6)."""

    def __init__(self, config: AtomConfig, token_channels: int) -> None:
        super().__init__()
        self.linear_q_in = linear(token_channels, config.channels)
        self.atom_transformer = AtomTransformer(config)
        self.layer_norm = scale_norm(config.channels)
        self.linear_q_out = linear(config.channels, 3)

    def conditions(self, encoded: AtomConditions) -> tuple[BlockConditions, ...]:
        """Compute what does not depend on noise, from the encoder's conditions."""
        return self.atom_transformer.conditions(encoded.single, encoded.pair, encoded.windows)

    def forward(
        self,
        inputs: AlphaFold3Inputs,
        tokens: torch.Tensor,
        atoms: torch.Tensor,
        encoded: AtomConditions,
        conditions: tuple[BlockConditions, ...],
    ) -> torch.Tensor:
        """Return updates [S, A, 3] from tokens [S, N, T] and the encoder's atoms [S, A, C]."""
        atoms = atoms + encoded.members.spread(self.linear_q_in(tokens), inputs.atom_to_token_index)
        atoms = self.atom_transformer(atoms, conditions, encoded.windows, inputs.atom_mask)
        return self.linear_q_out(self.layer_norm(atoms))


@dataclass(frozen=True)
class TokenMembers:
    """The atoms of each token by their rank in it.

    Args:
        atoms: int64 [N, R], an atom of each token for each rank.
        weights: [N, R], 1 where the token has such an atom.
        count: [N, 1], number of atoms, at least 1.
        matrix: [N, A], 1 for the atoms of a token, while gradients are recorded (those of a product need no
            sorting), otherwise None.
    """

    atoms: torch.Tensor
    weights: torch.Tensor
    count: torch.Tensor
    matrix: torch.Tensor | None

    @classmethod
    def of(cls, inputs: AlphaFold3Inputs) -> "TokenMembers":
        """Return the atoms of a target's tokens."""
        counts = inputs.num_atoms_per_token * inputs.token_mask.to(torch.int64)
        last = len(inputs.atom_mask) - 1
        rank = torch.arange(int(counts.max()), device=counts.device)
        atoms = (inputs.start_atom_index[:, None] + rank).clamp(max=last)
        mask = inputs.atom_mask
        weights = (rank < counts[:, None]).to(mask) * mask[atoms]
        matrix = None
        if torch.is_grad_enabled():
            matrix = mask.new_zeros(len(counts), len(mask)).scatter_add_(1, atoms, weights)
        return cls(atoms, weights, counts.clamp(min=1)[:, None], matrix)

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """Average atoms x [S, A, C] by token, summing in a fixed order: [S, N, C]."""
        if self.matrix is not None:
            return self.matrix.to(x.dtype) @ x / self.count.to(x.dtype)
        atoms = self.atoms + x.shape[1] * torch.arange(len(x), device=x.device)[:, None, None]
        weights = self.weights.expand(len(x), -1, -1)
        total = F.embedding_bag(
            atoms.flatten(0, 1), x.flatten(0, 1), mode="sum", per_sample_weights=weights.flatten(0, 1)
        )
        return total.view(len(x), -1, x.shape[2]) / self.count

    def spread(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the values [S, A, C] of each atom's token, int64 [A], given those of tokens x [S, N, C]."""
        return x[:, tokens] if self.matrix is None else self.matrix.T.to(x.dtype) @ x
