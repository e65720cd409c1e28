"""Tests of the targets of `foldcli screen`."""

from pathlib import Path

import pytest

from foldcli.inputs.complexes import Complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.screen import Background, find_screen_targets
from foldcli.inputs.shard import Shard
from msa.base.errors import InputError


class Screen:
    """Files of chains, and the targets of their screens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures = Failures(folder, Shard(1, 1))

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def find(self, *files: str, pairs: str | None = None) -> list[tuple[str, str]]:
        """Return names and sequences of the targets."""
        found = find_screen_targets(files, pairs, True, "BLOSUM62", self.failures)
        assert all(isinstance(target, Complex) for _, target in found)
        return [(name, target.sequence) for name, target in found]

    def reasons(self) -> list[str]:
        return [str(error) for _, error in self.failures.failed]


@pytest.fixture
def screen(tmp_path: Path) -> Screen:
    return Screen(tmp_path)


def test_chains_of_two_files_are_paired_with_each_other(screen: Screen) -> None:
    baits, preys = screen.file("b.fasta", ">a\nMKV\n>b\nGHT\n"), screen.file("p.fasta", ">b\nGHT\n>c\nWWW\n")
    assert screen.find(baits, preys) == [
        ("a_and_b", "MKV:GHT"), ("a_and_c", "MKV:WWW"), ("b_and_b", "GHT:GHT"), ("b_and_c", "GHT:WWW"),
    ]  # fmt: skip


def test_different_chains_of_one_file_are_paired_once(screen: Screen) -> None:
    chains = screen.file("a.fasta", ">a\nMKV\n>b\nGHT\n>c\nWWW\n")
    assert [name for name, _ in screen.find(chains)] == ["a_and_b", "a_and_c", "b_and_c"]


def test_records_that_are_not_single_chains_are_reported_and_the_others_continue(screen: Screen) -> None:
    chains = screen.file("a.fasta", ">a\nMKV\n>pair\nMKV:GHT\n>c\nWWW\n")
    alignment = screen.file("d.a3m", ">d\nMKVL\n>e\nMK-I\n>f\nMRaVI\n")
    assert [name for name, _ in screen.find(chains)] == ["a_and_c"]
    assert screen.find(chains, alignment) == []
    complex_reason, again, alignment_reason = screen.reasons()
    assert complex_reason == again == "a complex; a screen takes sequences of single chains"
    assert alignment_reason.startswith("an alignment or a profile")


def test_rows_of_a_table_with_unknown_chains_are_reported(screen: Screen) -> None:
    one, two = screen.file("a.fasta", ">a\nMKV\n"), screen.file("b.fasta", ">b\nGHT\n>a\nMKV\n")
    table = screen.file("pairs.tsv", "# bait, prey\na\tb\na\tzz\nb\tb\ta\n")
    assert screen.find(one, two, pairs=table) == [("a_and_b", "MKV:GHT"), ("b_and_b_and_a", "GHT:GHT:MKV")]
    (reason,) = screen.reasons()
    assert reason.startswith(f"{table}:3: no sequence has the id 'zz'")


def test_a_table_needs_distinct_ids(screen: Screen) -> None:
    files = screen.file("a.fasta", ">a\nMKV\n"), screen.file("b.fasta", ">a\nGHT\n")
    with pytest.raises(InputError, match="different sequences with the id 'a'"):
        screen.find(*files, pairs=screen.file("pairs.tsv", "a,a\n"))


def test_background_draws_pairs_that_are_not_part_of_the_screen(screen: Screen) -> None:
    baits = screen.file("b.fasta", ">a\nMKV\n")
    preys = screen.file("p.fasta", ">b\nGHT\n>c\nWWW\n>d\nAAA\n>copy\nAAA\n")

    def names(count: int, seed: int) -> list[str]:
        background = Background(count, seed)
        found = find_screen_targets((baits, preys), None, True, "BLOSUM62", screen.failures, background)
        assert [name for name, _ in found[:4]] == ["a_and_b", "a_and_c", "a_and_d", "a_and_copy"]
        return [name for name, _ in found[4:]]

    assert {name.replace("copy", "d") for name in names(3, 0)} <= {
        f"background--{a}_and_{b}" for a in "bcd" for b in "bcd" if a != b
    }
    assert len(set(names(3, 0))) == 3 and names(2, 7) == names(2, 7)
    assert len({tuple(names(1, seed)) for seed in range(9)}) > 1
    with pytest.raises(InputError, match="--background 4: only 3 pairs"):
        names(4, 0)
