"""The profiles that queries are searched with: their own, or that of their family."""

from dataclasses import dataclass, field, replace

import numpy as np

from msa.alphabet import encode
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import GumbelParameters, family_matrix, gumbel_parameters
from msa.profile.pssm import ProfileRecord, QueryProfile, query_profile

MEMBER_CORRECTION_WEIGHT = 2
"""Weight of the reversed-profile correction for family members; for hits, it is 1. Members need a larger
weight, because a single repeat or coiled coil in a profile attracts all others."""


@dataclass(frozen=True)
class ProfileFamily:
    """A query with the homologs that an earlier iteration found.

    Args:
        profile: profile of the query and its members.
        members: hits that are part of the profile; None if the query came with its own profile.
        k_factor: correction of the Gumbel parameter K; see ShuffledTargets.k_factor.
        doubtful: int64 [n], targets of the doubtful members, ascending.
        doubtful_evalues: float64 [n], their E-values without their own contribution to the profile.
    """

    profile: QueryProfile
    members: Hits | None
    k_factor: float
    doubtful: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    doubtful_evalues: np.ndarray = field(default_factory=lambda: np.empty(0))


def family_settings(settings: SearchSettings) -> SearchSettings:
    """Return the settings of a search with family profiles."""
    matrix = family_matrix(settings.matrix)
    return replace(settings, matrix=matrix, gap_open=settings.profile_gap_open)


def family_parameters(settings: SearchSettings) -> GumbelParameters:
    """Return the parameters of a search with family profiles, before the correction of K."""
    settings = family_settings(settings)
    return gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)


def initial_profile(query: FastaRecord, settings: SearchSettings) -> QueryProfile:
    """Return the profile for the first iteration: the query's own, or one computed from its sequence.

    A query's own profile is replaced if it is that of its sequence, without the correction that iterated
    searches make.
    """
    codes, matrix = encode(query.sequence), settings.matrix
    if isinstance(query, ProfileRecord):
        is_own = not query.of_family and np.array_equal(query.profile, query_profile(codes, False, matrix))
        if settings.corrects_alignments or not is_own:
            return QueryProfile(codes, query.profile, is_own)
    corrects_profile = settings.comp_bias_corr and not settings.corrects_alignments
    return QueryProfile(codes, query_profile(codes, corrects_profile, matrix), not corrects_profile)
