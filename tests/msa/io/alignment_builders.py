"""Alignments for tests."""

from msa.io.alignments import Alignment, parse_alignment


def single_sequence(name: str, sequence: str) -> Alignment:
    """Return the alignment of a sequence with nothing but itself."""
    return parse_alignment(f">{name}\n{sequence}\n".encode())
