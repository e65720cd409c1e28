"""Durations and numbers of bytes as text."""

import pytest

from foldcli.units import format_bytes, format_duration, format_length


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (9.97, "10.0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (725, "12 min 5 s"),
        (12_000, "3 h 20 min"),
    ],
)
def test_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "0.1 KB"), (1536, "1.5 KB"), (3 * 2**20, "3.0 MB"), (5 * 2**30, "5.00 GB")]
)
def test_bytes_are_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_lengths_have_the_unit_of_the_polymer() -> None:
    assert (format_length(1, "protein"), format_length(1_200, "protein")) == ("1 residue", "1,200 residues")
    assert (format_length(1, "DNA"), format_length(2, "RNA")) == ("1 nucleotide", "2 nucleotides")
