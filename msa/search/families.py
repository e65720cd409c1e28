"""How a query's family grows from one search to the next, and what stays out of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from msa.alphabet import encode
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.family_profile import distinct_rows, family_profile, family_rows
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.profile.pssm import ProfileQuery, query_profile
from msa.profile.statistics import evalues
from msa.search.engine import QueryProfile
from msa.search.hits import Hit
from msa.search.null_scores import ShuffledTargets, corrected_alignment_scores
from msa.search.settings import SearchSettings

MOST_IDENTICAL = 0.95
"""Members of which this fraction of the residues repeats another member say nothing new."""

EXCESS_OF_MEMBERS = 2
"""How often what a target scores against the reversed profile counts against it as a member of the family: a
repeat or a coiled coil that has entered a profile is followed by all others."""

SURE, CONFIRMED = 1e-3, 0.3
"""A target that joins with a larger E-value than the first stays only if the others' profile finds it at the
second or better: a profile that it is part of always finds it."""


@dataclass(frozen=True)
class Family:
    """What is searched with from the second iteration on.

    Args:
        profile: of the query and its members.
        members: without the query.
        excess: how many times more often than the parameters say it finds something by chance.
    """

    profile: QueryProfile
    members: Sequence[Hit]
    excess: float


@dataclass(frozen=True)
class Families:
    """Makes families from what searches find.

    Args:
        database: E-values are for the whole of it.
        targets: its arrays.
        settings: of the search.
    """

    database: TargetDatabase
    targets: SequenceArrays
    settings: SearchSettings

    @cached_property
    def how(self) -> tuple[SearchSettings, GumbelParameters]:
        """Settings and parameters of searches with families."""
        settings = replace(self.settings, gap_open=self.settings.profile_gap_open)
        return settings, gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)

    def alone(self, query: FastaRecord) -> QueryProfile:
        """What a query is searched with first: the profile that it has, or that of its sequence."""
        codes = encode(query.sequence)
        if isinstance(query, ProfileQuery):
            return QueryProfile(codes, query.profile)
        return QueryProfile(codes, query_profile(codes, self.settings.comp_bias_corr, self.settings.matrix))

    def brought(self, query: ProfileQuery) -> Family:
        """The family whose profile a query has; who its members were is not known.

        Raises:
            InputError: there are no statistics for a family's gap costs.
        """
        profile = self.alone(query)
        try:
            return Family(profile, (), self._excess(profile))
        except ValueError as error:
            raise InputError(str(error)) from None

    def grown(self, query: FastaRecord, family: Family | None, found: Sequence[Hit]) -> Family | None:
        """The family that a search found.

        Args:
            query: whose family it is.
            family: what was searched with; None if that was the query alone.
            found: hits that are good enough for members.

        Returns:
            The family with its new profile; None where that would be the one that was searched with.
        """
        codes = encode(query.sequence)
        members = found if family is None else self._confirmed(codes, family, found)
        profile = self._profile(codes, members)
        if profile is None and family is None:
            return None
        profile = profile or self.alone(query)
        if family is not None and np.array_equal(profile.profile, family.profile.profile):
            return None
        return Family(profile, members, self._excess(profile))

    def _profile(self, codes: np.ndarray, members: Sequence[Hit]) -> QueryProfile | None:
        """The profile of the query with these members; None where they add nothing to the query."""
        aligned = [(hit.target, hit.alignment) for hit in members]
        rows = distinct_rows(family_rows(codes, self.targets, aligned), MOST_IDENTICAL)
        if len(rows) == 1:
            return None
        settings = self.settings
        return QueryProfile(codes, family_profile(rows, settings.comp_bias_corr, settings.matrix))

    def _confirmed(self, codes: np.ndarray, family: Family, found: Sequence[Hit]) -> Sequence[Hit]:
        """Of what a family found, all but its own doubtful members whom the others do not find."""
        doubtful = {hit.target for hit in family.members if hit.evalue > SURE}
        again = np.array([hit.target for hit in found if hit.target in doubtful], np.int64)
        sure = [hit for hit in family.members if hit.evalue <= SURE]
        profile = self._profile(codes, sure) if len(again) else None
        if profile is None:
            return found
        dropped = set(again[self._evalues(profile, again) > CONFIRMED].tolist())
        return [hit for hit in found if hit.target not in dropped]

    def _evalues(self, profile: QueryProfile, chosen: np.ndarray) -> np.ndarray:
        """E-values, float64 [n], of targets as members of a family with this profile."""
        settings, parameters = self.how
        scores = corrected_alignment_scores(
            profile.profile, self.targets, chosen, settings, parameters, EXCESS_OF_MEMBERS
        )
        lengths, residues = self.targets.lengths[chosen], self.database.total_residues
        return self._excess(profile) * evalues(scores, len(profile.codes), lengths, residues, parameters)

    def _excess(self, profile: QueryProfile) -> float:
        return self._shuffled.k_factor(profile.profile, *self.how)

    @cached_property
    def _shuffled(self) -> ShuffledTargets:
        return ShuffledTargets(self.targets, self.database.representatives)
