"""The order of a run's targets, and the sizes of the batches in which their chains are searched."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from foldcli.inputs.targets import approximate_length

Input = TypeVar("Input", bound=Any)

FIRST_BATCH = 8
"""Number of chains in a run's first batch, small so that the network begins early; each next one is twice as
large, up to `SEARCH_BATCH`."""

SEARCH_BATCH = 64
"""Largest number of chains of a run that are searched together."""

LARGE_BATCH = 1024
"""Number of chains that are searched together if nothing else waits for the first ones. The hits of all are
in memory: about a megabyte for 10,000."""

# short targets come first if they are at most this share of the targets
_FIRST_SHARE = 0.25


def in_run_order(
    targets: Sequence[tuple[str, Input]], at_once: int = 1, size: Callable[[Input], int] = approximate_length
) -> list[tuple[str, Input]]:
    """Return targets in the order in which they run: of many, a few short ones first; then the longest first.

    Memory that was allocated for one target suffices for the next, and targets that end a run on several
    devices are short. The first ones are short because their alignments and features are ready soon: the
    network works on them while those of the longest targets are made.

    Args:
        targets: names and inputs of a run's targets.
        at_once: number of targets that are predicted at the same time.
        size: returns a number that grows with the size of a target.
    """
    longest_first = sorted(targets, key=lambda target: -size(target[1]))
    count = FIRST_BATCH * at_once
    if _FIRST_SHARE * len(targets) < count:
        return longest_first
    return [*reversed(longest_first[-count:]), *longest_first[:-count]]
