"""A query that comes with a profile."""

from dataclasses import dataclass, field

import numpy as np

from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.matrices import COLUMNS

MOST_SCORE = 1000
"""Half-bits, of either sign. The scores of real profiles are within some dozens."""


@dataclass(frozen=True, eq=False)
class ProfileQuery(FastaRecord):
    """A query that is searched with a profile instead of its sequence alone.

    Attributes:
        profile: int16 [length, 32], half-bits.
        made_from: what it is the profile of, in a few words.
        of_family: whether that is a family, which is searched with its own gap costs and statistics.

    Raises:
        InputError: the profile has another shape or type, or scores that no profile has.
    """

    profile: np.ndarray = field(repr=False)
    made_from: str
    of_family: bool = True

    def __post_init__(self) -> None:
        expected = (len(self.sequence), COLUMNS)
        if self.profile.dtype != np.int16 or self.profile.shape != expected:
            raise InputError(
                f"query {self.id!r}: a profile of {self.profile.dtype} {list(self.profile.shape)}, expected "
                f"int16 {list(expected)}"
            )
        if self.profile.size and max(self.profile.max(), -int(self.profile.min())) > MOST_SCORE:
            raise InputError(f"query {self.id!r}: a profile with scores beyond {MOST_SCORE} half-bits")
