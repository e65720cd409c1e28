"""An all-atom network whose predictions are divided among ranks, with the same interface as on one device.

The trunk is divided by rows of the pair representation, which all ranks have whole afterwards. Each rank then
draws and scores some of the samples. What is small (embedded atoms, the single representation) is computed by
every rank.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import nn

from model.alphafold3.blocks import MsaBlock, MsaModule, PairBlock, Pairformer, PairformerBlock
from model.alphafold3.confidence import Confidence
from model.alphafold3.embedding import TemplatePairStack
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import Mask
from model.alphafold3.network import AlphaFold3, Samples, Trunk
from model.alphafold3.sampling import Draws
from model.layers.cached_memory import memory_is_scarce
from model.parallel.communication import RankGroup
from model.parallel.evoformer import MsaShard, start_outer_product_mean
from model.parallel.pair import PairShard

RESULTS = "results"


class ParallelAlphaFold3(AlphaFold3):
    """A network that all ranks of a group run together, each calling the same methods at the same time.

    Results of `predict` are the same on all ranks.

    Args:
        network: the network with its parameters, which this one takes over and changes.
        group: the ranks.
    """

    def __init__(self, network: AlphaFold3, group: RankGroup) -> None:
        # the modules already exist, so the constructor of AlphaFold3 is not called
        nn.Module.__init__(self)
        self.__dict__.update(network.__dict__)
        self.group = group
        divided = (
            (self.template_embedder, "template_pair_stack", ShardedTemplateStack),
            (self, "msa_module", ShardedMsaModule),
            (self, "pairformer_stack", ShardedPairformer),
        )
        for owner, name, sharded in divided:
            setattr(owner, name, sharded(getattr(owner, name), group))

    @torch.inference_mode()
    def predict(self, inputs: AlphaFold3Inputs, draws: Draws, *, samples: int = 5, **options: Any) -> Samples:
        """Predict structures of a target and score them; see `AlphaFold3.predict`."""
        own = super().predict(inputs, draws, samples=samples, **options)
        shards = self.group.shards(samples)
        count = shards.counts[self.group.rank]

        def gather(values: torch.Tensor) -> torch.Tensor:
            return self.group.gather(values[:count], shards, RESULTS).wait()

        names = [field.name for field in fields(Confidence) if field.name != "chains"]
        scores: dict[str, Any] = {
            name: gather(torch.stack([getattr(x, name) for x in own.confidences])) for name in names
        }
        confidences = (
            replace(own.confidences[0], **{name: scores[name][sample] for name in names})
            for sample in range(samples)
        )
        return Samples(gather(own.positions), tuple(confidences), own.contacts)

    def own_rows(self, tokens: int) -> slice:
        """Return the rows of the pair representation that this rank computes."""
        return self.group.shards(tokens).of(self.group.rank)

    @torch.inference_mode()
    def trunk(self, inputs: AlphaFold3Inputs, draws: Draws, *, cycles: int) -> Trunk:
        """Compute the representations of a target, the same on all ranks; see `AlphaFold3.trunk`."""
        tokens, like = len(inputs.token_mask), self.linear_z.weight
        pair_bytes = tokens**2 * self.config.pair.channels * like.element_size()
        self.group.begin(tokens, scarce_memory=like.is_cuda and memory_is_scarce(pair_bytes))
        trunk = super().trunk(inputs, draws, cycles=cycles)
        pair = self.group.gather(trunk.pair, self.group.shards(tokens), RESULTS).wait()
        trunk = replace(trunk, pair=pair)
        self.group.release_cached_memory()
        return trunk

    @torch.inference_mode()
    def sample(
        self,
        inputs: AlphaFold3Inputs,
        trunk: Trunk,
        draws: Draws,
        *,
        samples: int,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Draw this rank's structures [s, A, 3], Å; see `AlphaFold3.predict`.

        A rank without samples draws the last one, too, which takes no longer.
        """
        own = self.group.shards(samples).of(self.group.rank)
        first = min(own.start, samples - 1)

        def count_step(steps: int) -> None:
            # ranks that do not communicate make progress, too
            self.group.operations += 1
            if progress is not None:
                progress(steps)

        draws, count = draws.from_sample(first), max(1, own.stop - first)
        return super().sample(inputs, trunk, draws, samples=count, progress=count_step, **options)


class ShardedPairformer(nn.Module):
    """Pairformer blocks with the pair representation divided by rows; see `Pairformer`."""

    def __init__(self, stack: Pairformer, group: RankGroup) -> None:
        super().__init__()
        self.blocks, self.group = stack.blocks, group

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, token_mask: Mask, pair_mask: Mask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update single [N, S] and this rank's rows of pair [n, N, C] in place, and return them."""
        shard = PairShard(self.group, len(single), pair_mask)
        own_mask = None if token_mask is None else token_mask[shard.rows]
        for block in cast(Iterable[PairformerBlock], self.blocks):
            columns, attention = _update_pairs(block.pair_stack, pair, shard), block.attn_pair_bias
            bias = shard.gather_column_bias(attention.pair_bias(columns, own_mask))
            rows = shard.to_rows(columns, pair)
            # overlaps with the exchange
            single += attention.update(single, bias.wait())
            block.single_transition(single, token_mask)
            rows.wait()
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
