"""Alignments for tests."""

from cuda.alignment import AlignmentPaths
from msa.alignments.files import Alignment, parse_alignment
from msa.hits.local_alignments import LocalAlignment, local_alignment


def single_sequence(name: str, sequence: str) -> Alignment:
    """Return an alignment with one sequence as its only row."""
    return parse_alignment(f">{name}\n{sequence}\n".encode())


def local_alignments(paths: AlignmentPaths) -> list[LocalAlignment]:
    """Return all alignments of an engine's result."""
    return [local_alignment(paths, index) for index in range(len(paths))]
