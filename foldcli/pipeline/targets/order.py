"""The order in which a run takes its targets."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from foldcli.inputs.targets import approximate_length
from foldcli.pipeline.targets.alignment_settings import FIRST_BATCH

T = TypeVar("T", bound=Any)

# short targets come first if they are at most this share of the targets
_FIRST_SHARE = 0.25


def in_run_order(
    targets: Sequence[tuple[str, T]], at_once: int = 1, size: Callable[[T], int] = approximate_length
) -> list[tuple[str, T]]:
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
