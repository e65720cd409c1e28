"""Operations on a pair representation [N, N, C] whose rows are divided among ranks.

Between operations each rank has the rows of its residues. Attention around the ending node needs whole
columns, so the division changes for it and back.
"""

from collections.abc import Callable
from functools import cached_property

import torch

from model.evoformer import Mask, TriangleAttention, TriangleMultiplication
from model.layers import LayerNorm
from model.parallel.communication import Pending, RankGroup, Shards
from model.parallel.triangle import multiply_factors


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
        self._mask = mask

    @cached_property
    def mask(self) -> Mask:
        """The mask of this rank's rows, and of its columns: [n, N]."""
        return None if self._mask is None else self._mask[self.rows].contiguous()

    def start_bias(self, rows: torch.Tensor, norm: LayerNorm, weights: torch.Tensor) -> Pending[torch.Tensor]:
        """Start to compute the bias of attention from the rows of all ranks.

        Args:
            rows: [n, N, C], this rank's queries.
            norm: normalisation of the rows.
            weights: [C, H].

        Returns:
            [H, N, N], or with more keys as the kernels return it.
        """
        own = norm.kernels.rows.pair_bias(rows, norm.scale, norm.offset, weights)  # [H, n, N]
        queries_first = own.transpose(0, 1).contiguous()
        gathered = self.group.gather(queries_first, self.residues, "pair bias")
        return gathered.then(lambda bias: bias.transpose(0, 1))

    def multiply(self, module: TriangleMultiplication, pair: torch.Tensor) -> None:
        """Add triangle multiplication to pair [n, N, C] in place."""
        kernels = module.kernels.rows
        factors = kernels.project_rows(pair, module.operands, self.mask)
        left, right = factors.split(len(factors) // 2)
        product = multiply_factors(self.group, self.residues, left, right, outgoing=module.outgoing)
        del factors, left, right
        kernels.add_product(pair, product, module.operands)

    def attend_starting(self, module: TriangleAttention, pair: torch.Tensor) -> None:
        """Add triangle attention around the starting node to pair [n, N, C] in place."""
        bias = self.start_bias(pair, module.query_norm, module.feat_2d_weights)
        module.kernels.add_attention(pair, module.operands, self.mask, bias.wait())

    def attend_ending(
        self,
        module: TriangleAttention,
        pair: torch.Tensor,
        transition: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Add triangle attention around the ending node, and then optionally a transition.

        Args:
            module: the attention.
            pair: [n, N, C], whose memory is no longer needed.
            transition: changes positions [..., C] in place.

        Returns:
            The new rows [n, N, C].
        """
        residues = self.residues
        columns = self.group.exchange(pair, 1, residues, 0, residues, "pair columns").wait()  # [N, n, C]
        rows = columns.transpose(0, 1)  # [n, N, C], of the transposed pair representation
        bias = self.start_bias(rows, module.query_norm, module.feat_2d_weights)
        module.kernels.add_attention(rows, module.operands, self.mask, bias.wait())
        if transition is not None:
            transition(columns)
        return self.group.exchange(columns, 0, residues, 1, residues, "pair rows").wait()
