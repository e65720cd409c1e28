"""The builder of query families: the hits of one iteration that join the profile of the next."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from msa.alignments.alignment_rows import code_rows
from msa.alphabet import encode
from msa.base.errors import InputError
from msa.database.database import TargetDatabase
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import NO_SOURCE, Hits
from msa.io.fasta import FastaRecord
from msa.profile.family_profile import MAX_MEMBER_IDENTITY, distinct_rows, family_profile
from msa.profile.pssm import ProfileRecord, QueryProfile
from msa.profile.statistics import evalues
from msa.search.families.family import (
    MEMBER_CORRECTION_WEIGHT,
    ProfileFamily,
    family_parameters,
    family_settings,
    initial_profile,
)
from msa.search.families.null_scores import ShuffledTargets, corrected_alignment_scores

RELIABLE_EVALUE = 1e-3
"""Largest E-value of a reliable hit; all others are doubtful. A doubtful member stays doubtful in later
iterations, because every profile finds its own members. Doubtful hits are members only if the profile of the
reliable members alone confirms them."""
CONFIRMATION_EVALUE = 0.01
"""Largest E-value that confirms a doubtful hit."""
UNCONFIRMED_EVALUE = 0.01
"""Largest E-value of a doubtful hit that joins if there are no reliable members."""


@dataclass(frozen=True)
class FamilyBuilder:
    """A builder of families from the hits of a search."""

    database: TargetDatabase
    settings: SearchSettings

    def from_profile(self, query: ProfileRecord) -> ProfileFamily:
        """Return the family of a query that came with a family profile; its members are unknown.

        Raises:
            InputError: there are no statistics for the gap costs of family profiles.
        """
        profile = initial_profile(query, self.settings)
        try:
            return ProfileFamily(profile, None, self._k_factor(profile))
        except ValueError as error:
            raise InputError(str(error)) from None

    def update(self, query: FastaRecord, family: ProfileFamily | None, hits: Hits) -> ProfileFamily | None:
        """Build the family for the next iteration from the hits of the last.

        Args:
            query: the query.
            family: the family of the last iteration; None if the query alone was searched.
            hits: hits with an E-value small enough to join the family.

        Returns:
            The new family; None if its profile would be the same as in the last iteration.
        """
        codes = encode(query.sequence)
        members, doubtful, doubtful_evalues = self._select_members(codes, family, hits)
        profile = self._member_profile(codes, members)
        if profile is None and family is None:
            return None
        profile = profile or initial_profile(query, self.settings)
        if family is not None and np.array_equal(profile.profile, family.profile.profile):
            return None
        return ProfileFamily(profile, members, self._k_factor(profile), doubtful, doubtful_evalues)

    def _member_profile(self, codes: np.ndarray, members: Hits) -> QueryProfile | None:
        """Compute the profile of the query with these members; None if all are redundant with the query."""
        rows = distinct_rows(code_rows(codes, members), MAX_MEMBER_IDENTITY)
        if len(rows) == 1:
            return None
        settings = self.settings
        return QueryProfile(codes, family_profile(rows, settings.comp_bias_corr, settings.matrix))

    def _select_members(
        self, codes: np.ndarray, family: ProfileFamily | None, hits: Hits
    ) -> tuple[Hits, np.ndarray, np.ndarray]:
        """Return the hits that join the family, and `doubtful` and `doubtful_evalues` of the new family."""
        doubtful = hits.evalues > RELIABLE_EVALUE
        if family is not None:
            doubtful |= np.isin(hits.targets, family.doubtful)
        candidates = hits.targets[doubtful]
        profile = self._member_profile(codes, hits.subset(~doubtful)) if doubtful.any() else None
        if profile is not None:
            independent = self._member_evalues(profile, hits.subset(doubtful))
            joins = independent <= CONFIRMATION_EVALUE
        else:
            independent = hits.evalues[doubtful]
            if family is not None:
                earlier = dict(zip(family.doubtful.tolist(), family.doubtful_evalues.tolist(), strict=True))
                limits = np.array([earlier.get(target, 0.0) for target in candidates.tolist()])
                independent = np.maximum(independent, limits)
            joins = independent <= UNCONFIRMED_EVALUE
        members = hits.subset(np.setdiff1d(np.arange(len(hits)), np.flatnonzero(doubtful)[~joins]))
        # hits that are reliable by their independent E-value are no longer doubtful
        remaining = np.flatnonzero(joins & (independent > RELIABLE_EVALUE))
        remaining = remaining[np.argsort(candidates[remaining])]
        return members, candidates[remaining], independent[remaining]

    def _member_evalues(self, profile: QueryProfile, hits: Hits) -> np.ndarray:
        """Compute the E-values, float64 [n], of hits as members of a family with this profile."""
        targets, rows, parameters = hits.source.arrays, hits.rows, family_parameters(self.settings)
        settings = family_settings(self.settings)
        scores = corrected_alignment_scores(
            profile.profile, targets, rows, settings, parameters, MEMBER_CORRECTION_WEIGHT
        )
        lengths, residues = targets.lengths[rows], self.database.total_residues
        return self._k_factor(profile) * evalues(scores, len(profile.codes), lengths, residues, parameters)

    def _k_factor(self, profile: QueryProfile) -> float:
        settings, parameters = family_settings(self.settings), family_parameters(self.settings)
        return self._shuffled_targets.k_factor(profile.profile, settings, parameters)

    @cached_property
    def _shuffled_targets(self) -> ShuffledTargets:
        return ShuffledTargets(self.database.length_sample)


def update_in_process(
    processes: DatabaseProcesses,
    database: TargetDatabase,
    settings: SearchSettings,
    query: FastaRecord,
    family: ProfileFamily | None,
    hits: Hits,
) -> ProfileFamily | None:
    """Build a family in another process; see `FamilyBuilder.update`.

    A family takes a few milliseconds, in hundreds of short operations. In threads, these would compete with
    the threads that launch kernels for the interpreter lock.
    """
    sent = _with_source(family, None), replace(hits, source=NO_SOURCE)
    return _with_source(processes.call(database, _update, settings, query, *sent), database)


def _update(
    database: TargetDatabase,
    settings: SearchSettings,
    query: FastaRecord,
    family: ProfileFamily | None,
    hits: Hits,
) -> ProfileFamily | None:
    """Build a family from hits without their source, and return it without its source."""
    family, hits = _with_source(family, database), replace(hits, source=database)
    return _with_source(_builder(database, settings).update(query, family, hits), None)


# of the last searches of a process
_builder = lru_cache(4)(FamilyBuilder)


def _with_source(family: ProfileFamily | None, source: Any) -> ProfileFamily | None:
    """Return a family with members in a database; None stands for the database in another process."""
    if family is None or family.members is None:
        return family
    return replace(family, members=replace(family.members, source=source))
