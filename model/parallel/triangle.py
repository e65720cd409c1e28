"""The product of triangle multiplication, of factors whose rows are divided among ranks.

With N residues and M channels, and counted in elements of an [M, N, N] factor, each of P ranks receives

    rows:      (P - 1) / P: all rows of the right factor for outgoing edges, partial sums for incoming ones
    channels:  3 (P - 1) / P²: both factors divided by channels instead of rows, and the product back by rows

Rows are cheaper for two ranks, both cost the same for three, and channels are cheaper from four ranks on. The
channels are processed in as many groups as the ranks exchange pieces: communication of some groups runs while
another group is multiplied.
"""

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

import torch

from model.parallel.communication import Pending, RankGroup, Shards, exchange_pieces

T = TypeVar("T")

# largest number of ranks among which the product is divided by rows
MAX_RANKS_BY_ROWS = 3
# groups whose communication is started before the first one is waited for
GROUPS_IN_FLIGHT = 3
KIND = "triangle multiplication"


def multiply_factors(
    group: RankGroup,
    residues: Shards,
    left: torch.Tensor,
    right: torch.Tensor,
    *,
    outgoing: bool,
    by_channels: bool | None = None,
) -> torch.Tensor:
    """Compute Σ_k left[i, k] right[j, k], or Σ_k right[k, i] left[k, j] when incoming, for rows i of a rank.

    Args:
        group: the ranks.
        residues: division of the rows.
        left: [M, n, K], this rank's rows of the left factor; columns past the last residue are 0.
        right: [M, n, K].
        outgoing: whether edges are outgoing.
        by_channels: divide the work by channels instead of rows; None for the better choice for the group.

    Returns:
        [M, n, K]; columns past the last residue are undefined.
    """
    if by_channels is None:
        by_channels = group.size > MAX_RANKS_BY_ROWS
    if by_channels:
        return _multiply_by_channels(group, residues, left, right, outgoing)
    multiply = _multiply_with_gathered_rows if outgoing else _multiply_partial_sums
    return multiply(group, residues, left, right)


def exchanged_elements(ranks: int, length: int, channels: int) -> int:
    """Estimate the maximum number of elements that `multiply_factors` allocates for its exchanges."""
    if ranks == 1:
        return 0
    groups, rows = exchange_pieces(length, ranks), Shards(length, ranks).max_count
    group_channels, in_flight = -(-channels // groups), min(GROUPS_IN_FLIGHT, groups)
    if ranks <= MAX_RANKS_BY_ROWS:
        # rows of the other ranks, and further partial sums
        return in_flight * group_channels * (length - rows + (ranks - 2) * rows) * length
    # both factors of a rank's channels, received and joined, those of the next groups, and products to send
    rank_channels = Shards(group_channels, ranks).max_count
    return 4 * in_flight * rank_channels * length**2 + channels * rows * length


def _channel_groups(channels: int, groups: int) -> list[slice]:
    return [part for part in Shards(channels, groups).slices if part.start < part.stop]


def _multiply_with_gathered_rows(
    group: RankGroup, residues: Shards, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """Multiply this rank's rows of the left factor with all rows of the right one."""
    product, parts = torch.empty_like(left), _channel_groups(len(left), group.pieces)
    gathered = (group.gather_blocks(right[part], 1, residues, KIND) for part in parts)
    for part, pending in zip(parts, _run_ahead(gathered), strict=True):

        def multiply(rank: int, rows: torch.Tensor, part: slice = part) -> None:
            torch.bmm(left[part], rows.transpose(1, 2), out=product[part, :, residues.of(rank)])

        multiply(group.rank, right[part])
        gathered_rows = pending.wait()
        for rank in group.others:
            # not kept, because the next group's rows are about to be received
            multiply(rank, gathered_rows.pop(rank))
    return product


def _multiply_partial_sums(
    group: RankGroup, residues: Shards, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """Sum over this rank's rows k for all rows i of the product, and add up the sums of all ranks."""
    product, parts = torch.empty_like(left), _channel_groups(len(left), group.pieces)

    def exchange_sums() -> Iterator[Pending[list[torch.Tensor]]]:
        for part in parts:
            sent = {
                rank: torch.bmm(right[part, :, residues.of(rank)].transpose(1, 2), left[part])
                for rank in group.others
            }
            # the first sums are received where the product is computed
            sums = [product[part], *(torch.empty_like(product[part]) for _ in group.others[1:])]
            pending = group.transfer(sent, dict(zip(group.others, sums, strict=True)), KIND)
            yield pending.then(lambda _, sums=sums: sums)  # type: ignore[misc]

    for part, pending in zip(parts, _run_ahead(exchange_sums()), strict=True):
        total, *others = pending.wait()
        total.baddbmm_(right[part, :, residues.of(group.rank)].transpose(1, 2), left[part])
        for sums in others:
            total += sums
    return product


def _multiply_by_channels(
    group: RankGroup, residues: Shards, left: torch.Tensor, right: torch.Tensor, outgoing: bool
) -> torch.Tensor:
    """Divide channels instead of rows among the ranks, multiply whole factors, and divide rows again."""
    product, parts = torch.empty_like(left), _channel_groups(len(left), group.pieces)
    columns = left.shape[2]

    def gather_factors() -> Iterator[tuple[Pending[torch.Tensor], Pending[torch.Tensor]]]:
        for part in parts:
            channels = group.shards(part.stop - part.start)
            yield (
                group.to_rows(left[part], channels, residues, KIND),
                group.to_rows(right[part], channels, residues, KIND),
            )

    transfers = []
    for part, pending in zip(parts, _run_ahead(gather_factors()), strict=True):
        whole_left, whole_right = (factor.wait() for factor in pending)  # each [m, N, K]
        channels = group.shards(part.stop - part.start)
        target, sent = product[part], {}
        for rank, rows in enumerate(residues.slices):
            is_own = rank == group.rank
            count = rows.stop - rows.start
            sent_product = left.new_empty(0 if is_own else len(whole_left), count, columns)
            result = target[channels.of(rank)] if is_own else sent_product
            if outgoing:
                result = result[:, :, : residues.total]
                torch.bmm(whole_left[:, rows], whole_right.transpose(1, 2), out=result)
            else:
                torch.bmm(whole_right[:, :, rows].transpose(1, 2), whole_left, out=result)
            if not is_own:
                sent[rank] = sent_product
        received = {rank: target[channels.of(rank)] for rank in group.others}
        transfers.append(group.transfer(sent, received, KIND))
    for transfer in transfers:
        transfer.wait()
    return product


def _run_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, computing GROUPS_IN_FLIGHT - 1 items ahead."""
    ready: deque[T] = deque()
    for item in items:
        ready.append(item)
        if len(ready) == GROUPS_IN_FLIGHT:
            yield ready.popleft()
    yield from ready
