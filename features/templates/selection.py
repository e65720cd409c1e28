"""The choice of templates among the hits of a search.

The rules are AlphaFold2's (Jumper et al. 2021, Supplementary Information 1.2.3, and its template code): at
least 10 aligned residues, more than a tenth of the query aligned, released before a cut-off date, no broken
chains; of the first 20 remaining hits, the four with the largest expected number of correctly aligned pairs.
Networks with fewer template slots get those whose copies have the largest expected lDDT.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from features.chemistry.residues import CA
from features.templates.candidates import TemplateCandidate, TemplateHits, aligned_pairs
from features.templates.homology import copy_template
from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary, parse_header
from features.templates.library.settings import TemplateSettings
from features.templates.posterior import expected_correct_pairs
from msa.alphabet import LETTER_BITS
from msa.hits.hits import Hits
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.pssm import QueryProfile

_MIN_ATOMS = 5
"""Minimum number of atoms in the aligned residues: those of alanine, the smallest residue with CB."""


def select_templates(
    query: str,
    hits: Hits,
    profile: QueryProfile,
    of_family: bool,
    library: StructureLibrary,
    settings: TemplateSettings,
) -> TemplateHits:
    """Reject unusable hits, and rank the rest.

    Raises:
        InputError: the coordinates of a chain are damaged.
    """
    usable: list[tuple[TemplateCandidate, TemplateChain]] = []
    rejected: list[TemplateCandidate] = []
    for candidate in _candidates(hits):
        reason = _rejection_by_alignment(query, candidate, library, settings)
        if reason is None and len(usable) == settings.max_hits:
            reason = f"not among the best {settings.max_hits} hits by E-value"
        if reason is None:
            chain = library.chain(candidate.index)
            reason = _rejection_by_coordinates(chain, candidate, settings)
            if reason is None:
                usable.append((candidate, chain))
                continue
        rejected.append(replace(candidate, rejection=reason))
    counts = _expected_pairs([candidate for candidate, _ in usable], profile, of_family, library, settings)
    scores, rule = counts, "expected correct pairs"
    if settings.by_copy_accuracy:
        scores = [float(copy_template(query, *pair).expected_lddt.sum()) for pair in usable]
        rule = "the expected accuracy of copies"
    order = sorted(range(len(usable)), key=lambda k: -scores[k])
    surplus = f"not among the best {settings.max_templates} by {rule}"
    ranked = [
        replace(
            usable[k][0],
            expected_pairs=counts[k],
            rejection=None if rank < settings.max_templates else surplus,
        )
        for rank, k in enumerate(order)
    ]
    chains = [usable[k][1] for k in order[: settings.max_templates]]
    return TemplateHits(query, [*ranked, *rejected], chains)


def _candidates(hits: Hits) -> Iterator[TemplateCandidate]:
    """Yield all hits as candidates, by E-value."""
    ends = (hits.alignments.records[:, 1:5] + 1).tolist()
    identities, all_pairs = hits.identities, aligned_pairs(hits)
    for k, header in enumerate(hits.headers):
        name, release_date, source = parse_header(header)
        query_start, query_end, template_start, template_end = ends[k]
        yield TemplateCandidate(
            index=int(hits.targets[k]),
            id=name,
            source=source,
            release_date=release_date,
            evalue=float(hits.evalues[k]),
            identity=float(identities[k]),
            query_start=query_start,
            query_end=query_end,
            template_start=template_start,
            template_end=template_end,
            pairs=all_pairs[k],
            query_coverage=len(all_pairs[k]) / hits.query_length,
            bits=float(hits.bits[k]),
        )


def _rejection_by_alignment(
    query: str, candidate: TemplateCandidate, library: StructureLibrary, settings: TemplateSettings
) -> str | None:
    """Return the reason to reject a hit before its coordinates are read, or None."""
    cutoff, released = settings.max_template_date, candidate.release_date
    if cutoff is not None and released is None:
        return f"release date unknown, and templates must be from {cutoff} or before"
    if cutoff is not None and released is not None and released > cutoff:
        return f"released {released}, after {cutoff}"
    if candidate.query_coverage <= settings.min_aligned_fraction:
        return f"aligned to {candidate.query_coverage:.1%} of the query, which is too little"
    residues = candidate.template_end - candidate.template_start + 1
    if residues < settings.min_aligned_residues:
        return f"{residues} aligned residues, fewer than {settings.min_aligned_residues}"
    if settings.exclude_self and residues > settings.self_length_ratio * len(query):
        sequence = library.database.sequence(candidate.index)
        if sequence[candidate.template_start - 1 : candidate.template_end] in query:
            return "the query itself, or a large part of it"
    return None


def _rejection_by_coordinates(
    chain: TemplateChain, candidate: TemplateCandidate, settings: TemplateSettings
) -> str | None:
    """Return the reason to reject a hit by its coordinates, or None."""
    alpha, present = chain.positions[:, CA], chain.mask[:, CA]
    neighbours = present[1:] & present[:-1]
    distances = np.linalg.norm(alpha[1:] - alpha[:-1], axis=1)
    if np.any(distances[neighbours] > settings.max_ca_distance):
        return f"broken chain: neighbouring CA atoms more than {settings.max_ca_distance:g} Å apart"
    if np.count_nonzero(chain.mask[candidate.pairs[:, 1]]) < _MIN_ATOMS:
        return "no coordinates of aligned residues"
    return None


def _expected_pairs(
    candidates: Sequence[TemplateCandidate],
    profile: QueryProfile,
    of_family: bool,
    library: StructureLibrary,
    settings: TemplateSettings,
) -> list[float]:
    """Return the expected number of correctly aligned pairs of each candidate."""
    search = settings.search
    return expected_correct_pairs(
        profile.profile,
        [library.database.arrays.codes(each.index) & LETTER_BITS for each in candidates],
        [each.pairs for each in candidates],
        search.profile_gap_open if of_family else search.gap_open,
        search.gap_extend,
        GUMBEL_TABLES[search.matrix].ungapped_lambda,
    )
