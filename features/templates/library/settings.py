"""Settings of the template search, and of libraries of structures."""

import datetime
from dataclasses import dataclass

from msa.base.errors import InputError
from msa.engines.search_settings import SearchSettings


@dataclass(frozen=True)
class TemplateSettings:
    """Settings of a template search.

    Args:
        evalue: largest E-value of a hit; infinity to try all chains. Most hits up to 0.01 have
            the query's fold; see docs/templates.md.
        max_hits: hits that are considered, by E-value, after unusable ones have been rejected.
        by_copy_accuracy: use those whose copies have the largest expected lDDT. By default, those with the
            largest expected number of correctly aligned pairs are used, as in AlphaFold2.
        max_template_date: latest release date, YYYY-MM-DD; chains without a known date are then rejected.
        min_aligned_fraction: hits that align at most this fraction of the query are rejected.
        min_aligned_residues: smallest number of residues of the template within the alignment.
        max_ca_distance: largest distance of neighbouring CA atoms in a chain, Å.
        exclude_self: reject templates that are part of the query and longer than `self_length_ratio` of it.
        threads: CPU threads. Does not affect the result.

    Raises:
        InputError: the date is malformed, or a number is out of range.
    """

    evalue: float = 0.01
    max_hits: int = 20
    max_templates: int = 4
    by_copy_accuracy: bool = False
    max_template_date: str | None = None
    min_aligned_fraction: float = 0.1
    min_aligned_residues: int = 10
    max_ca_distance: float = 150.0
    exclude_self: bool = False
    self_length_ratio: float = 0.95
    threads: int = 1

    def __post_init__(self) -> None:
        if self.max_template_date is not None:
            try:
                datetime.date.fromisoformat(self.max_template_date)
            except ValueError:
                raise InputError(
                    f"max_template_date is {self.max_template_date!r}: expected a date such as 2021-09-30"
                ) from None
        if self.max_hits < 1 or self.max_templates < 1:
            raise InputError(
                f"max_hits {self.max_hits} and max_templates {self.max_templates} must be positive"
            )

    @property
    def search(self) -> SearchSettings:
        """Settings of the search.

        Alignments with BLOSUM62 end closer to the end of a domain than those with CONTEXT, whose scores for
        flexible linkers and tails are hardly negative. Coordinates should not be copied to such residues.
        """
        return SearchSettings(evalue=self.evalue, matrix="BLOSUM62", gap_open=11, threads=self.threads)


@dataclass(frozen=True)
class LibrarySettings:
    """Settings of a library.

    Args:
        units_per_angstrom: grid points per Å: 1000 keeps all digits of structure files, 25 is coarse.
        backbone_only: leave out side chains beyond CB.
        threads: worker processes. Does not affect the content.
        overwrite: replace an existing library. Does not affect the content.
    """

    units_per_angstrom: int = 100
    backbone_only: bool = False
    threads: int = 1
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.units_per_angstrom <= 1000:
            raise InputError(f"units_per_angstrom is {self.units_per_angstrom}: expected 1 to 1000")
