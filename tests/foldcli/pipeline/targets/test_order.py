"""The order in which the targets of a run are predicted."""

import random

import pytest

from foldcli.inputs.targets import TargetInput
from foldcli.pipeline.targets.order import in_run_order
from msa.io.fasta import FastaRecord


def order(lengths: list[int], at_once: int = 1) -> list[int]:
    targets: list[tuple[str, TargetInput]] = [(f"{n}", FastaRecord("a", "A" * n)) for n in lengths]
    return [int(name) for name, _ in in_run_order(targets, at_once)]


@pytest.mark.parametrize("count", [0, 1, 31])
def test_few_targets_run_longest_first(count: int) -> None:
    lengths = list(range(1, count + 1))
    assert order(lengths) == lengths[::-1]


@pytest.mark.parametrize("count", [32, 33, 100])
def test_of_many_targets_the_shortest_run_first(count: int) -> None:
    lengths = list(range(1, count + 1))
    random.Random(count).shuffle(lengths)
    ordered = order(lengths)
    assert ordered[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert ordered[8:] == list(range(count, 8, -1))


@pytest.mark.parametrize("count", [95, 96])
def test_each_of_several_devices_begins_with_short_targets(count: int) -> None:
    lengths = list(range(1, count + 1))
    first = list(range(1, 25)) if count == 96 else []
    assert order(lengths, 3) == first + list(range(count, len(first), -1))
