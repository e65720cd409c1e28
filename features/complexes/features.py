"""Features of a complex, from the cached features of its chains or from ColabFold's A3M file."""

from collections.abc import Mapping, Sequence

import numpy as np

from features.complexes.entities import AlignedRows, Entity, group_chains
from features.complexes.merge import merge_entities
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings, pair_rows, pairing_candidates
from features.residues import encode_msa, encode_query
from features.templates.template_features import no_templates
from msa.io.alignments import Alignment
from msa.io.complex_a3m import ComplexAlignment

_QUERY = np.zeros(1, np.int64)


def complex_features(
    chains: Sequence[Mapping[str, np.ndarray]],
    settings: PairingSettings = DEFAULT_PAIRING,
    min_rows: int = 512,
    pairing: Sequence[Mapping[str, np.ndarray]] | None = None,
) -> dict[str, np.ndarray]:
    """Compute the features of a complex from those of its chains.

    Rows are paired by species, and unpaired rows that equal a paired row of their chain are dropped, as in
    DeepMind's pipeline. Chains of the same sequence are copies, of which only the first one's features are
    used. See `features.complexes.entities.group_chains` for the order of the chains in the result.

    Args:
        chains: of each chain the features in `features.schema.CACHED`, with its own templates.
        settings: which rows are paired.
        min_rows: see `merge_entities`.
        pairing: of each chain the same features of another alignment, such as AlphaFold's of UniProt, whose
            rows are paired instead; by default the same rows are paired and unpaired.

    Returns:
        The features in `features.schema.COMPLEX`.
    """
    groups = group_chains([chain["sequence"][0].decode() for chain in chains])
    firsts, copies = [group[0] for group in groups], [len(group) for group in groups]
    pairing = chains if pairing is None else pairing
    candidates = [pairing[first] for first in firsts]
    pairs = pair_entities(candidates, copies, settings)
    entities = []
    for number, first in enumerate(firsts):
        chain = chains[first]
        paired = aligned_rows(candidates[number]).take(pairs[:, number])
        own = aligned_rows(chain)
        if settings.mode == "paired":
            own = own.take(_QUERY)
        unpaired = own.take(own.rows_missing_from(paired)) if len(firsts) > 1 else own
        entities.append(
            Entity(chain["aatype"], copies[number], paired, unpaired, own.deletion_mean(), templates=chain)
        )
    return merge_entities(entities, min_rows)


def aligned_rows(features: Mapping[str, np.ndarray]) -> AlignedRows:
    """Return the alignment of a chain in its features."""
    return AlignedRows(features["msa"], features["deletion_matrix"])


def pair_entities(
    entities: Sequence[Mapping[str, np.ndarray]], copies: Sequence[int], settings: PairingSettings
) -> np.ndarray:
    """Return the paired rows of the entities of a complex; see `features.complexes.pairing.pair_rows`.

    Args:
        entities: `msa`, `species_row` and `species` of each entity (`features.schema.CACHED`).
        copies: number of chains of each entity.
        settings: which rows are paired.
    """
    if len(entities) == 1 or settings.mode == "unpaired":
        return np.zeros((1, len(entities)), np.int64)
    candidates = [pairing_candidates(entity, count) for entity, count in zip(entities, copies, strict=True)]
    return pair_rows(candidates, settings.strategy)


def colabfold_features(
    alignment: ComplexAlignment,
    templates: Sequence[Mapping[str, np.ndarray]] | None = None,
    min_rows: int = 512,
) -> dict[str, np.ndarray]:
    """Compute the features of a complex from ColabFold's A3M file, as ColabFold does.

    The file decides which rows are paired. Rows that occur twice are kept.

    Args:
        alignment: result of `msa.io.complex_a3m.parse_complex_a3m`.
        templates: of each distinct chain the features of
            `features.templates.template_features.no_templates`; default no templates.
        min_rows: see `merge_entities`. ColabFold has the number of rows that the network samples, plus 4.

    Returns:
        The features in `features.schema.COMPLEX`.
    """
    if templates is None:
        templates = [no_templates(len(query)) for query in alignment.queries]
    entities = []
    for number, query in enumerate(alignment.queries):
        paired, unpaired = _encode(alignment.paired[number]), _encode(alignment.unpaired[number])
        mean = unpaired.deletion_mean()
        copies = alignment.copies[number]
        entities.append(Entity(encode_query(query), copies, paired, unpaired, mean, templates[number]))
    return merge_entities(entities, min_rows)


def _encode(alignment: Alignment) -> AlignedRows:
    return AlignedRows(encode_msa(alignment.letters), alignment.deletions)
