"""The extra MSA and Evoformer stacks on ranks that each have a part of both representations.

Each rank has whole rows of the MSA for attention along rows, and whole columns for attention along columns.
The pair representation is divided by rows (`model.parallel.pair`). Work on pairs hides the MSA's way back to
rows.
"""

from collections.abc import Iterable
from typing import cast

import torch

from cuda.fused.outer_product_mean.reference import shared_counts
from model.evoformer import EvoformerBlock, Mask, MsaColumnAttention
from model.parallel.communication import Pending, RankGroup
from model.parallel.pair import PairShard


class MsaShard:
    """The operations of one rank on its part of an MSA representation.

    Args:
        pair: the rank's part of the pair representation.
        sequences: number of sequences S.
        mask: [S, N], or None for all ones.
    """

    def __init__(self, pair: PairShard, sequences: int, mask: Mask) -> None:
        self.group: RankGroup = pair.group
        self.pair = pair
        self.sequences = self.group.shards(sequences)
        self.rows = self.sequences.of(self.group.rank)
        self.mask = mask
        self.row_mask = None if mask is None else mask[self.rows].contiguous()
        self.column_mask = None if mask is None else mask[:, pair.rows].contiguous()

    def to_columns(self, rows: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to exchange rows [s, N, C] for columns [S, n, C]."""
        return self.group.exchange(rows, 1, self.pair.residues, 0, self.sequences, "MSA columns")

    def to_rows(self, columns: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to exchange columns [S, n, C] for rows [s, N, C]."""
        return self.group.exchange(columns, 0, self.sequences, 1, self.pair.residues, "MSA rows")


def run_stack(
    blocks: Iterable[EvoformerBlock],
    msa_shard: MsaShard,
    msa: torch.Tensor,
    pair: torch.Tensor,
    *,
    keep_msa: bool = True,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Run the blocks of a stack.

    Args:
        blocks: blocks of the stack.
        msa_shard: operations on this rank's part of the MSA representation.
        msa: [s, N, C], this rank's rows.
        pair: [n, N, Z], this rank's rows.
        keep_msa: whether the MSA representation is needed afterwards.

    Returns:
        The new rows [s, N, C], or None if they are not needed, and [n, N, Z].
    """
    remaining = list(blocks)
    rows: Pending[torch.Tensor] | None = Pending(lambda: None, lambda: msa)
    columns = msa_shard.to_columns(msa).wait() if remaining[0].outer_product_first else None
    for index, block in enumerate(remaining):
        is_last = index + 1 == len(remaining)
        if columns is not None:
            # the MSA stays in columns between blocks that start with the outer product mean
            columns, pair = _run_outer_product_first(block, msa_shard, columns, pair)
            if is_last:
                rows = msa_shard.to_rows(columns) if keep_msa else None
        else:
            assert rows is not None
            rows, pair = _run_block(block, msa_shard, rows, pair, msa_needed=keep_msa or not is_last)
    return None if rows is None else rows.wait(), pair


def _run_block(
    block: EvoformerBlock,
    shard: MsaShard,
    pending_rows: Pending[torch.Tensor],
    pair: torch.Tensor,
    *,
    msa_needed: bool,
) -> tuple[Pending[torch.Tensor] | None, torch.Tensor]:
    """Run a block, and start to return the MSA to rows if it is needed afterwards."""
    columns = _attend(block, shard, pending_rows, pair)
    outer = start_outer_product_mean(block, shard, columns, pair)
    # runs behind all operations on pairs
    returning = shard.to_rows(columns) if msa_needed else None
    del columns
    outer.wait()
    return returning, run_pair_operations(block, shard.pair, pair)


def _run_outer_product_first(
    block: EvoformerBlock, shard: MsaShard, columns: torch.Tensor, pair: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a block of AlphaFold-Multimer; return the MSA's new columns and the new rows of pairs."""
    outer = start_outer_product_mean(block, shard, columns, pair)
    # runs behind the outer product mean
    rows = shard.to_rows(columns)
    outer.wait()
    columns = _attend(block, shard, rows, pair)
    return columns, run_pair_operations(block, shard.pair, pair)


def _attend(
    block: EvoformerBlock, shard: MsaShard, pending_rows: Pending[torch.Tensor], pair: torch.Tensor
) -> torch.Tensor:
    """Run the attentions and the transition of the MSA representation, and return its columns [S, n, C]."""
    attention = block.msa_row_attention_with_pair_bias
    bias = shard.pair.start_bias(pair, attention.feat_2d_norm, attention.feat_2d_weights)
    rows = pending_rows.wait()
    attention.kernels.add_attention(rows, attention.operands, shard.row_mask, bias.wait())
    columns = shard.to_columns(rows).wait()
    del rows, bias
    cast(MsaColumnAttention, block.get_submodule(block.column_attention_name))(columns, shard.column_mask)
    block.msa_transition(columns)
    return columns


def start_outer_product_mean(
    block: EvoformerBlock, shard: MsaShard, columns: torch.Tensor, pair: torch.Tensor
) -> Pending[torch.Tensor]:
    """Start to compute the outer product mean.

    Args:
        block: its block.
        shard: operations on the MSA representation.
        columns: [S, n, C], this rank's columns.
        pair: [n, N, Z], this rank's rows of the pair representation.

    Returns:
        pair, to which the update is added in place.
    """
    module, residues = block.outer_product_mean, shard.pair.residues
    kernels, weights = module.kernels.rows, module.operands
    left, right = kernels.project_residues(columns, weights, shard.column_mask)
    gathered = shard.group.gather_blocks(right, 1, residues, "outer product mean")
    counts = shared_counts(shard.mask, shard.pair.rows)
    return gathered.then(
        lambda blocks: kernels.add_contraction(pair, left, torch.cat(blocks, dim=1), weights, counts)
    )


def run_pair_operations(block: EvoformerBlock, shard: PairShard, pair: torch.Tensor) -> torch.Tensor:
    """Run a block's operations on pairs; return this rank's new rows [n, N, Z], in place of the old ones."""
    shard.multiply(block.triangle_multiplication_outgoing, pair)
    shard.multiply(block.triangle_multiplication_incoming, pair)
    shard.attend_starting(block.triangle_attention_starting_node, pair)
    return shard.attend_ending(block.triangle_attention_ending_node, pair, block.pair_transition)
