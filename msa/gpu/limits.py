"""What passes the filter."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What passes the filter: at most so many, of at least a score (half-bits)."""

    most: int
    smallest: int
