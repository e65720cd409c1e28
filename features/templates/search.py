"""Template search: a query's profile against a structure library, and the choice of templates.

The rules are AlphaFold2's (Jumper et al. 2021, Supplementary Information 1.2.3, and its template code): at
least 10 aligned residues, more than a tenth of the query aligned, released before a cut-off date, no broken
chains; of at most 20 remaining hits, the four with most correctly aligned pairs to be expected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from features.residues import CA
from features.residues import GAP as MSA_GAP
from features.templates.chains import TemplateChain
from features.templates.library import StructureLibrary
from features.templates.settings import TemplateSettings
from features.templates.template_features import make_template_features
from msa.alphabet import LETTER_BITS, encode
from msa.cpu.posterior import expected_correct_pairs
from msa.io.alignments import Alignment
from msa.io.fasta import FastaRecord
from msa.profile.family_profile import GAP, distinct_rows, family_profile
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.pssm import ProfileQuery
from msa.search.engine import Engine, QueryProfile
from msa.search.families import MAX_MEMBER_IDENTITY
from msa.search.hits import Hit
from msa.search.search import search_many
from msa.search.settings import SearchSettings

_MAX_PROFILE_ROWS = 4096
"""Rows of an alignment that a profile is made of; more rows change little and take much longer."""


@dataclass(frozen=True, eq=False)
class TemplateCandidate:
    """A hit of a template search.

    Args:
        index: number of the chain in the library.
        id: id of the chain, such as 1abc_A.
        source: file or collection of the chain.
        release_date: YYYY-MM-DD, or None if unknown.
        evalue: E-value of the hit.
        identity: identical pairs as a fraction of the alignment's columns.
        query_start, query_end, template_start, template_end: ends of the alignment, from 1, inclusive.
        pairs: int64 [n, 2], aligned residues of query and template, from 0.
        query_coverage: aligned residues of the query as a fraction of its length.
        expected_pairs: expected number of correctly aligned pairs; None if the hit was rejected before.
        rejection: the reason why the hit is not used; None for templates.
    """

    index: int
    id: str
    source: str
    release_date: str | None
    evalue: float
    identity: float
    query_start: int
    query_end: int
    template_start: int
    template_end: int
    pairs: np.ndarray = field(repr=False)
    query_coverage: float
    expected_pairs: float | None = None
    rejection: str | None = None


@dataclass(frozen=True)
class TemplateHits:
    """The result of a template search for one query.

    Args:
        query: the query's residues.
        candidates: templates first, best first, then rejected hits by E-value.
    """

    query: str
    candidates: Sequence[TemplateCandidate]

    @property
    def templates(self) -> list[TemplateCandidate]:
        """The candidates that are used, best first."""
        return [candidate for candidate in self.candidates if candidate.rejection is None]


def alignment_query(alignment: Alignment, name: str = "query") -> ProfileQuery:
    """Return a query with the profile of an alignment.

    Args:
        alignment: any alignment; its first row is the query.
        name: header of the query.
    """
    letters = alignment.letters[:_MAX_PROFILE_ROWS]
    rows = np.where(letters == ord("-"), np.uint8(GAP), encode(letters.tobytes()).reshape(letters.shape))
    return _profile_query(rows, alignment.query, name)


def features_query(features: Mapping[str, np.ndarray], name: str = "query") -> ProfileQuery:
    """Return a query with the profile of a target's deterministic features.

    Args:
        features: `msa` and `sequence` of `features.schema.CACHED`.
        name: header of the query.
    """
    codes = features["msa"][:_MAX_PROFILE_ROWS]
    rows = np.where(codes == MSA_GAP, GAP, codes).astype(np.uint8)
    return _profile_query(rows, features["sequence"][0].decode("ascii"), name)


def _profile_query(rows: np.ndarray, sequence: str, name: str) -> ProfileQuery:
    """Return a query with the profile of rows, uint8 [n, length], letter codes or GAP."""
    rows = distinct_rows(rows, MAX_MEMBER_IDENTITY)
    settings = SearchSettings()
    profile = family_profile(rows, settings.comp_bias_corr, settings.matrix)
    return ProfileQuery(name, sequence, profile, "alignment", len(rows) > 1)


def search_templates(
    query: FastaRecord,
    library: StructureLibrary,
    settings: TemplateSettings | None = None,
    engine: Engine | None = None,
) -> TemplateHits:
    """Find templates for one query; see `search_templates_many`."""
    ((_, hits),) = search_templates_many([query], library, settings, engine)
    return hits


def search_templates_many(
    queries: Sequence[FastaRecord],
    library: StructureLibrary,
    settings: TemplateSettings | None = None,
    engine: Engine | None = None,
) -> Iterator[tuple[FastaRecord, TemplateHits]]:
    """Find templates for many queries; an engine on a GPU searches them in batches.

    Args:
        queries: sequences, or better profiles (`alignment_query`, or those of an iterated search).
        library: the structure library.
        settings: see TemplateSettings.
        engine: the search engine; by default the CPU.

    Yields:
        Each query with its templates and rejected hits, in order.

    Raises:
        InputError: a query is too short, or the library is damaged.
    """
    settings = settings or TemplateSettings()
    profiles: list[tuple[QueryProfile, bool]] = []

    def keep_profile(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
        profiles.append((profile, of_family))

    results = search_many(queries, library.database, settings.search, engine, on_profile=keep_profile)
    for query, hits in results:
        profile, of_family = profiles.pop(0)
        yield query, _select(query.sequence, hits, profile, of_family, library, settings)


def _select(
    query: str,
    hits: Iterable[Hit],
    profile: QueryProfile,
    of_family: bool,
    library: StructureLibrary,
    settings: TemplateSettings,
) -> TemplateHits:
    """Reject unusable hits, and rank the rest."""
    usable: list[TemplateCandidate] = []
    rejected: list[TemplateCandidate] = []
    for hit in hits:
        candidate = _candidate(hit, library)
        reason = _prefilter(query, hit, candidate, settings)
        if reason is None and len(usable) == settings.max_hits:
            reason = f"not among the best {settings.max_hits} hits by E-value"
        if reason is None:
            reason = _check_coordinates(library.chain(hit.target), candidate, settings)
        if reason is None:
            pairs = _expected_pairs(candidate, profile, of_family, library, settings.search)
            usable.append(replace(candidate, expected_pairs=pairs))
        else:
            rejected.append(replace(candidate, rejection=reason))
    ranked = sorted(usable, key=lambda candidate: -(candidate.expected_pairs or 0.0))
    surplus = f"not among the best {settings.max_templates} by expected correct pairs"
    ranked = [
        candidate if rank < settings.max_templates else replace(candidate, rejection=surplus)
        for rank, candidate in enumerate(ranked)
    ]
    return TemplateHits(query, [*ranked, *rejected])


def _candidate(hit: Hit, library: StructureLibrary) -> TemplateCandidate:
    pairs = aligned_pairs(hit)
    return TemplateCandidate(
        index=hit.target,
        id=hit.id,
        source=library.source(hit.target),
        release_date=library.release_date(hit.target),
        evalue=hit.evalue,
        identity=hit.identity,
        query_start=hit.qstart,
        query_end=hit.qend,
        template_start=hit.tstart,
        template_end=hit.tend,
        pairs=pairs,
        query_coverage=len(pairs) / hit.query_length,
    )


def aligned_pairs(hit: Hit) -> np.ndarray:
    """Return the aligned residues of query and target, from 0: int64 [n, 2]."""
    i, j = hit.qstart - 1, hit.tstart - 1
    parts = [np.empty((0, 2), np.int64)]
    for length, operation in hit.alignment.operations:
        if operation == "M":
            steps = np.arange(length)
            parts.append(np.stack([i + steps, j + steps], axis=1))
        i += 0 if operation == "D" else length
        j += 0 if operation == "I" else length
    return np.concatenate(parts)


def _prefilter(query: str, hit: Hit, candidate: TemplateCandidate, settings: TemplateSettings) -> str | None:
    """Return the reason to reject a hit before its coordinates are read, or None."""
    cutoff, released = settings.max_template_date, candidate.release_date
    if cutoff is not None and released is None:
        return f"release date unknown, and templates must be from {cutoff} or before"
    if cutoff is not None and released is not None and released > cutoff:
        return f"released {released}, after {cutoff}"
    if candidate.query_coverage <= settings.min_aligned_fraction:
        return f"aligned to {candidate.query_coverage:.1%} of the query, which is too little"
    residues = hit.tend - hit.tstart + 1
    if residues < settings.min_aligned_residues:
        return f"{residues} aligned residues, fewer than {settings.min_aligned_residues}"
    aligned = hit.sequence[hit.tstart - 1 : hit.tend]
    if settings.exclude_self and residues > settings.self_length_ratio * len(query) and aligned in query:
        return "the query itself, or a large part of it"
    return None


def _check_coordinates(
    chain: TemplateChain, candidate: TemplateCandidate, settings: TemplateSettings
) -> str | None:
    """Return the reason to reject a hit by its coordinates, or None."""
    alpha, present = chain.positions[:, CA], chain.mask[:, CA]
    neighbours = present[1:] & present[:-1]
    distances = np.linalg.norm(np.diff(alpha, axis=0), axis=1)
    if np.any(distances[neighbours] > settings.max_ca_distance):
        return f"broken chain: neighbouring CA atoms more than {settings.max_ca_distance:g} Å apart"
    # alanine, the smallest residue with CB, has five heavy atoms
    if np.count_nonzero(chain.mask[candidate.pairs[:, 1]]) < 5:
        return "no coordinates of aligned residues"
    return None


def _expected_pairs(
    candidate: TemplateCandidate,
    profile: QueryProfile,
    of_family: bool,
    library: StructureLibrary,
    settings: SearchSettings,
) -> float:
    return expected_correct_pairs(
        profile.profile,
        library.database.codes(candidate.index) & LETTER_BITS,
        candidate.pairs,
        settings.profile_gap_open if of_family else settings.gap_open,
        settings.gap_extend,
        GUMBEL_TABLES[settings.matrix].ungapped_lambda,
    )


def template_chains(hits: TemplateHits, library: StructureLibrary) -> list[TemplateChain]:
    """Return the chain of each of a search's templates.

    Raises:
        InputError: the library is damaged.
    """
    return [library.chain(each.index) for each in hits.templates]


def hit_features(hits: TemplateHits, chains: Sequence[TemplateChain]) -> dict[str, np.ndarray]:
    """Make the template features of a search's templates; see `make_template_features`.

    Args:
        hits: the result of the search.
        chains: see `template_chains`.
    """
    templates = [
        (chain, each.pairs, each.expected_pairs or 0.0)
        for chain, each in zip(chains, hits.templates, strict=True)
    ]
    return make_template_features(len(hits.query), templates)
