"""The product of triangle multiplication, of factors whose rows are divided among ranks.

With N residues and M channels, and counted in elements of an [M, N, N] factor, each of P ranks receives

    rows:      (P - 1) / P, for outgoing edges all rows of the right factor, for incoming ones partial sums
    channels:  3 (P - 1) / P², to divide both factors by channels instead of rows, and the product back

so rows are cheaper for two ranks, equal for three, and channels are cheaper from four ranks on. The channels
are processed in groups: a group's communication runs while another group is multiplied.
"""

from collections.abc import Iterator
from typing import TypeVar

import torch

from model.parallel.communication import Pending, RankGroup, Shards

T = TypeVar("T")

# largest number of ranks among which the product is divided by rows
MAX_RANKS_BY_ROWS = 3
CHANNEL_GROUPS = 4
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
        by_channels: whether the work is divided by channels; None is the better choice for the group.

    Returns:
        [M, n, K]; columns past the last residue are undefined.
    """
    if by_channels is None:
        by_channels = group.size > MAX_RANKS_BY_ROWS
    if by_channels:
        return _multiply_by_channels(group, residues, left, right, outgoing)
    multiply = _multiply_gathered if outgoing else _multiply_partially
    return multiply(group, residues, left, right)


def exchanged_elements(ranks: int, length: int, channels: int) -> int:
    """Return about the largest number of elements that `multiply_factors` holds in addition to its tensors.

    Args:
        ranks: number of ranks.
        length: number of residues N.
        channels: number of channels M.
    """
    if ranks == 1:
        return 0
    group = -(-channels // CHANNEL_GROUPS)
    if ranks <= MAX_RANKS_BY_ROWS:
        # a group that is multiplied, and the next one
        return 2 * group * length**2
    # both factors of a rank's channels, received and joined, those of the next group, and products to send
    share = Shards(group, ranks).size
    return 6 * share * length**2 + channels * Shards(length, ranks).size * length


def _channel_groups(channels: int) -> list[slice]:
    return [part for part in Shards(channels, CHANNEL_GROUPS).slices if part.start < part.stop]


def _multiply_gathered(
    group: RankGroup, residues: Shards, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """Multiply this rank's rows of the left factor with all rows of the right one."""
    product = torch.empty_like(left)

    def gathered() -> Iterator[Pending[list[torch.Tensor]]]:
        return (group.gather_blocks(right[part], 1, residues, KIND) for part in _channel_groups(len(right)))

    for part, pending in zip(_channel_groups(len(left)), _one_ahead(gathered()), strict=True):
        for rows, columns in zip(pending.wait(), residues.slices, strict=True):
            torch.bmm(left[part], rows.transpose(1, 2), out=product[part, :, columns])
    return product


def _multiply_partially(
    group: RankGroup, residues: Shards, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """Sum over this rank's rows k for all rows i of the product, and add up the sums of all ranks."""
    product = torch.empty_like(left)
    rows, columns = left.shape[1:]

    def exchanged() -> Iterator[Pending[torch.Tensor]]:
        for part in _channel_groups(len(left)):
            channels = part.stop - part.start
            sizes = [channels * count * columns for count in residues.counts]
            sent = left.new_empty(sum(sizes))
            for sums, others in zip(sent.split(sizes), residues.slices, strict=True):
                result = sums.view(channels, others.stop - others.start, columns)
                torch.bmm(right[part, :, others].transpose(1, 2), left[part], out=result)
            received = left.new_empty(group.size, channels, rows, columns)
            own = [channels * rows * columns] * group.size
            pending = group.all_to_all(received.view(-1), own, sent, sizes, KIND)
            yield pending.then(lambda _, sums=received: sums)  # type: ignore[misc]

    for part, pending in zip(_channel_groups(len(left)), _one_ahead(exchanged()), strict=True):
        torch.sum(pending.wait(), dim=0, out=product[part])
    return product


def _multiply_by_channels(
    group: RankGroup, residues: Shards, left: torch.Tensor, right: torch.Tensor, outgoing: bool
) -> torch.Tensor:
    """Divide channels instead of rows among the ranks, multiply whole factors, and divide rows again."""
    product = torch.empty_like(left)
    rows, columns = left.shape[1:]

    def to_channels(factor: torch.Tensor, channels: Shards) -> Pending[torch.Tensor]:
        return group.exchange(factor, 0, channels, 1, residues, KIND)

    def factors() -> Iterator[tuple[Pending[torch.Tensor], Pending[torch.Tensor]]]:
        for part in _channel_groups(len(left)):
            channels = group.shards(part.stop - part.start)
            yield to_channels(left[part], channels), to_channels(right[part], channels)

    returning = []
    for part, pending in zip(_channel_groups(len(left)), _one_ahead(factors()), strict=True):
        whole_left, whole_right = (factor.wait() for factor in pending)  # each [m, N, K]
        channels = group.shards(part.stop - part.start)
        sizes = [len(whole_left) * count * columns for count in residues.counts]
        sent = left.new_empty(sum(sizes))
        for share, others in zip(sent.split(sizes), residues.slices, strict=True):
            result = share.view(len(whole_left), others.stop - others.start, columns)
            if outgoing:
                result = result[:, :, : residues.total]
                torch.bmm(whole_left[:, others], whole_right.transpose(1, 2), out=result)
            else:
                torch.bmm(whole_right[:, :, others].transpose(1, 2), whole_left, out=result)
        received_sizes = [count * rows * columns for count in channels.counts]
        returning.append(group.all_to_all(product[part].view(-1), received_sizes, sent, sizes, KIND))
    for share_pending in returning:
        share_pending.wait()
    return product


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, each after the next one was made."""
    previous = next(items, None)
    while previous is not None:
        following = next(items, None)
        yield previous
        previous = following
