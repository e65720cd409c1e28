"""The extra MSA and Evoformer stacks, with both representations divided among ranks.

Each rank has whole rows of the MSA for attention along rows, and whole columns for attention along columns.
The pair representation is divided by rows (`model.parallel.pair`), but the last operations of a block work on
its columns. Exchanging these for rows overlaps with the next block's operations on the MSA; exchanging MSA
columns for rows overlaps with attention on pairs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from cuda.fused.outer_product_mean.reference import shared_counts
from model.alphafold2.modules.evoformer import EvoformerBlock, Mask, MsaColumnAttention, OuterProductMean
from model.parallel.communication import Pending, RankGroup, Shards
from model.parallel.pair import PairShard


class MsaShard:
    """The operations of one rank on its part of an MSA representation.

    Args:
        pair: the rank's part of the pair representation.
        num_sequences: number of sequences S.
        mask: [S, N], or None for all ones.
    """

    def __init__(self, pair: PairShard, num_sequences: int, mask: Mask) -> None:
        self.group: RankGroup = pair.group
        self.pair = pair
        self.sequences = self.group.shards(num_sequences)
        self.rows = self.sequences.of(self.group.rank)
        self.mask = mask
        self.row_mask = None if mask is None else mask[self.rows].contiguous()
        self.column_mask = None if mask is None else mask[:, pair.rows].contiguous()

    def attend_rows(self, block: EvoformerBlock, rows: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Add attention along rows [s, N, C], and exchange them for columns [S, n, C].

        If there are several pieces, one is exchanged while the next one attends.
        """
        module, residues = block.msa_row_attention_with_pair_bias, self.pair.residues
        pieces = self.group.pieces
        columns = rows.new_empty(self.sequences.total, residues.counts[self.group.rank], rows.shape[2])
        exchanges = []
        for index in range(pieces):
            piece = Shards(len(rows), pieces).of(index)
            if piece.start < piece.stop:
                mask = None if self.row_mask is None else self.row_mask[piece]
                module.kernels.add_attention(rows[piece], module.operands, mask, bias)
            exchanges.append(
                self.group.to_columns(rows, columns, self.sequences, residues, "MSA columns", (index, pieces))
            )
        for exchange in exchanges:
            exchange.wait()
        return columns

    def attend_columns(self, block: EvoformerBlock, columns: torch.Tensor) -> None:
        """Add attention along columns and the transition to columns [S, n, C]."""
        attention = block.get_submodule(block.column_attention_name)
        cast(MsaColumnAttention, attention)(columns, self.column_mask)
        block.msa_transition(columns)

    def to_columns(self, rows: torch.Tensor) -> torch.Tensor:
        """Exchange rows [s, N, C] for columns [S, n, C]."""
        residues = self.pair.residues
        columns = rows.new_empty(self.sequences.total, residues.counts[self.group.rank], rows.shape[2])
        self.group.to_columns(rows, columns, self.sequences, residues, "MSA columns").wait()
        return columns

    def to_rows(self, columns: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to exchange columns [S, n, C] for rows [s, N, C]."""
        return self.group.to_rows(columns, self.sequences, self.pair.residues, "MSA rows")


@dataclass
class _State:
    """The representations that a block works on; their communication may be in progress.

    Args:
        rows: the MSA's rows [s, N, C] of this rank, or None if it is in columns.
        columns: the MSA's columns [S, n, C] of this rank, or None if it is in rows.
        pair: this rank's rows of the pair representation [n, N, Z].
        bias: bias of the block's attention along MSA rows, or None if it is still to be computed.
    """

    rows: Pending[torch.Tensor] | None
    columns: torch.Tensor | None
    pair: Pending[torch.Tensor]
    bias: Pending[torch.Tensor] | None = None


def run_stack(
    blocks: Iterable[EvoformerBlock],
    msa_shard: MsaShard,
    msa: Pending[torch.Tensor],
    pair: torch.Tensor,
    *,
    keep_msa: bool = True,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Run the blocks of a stack.

    Args:
        blocks: blocks of the stack.
        msa_shard: operations on this rank's part of the MSA representation.
        msa: [s, N, C], this rank's rows, whose memory is released early unless the caller refers to it.
        pair: [n, N, Z], this rank's rows, changed in place.
        keep_msa: whether the MSA representation is needed afterwards.

    Returns:
        The new rows [s, N, C], or None if they are not needed, and pair.
    """
    all_blocks = list(blocks)
    state = _State(msa, None, Pending.done(pair))
    del msa
    for block, next_block in zip(all_blocks, [*all_blocks[1:], None], strict=True):
        msa_needed = keep_msa or next_block is not None
        if block.outer_product_first:
            _run_outer_product_first(block, msa_shard, state, stays_in_columns=next_block is not None)
            if not msa_needed:
                state.columns = None
        else:
            _run_block(block, next_block, msa_shard, state, msa_needed=msa_needed)
    state.pair.wait()
    return None if not keep_msa or state.rows is None else state.rows.wait(), pair


class ShardedBlock(nn.Module):
    """A block on a rank's rows, whose communication ends before it returns, as a CUDA graph requires.

    Args:
        block: the block with its parameters.
        group: the ranks.
    """

    def __init__(self, block: EvoformerBlock, group: RankGroup) -> None:
        super().__init__()
        self.block, self.group = block, group

    def forward(
        self, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, pair_mask: Mask, sequences: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update msa [s, N, C] and pair [n, N, Z] in place and return them.

        Args:
            msa: this rank's rows.
            pair: this rank's rows.
            msa_mask: [S, N].
            pair_mask: [N, N].
            sequences: [S, 0], whose shape tells the number of sequences of all ranks.
        """
        shard = MsaShard(PairShard(self.group, pair.shape[1], pair_mask), len(sequences), msa_mask)
        rows, pair = run_stack([self.block], shard, Pending.done(msa), pair)
        assert rows is not None
        return msa.copy_(rows), pair


def _run_block(
    block: EvoformerBlock,
    next_block: EvoformerBlock | None,
    shard: MsaShard,
    state: _State,
    *,
    msa_needed: bool,
) -> None:
    """Run a block; the MSA is exchanged for rows at the end if it is still needed."""
    columns = _attend(block, shard, state)
    finish_outer_product_mean = start_outer_product_mean(block.outer_product_mean, shard, columns)
    pair = state.pair.wait()
    finish_outer_product_mean(pair)
    # free the factors
    del finish_outer_product_mean
    bias = multiply_pairs(block, shard.pair, pair)
    # overlaps with attention
    pending_rows = shard.to_rows(columns) if msa_needed else None
    del columns
    pair_columns = shard.pair.attend_starting(block.triangle_attention_starting_node, pair, bias)
    # wait early, to release the columns
    state.rows = None if pending_rows is None else Pending.done(pending_rows.wait())
    finish_pairs(block, shard.pair, pair_columns)
    if next_block is not None:
        state.bias = _start_column_bias(next_block, shard.pair, pair_columns)
    # overlaps with the next block's operations on the MSA
    state.pair = shard.pair.to_rows(pair_columns, pair)


def _run_outer_product_first(
    block: EvoformerBlock, shard: MsaShard, state: _State, *, stays_in_columns: bool
) -> None:
    """Run a block of AlphaFold-Multimer; the MSA stays in columns between such blocks."""
    columns, state.columns = state.columns, None
    if columns is None:
        assert state.rows is not None
        rows = state.rows.wait()
        columns, state.rows = shard.to_columns(rows), Pending.done(rows)
        del rows
        finish_outer_product_mean = start_outer_product_mean(block.outer_product_mean, shard, columns)
    else:
        finish_outer_product_mean = start_outer_product_mean(block.outer_product_mean, shard, columns)
        # overlaps with the outer product mean
        state.rows = shard.to_rows(columns)
    del columns
    pair = state.pair.wait()
    finish_outer_product_mean(pair)
    # free the factors
    del finish_outer_product_mean
    attention = block.msa_row_attention_with_pair_bias
    state.bias = shard.pair.start_bias(pair, attention.pair_norm, attention.pair_bias)
    state.columns = _attend(block, shard, state)
    bias = multiply_pairs(block, shard.pair, pair)
    if not stays_in_columns:
        state.rows, state.columns = shard.to_rows(state.columns), None
    pair_columns = shard.pair.attend_starting(block.triangle_attention_starting_node, pair, bias)
    finish_pairs(block, shard.pair, pair_columns)
    state.pair = shard.pair.to_rows(pair_columns, pair)


def _attend(block: EvoformerBlock, shard: MsaShard, state: _State) -> torch.Tensor:
    """Run the attentions and the transition of the MSA representation, and return its columns [S, n, C]."""
    if state.bias is None:
        attention = block.msa_row_attention_with_pair_bias
        pair = state.pair.wait()
        state.pair = Pending.done(pair)
        state.bias = shard.pair.start_bias(pair, attention.pair_norm, attention.pair_bias)
    pending_rows, state.rows = state.rows, None
    pending_bias, state.bias = state.bias, None
    assert pending_rows is not None
    columns = shard.attend_rows(block, pending_rows.wait(), pending_bias.wait())
    shard.attend_columns(block, columns)
    return columns


def _start_column_bias(
    block: EvoformerBlock, shard: PairShard, pair_columns: torch.Tensor
) -> Pending[torch.Tensor]:
    """Start to compute the bias of a block's attention along MSA rows from columns of pairs [N, n, Z]."""
    attention = block.msa_row_attention_with_pair_bias
    return shard.start_column_bias(pair_columns, attention.pair_norm, attention.pair_bias)


def start_outer_product_mean(
    module: OuterProductMean, shard: MsaShard, columns: torch.Tensor
) -> Callable[[torch.Tensor], None]:
    """Start to compute the outer product mean.

    Args:
        module: its parameters.
        shard: operations on the MSA representation.
        columns: [S, n, C], this rank's columns.

    Returns:
        A function that adds the update to this rank's rows of pairs [n, N, Z]. It begins with the residues of
        this rank, while the factors of the others are received.
    """
    residues = shard.pair.residues
    kernels, weights = module.kernels.rows, module.operands
    left, right = kernels.project_residues(columns, weights, shard.column_mask)
    gathered = shard.group.gather_blocks(right, 1, residues, "outer product mean")

    def finish(pair: torch.Tensor) -> None:
        counts = shared_counts(shard.mask, shard.pair.rows)

        def add(rank: int, factor: torch.Tensor) -> None:
            part = residues.of(rank)
            if len(pair) and part.start < part.stop:
                part_counts = None if counts is None else counts[:, part]
                kernels.add_contraction(pair[:, part], left, factor, weights, part_counts)

        add(shard.group.rank, right)
        for rank, factor in gathered.wait().items():
            add(rank, factor)

    return finish


def multiply_pairs(block: EvoformerBlock, shard: PairShard, pair: torch.Tensor) -> Pending[torch.Tensor]:
    """Run a block's triangle multiplications on pairs [n, N, Z]; start the bias of the next attention."""
    shard.multiply(block.triangle_multiplication_outgoing, pair)
    shard.multiply(block.triangle_multiplication_incoming, pair)
    attention = block.triangle_attention_starting_node
    return shard.start_bias(pair, attention.query_norm, attention.pair_bias)


def finish_pairs(block: EvoformerBlock, shard: PairShard, pair_columns: torch.Tensor) -> None:
    """Run a block's last operations on pairs, in columns [N, n, Z]."""
    shard.attend_ending(block.triangle_attention_ending_node, pair_columns)
    block.pair_transition(pair_columns)
