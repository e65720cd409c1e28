"""An all-atom network whose predictions are divided among ranks, with the same interface as on one device.

Trunk and confidence heads are divided by rows of the pair representation, which no rank ever has whole for
many tokens. Each rank draws some of the samples: it encodes and decodes their atoms. For many tokens, each
rank runs the token transformer for the queries of its tokens in all samples, so it has only their biases. For
fewer tokens, whose steps are replayed as graphs without communication, it runs it for its samples. What is
small (embedded atoms, the single representation) is computed by every rank.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from cuda.fused.attention import attend
from model.alphafold3.atoms import NoisyPositionEmbedder
from model.alphafold3.blocks import MsaBlock, MsaModule, PairBlock, Pairformer, PairformerBlock
from model.alphafold3.diffusion import TokenTransformer
from model.alphafold3.embedding import TemplatePairStack
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import GatedAttention, Mask
from model.alphafold3.network import MAX_GRAPHED_TOKENS, AlphaFold3, TrunkOutput
from model.alphafold3.sampling import SeededDraws
from model.layers.cached_memory import memory_is_scarce
from model.layers.graphs import GraphedModules
from model.parallel.communication import RankGroup
from model.parallel.evoformer import MsaShard, start_outer_product_mean
from model.parallel.pair import PairShard

# free memory, in pair representations of all ranks, with which blocks may be graphs; a trunk needs a quarter
PAIRS_FOR_GRAPHS = 20
RESULTS, TOKENS, KEYS, ATOM_PAIRS = "results", "tokens", "keys of tokens", "atom pairs"


class ParallelAlphaFold3(AlphaFold3):
    """A network that all ranks of a group run together, each calling the same methods at the same time.

    Results of `predict` are the same on all ranks.

    Args:
        network: the network with its parameters, which this one takes over and changes.
        group: the ranks.
        max_graphed_tokens: tokens up to which steps are graphs, and only samples are divided.
    """

    def __init__(
        self, network: AlphaFold3, group: RankGroup, max_graphed_tokens: int = MAX_GRAPHED_TOKENS
    ) -> None:
        # the modules already exist, so the constructor of AlphaFold3 is not called
        nn.Module.__init__(self)
        self.__dict__.update(network.__dict__)
        self.group, self.max_graphed_tokens = group, max_graphed_tokens
        divided = (
            (self.diffusion_module, "diffusion_transformer", ShardedTokenTransformer),
            (self.diffusion_module.atom_attn_enc, "noisy_position_embedder", ShardedPositionEmbedder),
            (self.template_embedder, "template_pair_stack", ShardedTemplateStack),
            (self, "msa_module", ShardedMsaModule),
            (self, "pairformer_stack", ShardedPairformer),
            (self.aux_heads.pairformer_embedding, "pairformer_stack", ShardedPairformer),
        )
        for owner, name, sharded in divided:
            setattr(owner, name, sharded(getattr(owner, name), group))
        # too few blocks are called too few times
        cast(Any, self.aux_heads.pairformer_embedding.pairformer_stack).graphs_fit = False

    def own_rows(self, tokens: int) -> slice:
        """Return the rows of the pair representation that this rank has."""
        return self.group.shards(tokens).of(self.group.rank)

    def all_rows(self, x: torch.Tensor, tokens: int) -> torch.Tensor:
        """Return the rows of all tokens [N, ...], given those of this rank [n, ...]."""
        return self.group.gather(x, self.group.shards(tokens), RESULTS).wait()

    def own_samples(self, samples: int) -> slice:
        """Return the samples that this rank draws."""
        return self.group.shards(samples).of(self.group.rank)

    def all_samples(self, x: torch.Tensor, samples: int) -> torch.Tensor:
        """Return values of all samples [S, ...], given those of this rank [s, ...]."""
        return self.group.gather(x, self.group.shards(samples), RESULTS).wait()

    def own_columns(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the columns [N, n, Z] of this rank's tokens, given the rows [n, N, Z] of all ranks."""
        tokens = self.group.shards(pair.shape[1])
        columns = pair.new_empty(pair.shape[1], len(pair), pair.shape[2])
        self.group.to_columns(pair, columns, tokens, tokens, RESULTS).wait()
        return columns

    @torch.inference_mode()
    def trunk(self, inputs: AlphaFold3Inputs, draws: SeededDraws, *, cycles: int) -> TrunkOutput:
        """Compute the representations of a target, of pairs this rank's rows; see `AlphaFold3.trunk`."""
        tokens, like = len(inputs.token_mask), self.linear_z.weight
        pair_bytes = tokens**2 * self.config.pair.channels * like.element_size()
        self.group.begin(tokens, scarce_memory=like.is_cuda and memory_is_scarce(pair_bytes))
        free = torch.cuda.mem_get_info(like.device)[0] if like.is_cuda else sys.maxsize
        stack = cast(ShardedPairformer, self.pairformer_stack)
        stack.graphs_fit = self.group.least([free // pair_bytes])[0] >= PAIRS_FOR_GRAPHS
        try:
            return super().trunk(inputs, draws, cycles=cycles)
        finally:
            self.graph_error = self.graph_error or stack.graphs.error
            # their memory is needed for samples, and was not planned for another prediction
            stack.graphs.release()
            self.group.release_cached_memory()

    @torch.inference_mode()
    def sample(
        self,
        inputs: AlphaFold3Inputs,
        trunk: TrunkOutput,
        draws: SeededDraws,
        *,
        samples: int,
        progress: Callable[[int], None] | None = None,
        samples_at_once: int | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Draw structures [S, A, 3], Å, the same on all ranks; see `AlphaFold3.predict`.

        A rank without samples draws the last one, too, which takes no longer. If tokens are divided, all
        samples of a rank are drawn at once.
        """
        own = self.own_samples(samples)
        first, count = min(own.start, samples - 1), own.stop - own.start
        tokens, module = len(trunk.single), cast(Any, self.diffusion_module)
        is_divided = tokens > self.max_graphed_tokens
        module.diffusion_transformer.samples = samples if is_divided else None
        module.atom_attn_enc.noisy_position_embedder.is_divided = is_divided
        if is_divided:
            samples_at_once = None
        else:
            trunk = replace(trunk, pair=self.all_rows(trunk.pair, tokens), rows=slice(None))

        def count_step(steps: int) -> None:
            # ranks that do not communicate make progress, too
            self.group.operations += 1
            if progress is not None:
                progress(steps)

        positions = super().sample(
            inputs,
            trunk,
            draws.from_sample(first),
            samples=max(1, count),
            progress=count_step,
            samples_at_once=samples_at_once,
            **options,
        )
        self.group.release_cached_memory()
        return self.all_samples(positions[:count], samples)


class ShardedTokenTransformer(TokenTransformer):
    """The transformer over tokens, of whose queries each rank has those of its tokens.

    Args:
        transformer: the transformer with its parameters.
        group: the ranks.

    Attributes:
        samples: number of samples of all ranks, or None to run without the other ranks.
        tokens: division of the tokens.
    """

    def __init__(self, transformer: TokenTransformer, group: RankGroup) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(transformer.__dict__)
        self.group = group
        self.samples: int | None = None
        self.tokens = group.shards(0)

    def forward(
        self, x: torch.Tensor, condition: torch.Tensor, biases: tuple[torch.Tensor, ...], mask: Mask
    ) -> torch.Tensor:
        """Return the updated tokens of this rank's samples x [s, N, T], which are overwritten.

        Condition is [N, C], mask [N], and biases have this rank's queries.
        """
        if self.samples is None:
            return super().forward(x, condition, biases, mask)
        samples, tokens = self.group.shards(self.samples), self.group.shards(x.shape[1])
        self.tokens = tokens
        rows, x = tokens.of(self.group.rank), x.contiguous()
        own_samples = x[: samples.counts[self.group.rank]]
        own = x.new_empty(self.samples, tokens.counts[self.group.rank], x.shape[2])
        self.group.to_columns(own_samples, own, samples, tokens, TOKENS).wait()
        run = self._in_half_precision if self.half_precision else self._in_single_precision
        own = run(own, condition[rows], biases, None if mask is None else mask[rows])
        self.group.to_rows(own, samples, tokens, TOKENS, own_samples).wait()
        return x

    def _in_single_precision(
        self, x: torch.Tensor, condition: torch.Tensor, biases: tuple[torch.Tensor, ...], mask: Mask
    ) -> torch.Tensor:
        """Return this rank's updated tokens x [S, n, T]; same arguments as `TokenTransformer.forward`."""
        for block, bias in zip(self._token_blocks(), biases, strict=True):
            attention, transition = block.attention_pair_bias, block.conditioned_transition
            modulation = attention.layer_norm_a(condition, attention.linear_ada_out)
            normed = modulation.norm(x)
            keys = self._of_all_tokens(normed).transpose(0, 1)
            x = x + modulation.gated(attention.mha(normed, bias, keys))
            x = transition(x, transition.modulation(condition), mask)
        return x

    def _attended(
        self, mha: GatedAttention, normed: torch.Tensor, no_offset: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        """Return gated attended values [S, n, D] of this rank's tokens; see `TokenTransformer`."""
        if self.samples is None:
            return super()._attended(mha, normed, no_offset, bias)
        weights, offset, _ = mha.padded_weights()
        query, key_value, gate = weights.split([len(weights) // 4, len(weights) // 2, len(weights) // 4])
        keys = self._of_all_tokens(normed)  # [N, S, T]
        rows = self.tokens.of(self.group.rank)
        projected = keys.new_empty(*keys.shape[:2], len(weights))
        # queries and gates of other ranks' tokens are never read
        parts = projected.flatten(0, 1).split([len(query), len(key_value), len(gate)], dim=1)
        own = slice(rows.start * keys.shape[1], rows.stop * keys.shape[1])
        own_normed = keys[rows].flatten(0, 1)
        torch.addmm(offset[: len(query)], own_normed, query.T, out=parts[0][own])
        torch.mm(keys.flatten(0, 1), key_value.T, out=parts[1])
        torch.mm(own_normed, gate.T, out=parts[2][own])
        return attend(projected.transpose(0, 1), no_offset, bias, first_query=rows.start)

    def _of_all_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Gather values of this rank's tokens [S, n, C]: [N, S, C]."""
        return self.group.gather(x.transpose(0, 1), self.tokens, KEYS).wait()


class ShardedPositionEmbedder(NoisyPositionEmbedder):
    """The embedding of noisy positions, for which each rank has the pairs of its tokens.

    Args:
        embedder: the embedding with its parameters.
        group: the ranks.

    Attributes:
        is_divided: whether that is so; otherwise it has all pairs.
    """

    def __init__(self, embedder: NoisyPositionEmbedder, group: RankGroup) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(embedder.__dict__)
        self.group, self.is_divided = group, False

    def of_atoms(self, token_pair: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Return the pairs [W, Q, K, P] of tokens from the rows [n, N, P] of all ranks."""
        if not self.is_divided:
            return super().of_atoms(token_pair, query, key)
        rows = self.group.shards(token_pair.shape[1]).of(self.group.rank)
        if len(token_pair):
            pairs = super().of_atoms(token_pair, (query - rows.start).clamp(0, len(token_pair) - 1), key)
            pairs *= ((query >= rows.start) & (query < rows.stop))[..., None]
        else:
            pairs = token_pair.new_zeros(*query.shape[:2], key.shape[2], token_pair.shape[2])
        return self.group.sum(pairs, ATOM_PAIRS)


class ShardedPairformerBlock(nn.Module):
    """A pairformer block on a rank's rows, whose communication ends before it returns.

    Args:
        block: the block with its parameters.
        group: the ranks.
    """

    def __init__(self, block: PairformerBlock, group: RankGroup) -> None:
        super().__init__()
        self.block, self.group = block, group

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, token_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update single [N, S] and this rank's rows of pair [n, N, C] in place, and return them."""
        block, shard = self.block, PairShard(self.group, len(single), pair_mask)
        own_mask = None if token_mask is None else token_mask[shard.rows]
        columns, attention = _update_pairs(block.pair_stack, pair, shard), block.attn_pair_bias
        bias = shard.gather_column_bias(attention.pair_bias(columns, own_mask))
        rows = shard.to_rows(columns, pair)
        # overlaps with the exchange
        single += attention.update(single, bias.wait())
        block.single_transition(single, token_mask)
        rows.wait()
        return single, pair


class ShardedPairformer(nn.Module):
    """Pairformer blocks with the pair representation divided by rows; see `Pairformer`.

    If the group's communication can be captured, blocks are replayed as CUDA graphs; see `ParallelTrunk`.

    Attributes:
        graphs: the blocks.
        graphs_fit: whether memory allows graphs; the same on all ranks.
    """

    def __init__(self, stack: Pairformer, group: RankGroup) -> None:
        super().__init__()
        self.blocks, self.group, self.dtype, self.graphs_fit = stack.blocks, group, stack.dtype, True
        self.graphs = GraphedModules(
            [ShardedPairformerBlock(block, group) for block in cast(Iterable[PairformerBlock], self.blocks)],
            max_residues=sys.maxsize,
            share_error=group.first_error,
        )

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, token_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update single [N, S] and this rank's rows of pair [n, N, C], which are overwritten."""
        tensors = single, pair, token_mask, pair_mask
        if self.graphs_fit and self.group.can_be_captured and self.graphs.enabled:
            single, pair = self.graphs(len(single), *tensors)
        else:
            for block in self.graphs.modules:
                block(*tensors)
        return single, pair


class ShardedMsaModule(nn.Module):
    """The MSA module with both representations divided by rows; see `MsaModule`."""

    def __init__(self, module: MsaModule, group: RankGroup) -> None:
        super().__init__()
        self.blocks, self.group = module.blocks, group

    def forward(self, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, pair_mask: Mask) -> torch.Tensor:
        """Update this rank's rows of pair [n, N, C] in place, and return them; msa [R, N, M] is whole."""
        shard = PairShard(self.group, msa.shape[1], pair_mask)
        alignment = MsaShard(shard, len(msa), msa_mask)
        rows = msa[alignment.rows].clone()
        for block in cast(Iterable[MsaBlock], self.blocks):
            start_outer_product_mean(block.outer_product_mean, alignment, alignment.to_columns(rows))(pair)
            averaging, transition = block.msa_att_row, block.msa_transition
            if averaging is not None and transition is not None:
                weights = averaging.pair_bias(pair, shard.mask).softmax(dim=-1)
                averaging.add_averages(rows, shard.gather_bias(weights).wait())
                transition(rows, alignment.row_mask)
            shard.to_rows(_update_pairs(block.pair_stack, pair, shard), pair).wait()
        return pair


class ShardedTemplateStack(nn.Module):
    """The blocks of one template with its pair representation divided by rows; see `TemplatePairStack`."""

    def __init__(self, stack: TemplatePairStack, group: RankGroup) -> None:
        super().__init__()
        self.blocks, self.layer_norm, self.group = stack.blocks, stack.layer_norm, group

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Return the normalised update of this rank's rows of pair [n, N, T], which are overwritten."""
        shard = PairShard(self.group, pair.shape[1], mask)
        for block in cast(Iterable[PairBlock], self.blocks):
            shard.to_rows(_update_pairs(block, pair, shard), pair).wait()
        return self.layer_norm(pair)


def _update_pairs(block: PairBlock, pair: torch.Tensor, shard: PairShard) -> torch.Tensor:
    """Run a block on this rank's rows of pair [n, N, C]; return the updated columns [N, n, C]."""
    shard.multiply(block.tri_mul_out, pair)
    shard.multiply(block.tri_mul_in, pair)
    columns = shard.attend_starting(block.tri_att_start, pair)
    shard.attend_ending(block.tri_att_end, columns)
    return block.pair_transition(columns, None if shard.mask is None else shard.mask.T)
