"""Operations on a pair representation [N, N, C] whose rows are divided among ranks.

Between operations each rank has the rows of its residues. Attention around the ending node needs whole
columns, so the division changes for it and back.
"""

from functools import cached_property

import torch

from model.alphafold2.modules.evoformer import Mask, TriangleAttention, TriangleMultiplication
from model.layers.common import LayerNorm
from model.parallel.communication import Pending, RankGroup, Shards, contiguous_part
from model.parallel.triangle import multiply_factors

BIAS = "pair bias"


class PairShard:
    """The operations of one rank on its rows of a pair representation.

    Args:
        group: the ranks.
        length: number of residues N.
        mask: [N, N], symmetric, or None for all ones.
    """

    def __init__(self, group: RankGroup, length: int, mask: Mask) -> None:
        self.group = group
        self.residues: Shards = group.shards(length)
        self.rows: slice = self.residues.of(group.rank)
        self.whole_mask = mask

    @cached_property
    def mask(self) -> Mask:
        """The mask of this rank's rows, and of its columns: [n, N]."""
        return None if self.whole_mask is None else self.whole_mask[self.rows].contiguous()

    def start_bias(self, rows: torch.Tensor, norm: LayerNorm, weights: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to compute the bias of attention from the rows of all ranks.

        Args:
            rows: [n, N, C], this rank's queries.
            norm: normalisation of the rows.
            weights: [C, H].

        Returns:
            [H, N, N], or with more keys as the kernels return it.
        """
        return self.gather_bias(norm.kernels.rows.pair_bias(rows, norm.scale, norm.offset, weights))

    def gather_bias(self, own_bias: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to gather a bias [H, n, N] of this rank's rows: [H, N, N]."""
        gathered = self.group.gather(own_bias.transpose(0, 1), self.residues, BIAS)
        return gathered.then(lambda bias: bias.transpose(0, 1))

    def start_column_bias(
        self, columns: torch.Tensor, norm: LayerNorm, weights: torch.Tensor
    ) -> Pending[torch.Tensor]:
        """Start to compute the bias of attention from columns [N, n, C] of all ranks; see `start_bias`."""
        own_bias = norm.kernels.rows.pair_bias(columns, norm.scale, norm.offset, weights)  # [H, N, n]
        return self.gather_column_bias(own_bias[:, :, : columns.shape[1]])

    def gather_column_bias(self, own_bias: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to gather a bias [H, N, n] of this rank's columns: [H, N, N]."""
        own_bias = contiguous_part(own_bias)
        gathered = self.group.gather_blocks(own_bias, 2, self.residues, BIAS)

        def join(blocks: dict[int, torch.Tensor]) -> torch.Tensor:
            blocks[self.group.rank] = own_bias
            return torch.cat([blocks[rank] for rank in sorted(blocks)], dim=2)

        return gathered.then(join)

    def multiply(self, module: TriangleMultiplication, pair: torch.Tensor) -> None:
        """Add triangle multiplication to pair [n, N, C] in place."""
        kernels = module.kernels.rows
        factors = kernels.project_rows(pair, module.operands, self.mask)
        left, right = factors.split(len(factors) // 2)
        product = multiply_factors(self.group, self.residues, left, right, outgoing=module.outgoing)
        del factors, left, right
        kernels.add_product(pair, product, module.operands)

    def attend_starting(
        self, module: TriangleAttention, pair: torch.Tensor, bias: Pending[torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Add triangle attention around the starting node to pair, and exchange its rows for columns.

        If there are several pieces, one is exchanged while the next one attends.

        Args:
            module: the attention.
            pair: [n, N, C], changed in place.
            bias: bias of the attention, if `start_bias` was called before.

        Returns:
            [N, n, C], this rank's columns.
        """
        residues, rank, pieces = self.residues, self.group.rank, self.group.pieces
        if bias is None:
            bias = self.start_bias(pair, module.query_norm, module.pair_bias)
        columns = pair.new_empty(residues.total, residues.counts[rank], pair.shape[2])
        gathered_bias, exchanges = bias.wait(), []
        for index in range(pieces):
            rows = Shards(len(pair), pieces).of(index)
            if rows.start < rows.stop:
                mask = None if self.mask is None else self.mask[rows]
                module.kernels.add_attention(pair[rows], module.operands, mask, gathered_bias)
            exchanges.append(
                self.group.to_columns(pair, columns, residues, residues, "pair columns", (index, pieces))
            )
        for exchange in exchanges:
            exchange.wait()
        return columns

    def attend_ending(self, module: TriangleAttention, columns: torch.Tensor) -> None:
        """Add triangle attention around the ending node to columns [N, n, C] in place."""
        rows = columns.transpose(0, 1)  # [n, N, C], of the transposed pair representation
        if module.transposed_bias:
            bias = self.start_bias(rows, module.query_norm, module.pair_bias)
        else:
            bias = self.start_column_bias(columns, module.query_norm, module.pair_bias)
        module.kernels.add_attention(rows, module.operands, self.mask, bias.wait())

    def to_rows(self, columns: torch.Tensor, pair: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to exchange columns [N, n, C] for rows, which are written to pair [n, N, C]."""
        return self.group.to_rows(columns, self.residues, self.residues, "pair rows", pair)
