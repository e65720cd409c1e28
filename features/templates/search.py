"""Template search: profiles of queries against a structure library."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from features.templates.candidates import TemplateHits
from features.templates.library.library import StructureLibrary
from features.templates.library.settings import TemplateSettings
from features.templates.selection import select_templates
from features.templates.template_features import make_template_features
from msa.alignments.files import Alignment
from msa.alphabet import GAP, encode
from msa.base.residues import GAP as MSA_GAP
from msa.engines.engine import Engine
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.profile.family_profile import MAX_MEMBER_IDENTITY, distinct_rows, family_profile
from msa.profile.pssm import ProfileRecord, QueryProfile
from msa.search.database_search import search_many

_MAX_PROFILE_ROWS = 4096
"""Maximum number of rows that a profile is computed from; more change little and take much longer."""


def alignment_query(alignment: Alignment, name: str = "query") -> ProfileRecord:
    """Return a query with the profile of an alignment.

    Args:
        alignment: any alignment; its first row is the query.
        name: header of the query.
    """
    letters = alignment.letters[:_MAX_PROFILE_ROWS]
    rows = np.where(letters == ord("-"), np.uint8(GAP), encode(letters.tobytes()).reshape(letters.shape))
    return _profile_query(rows, alignment.query, name)


def features_query(features: Mapping[str, np.ndarray], name: str = "query") -> ProfileRecord:
    """Return a query with the profile of a target's deterministic features.

    Args:
        features: `msa` and `sequence` of `features.alphafold2.schema.CACHED_FEATURES`.
        name: header of the query.
    """
    codes = features["msa"][:_MAX_PROFILE_ROWS]
    rows = np.where(codes == MSA_GAP, GAP, codes).astype(np.uint8)
    return _profile_query(rows, features["sequence"][0].decode("ascii"), name)


def _profile_query(rows: np.ndarray, sequence: str, name: str) -> ProfileRecord:
    """Return a query with the profile of rows, uint8 [n, length], letter codes or GAP."""
    rows = distinct_rows(rows, MAX_MEMBER_IDENTITY)
    settings = SearchSettings()
    profile = family_profile(rows, settings.comp_bias_corr, settings.matrix)
    return ProfileRecord(name, sequence, profile, "alignment", len(rows) > 1)


def search_templates(
    query: FastaRecord, library: StructureLibrary, settings: TemplateSettings | None = None
) -> TemplateHits:
    """Find templates for one query; see `search_templates_many`."""
    ((_, hits),) = search_templates_many([query], library, settings)
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
    profiles: deque[tuple[QueryProfile, bool]] = deque()

    def keep_profile(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
        profiles.append((profile, of_family))

    results = search_many(queries, library.database, settings.search, engine=engine, on_profile=keep_profile)
    pending: deque[tuple[FastaRecord, Future[TemplateHits]]] = deque()
    # kernels, decompression and most of numpy's work release the GIL
    with ThreadPoolExecutor(settings.threads, "templates") as pool:
        for query, hits in results:
            profile, of_family = profiles.popleft()
            selection = pool.submit(
                select_templates, query.sequence, hits, profile, of_family, library, settings
            )
            pending.append((query, selection))
            if len(pending) > 2 * settings.threads:
                first, finished = pending.popleft()
                yield first, finished.result()
        while pending:
            first, finished = pending.popleft()
            yield first, finished.result()


def hit_features(hits: TemplateHits) -> dict[str, np.ndarray]:
    """Make the template features of a search's templates; see `make_template_features`."""
    templates = [
        (chain, each.pairs, each.expected_pairs or 0.0)
        for chain, each in zip(hits.chains, hits.templates, strict=True)
    ]
    return make_template_features(len(hits.query), templates)
