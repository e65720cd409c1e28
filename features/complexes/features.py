"""Features of a complex, from the features of its chains or from the rows of its alignment."""

from collections.abc import Mapping, Sequence

import numpy as np

from features.chemistry.residues import encode_query
from features.complexes.entities import ComplexEntity, group_chains
from features.complexes.merge import merge_entities
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from features.complexes.rows import ComplexRows, pair_chains
from features.templates.template_features import no_templates
from msa.base.network_inputs import COMPLEX


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
        chains: for each chain, `features.alphafold2.schema.CACHED_FEATURES` with its own templates.
        settings: which rows are paired.
        min_rows: see `merge_entities`.
        pairing: for each chain, the same features of another alignment from which the paired rows are taken,
            such as AlphaFold's alignment with UniProt; by default they are taken from `chains`.

    Returns:
        The features in `msa.base.network_inputs.COMPLEX`.
    """
    groups = group_chains([chain["sequence"][0].decode() for chain in chains])
    return features_of_rows(
        pair_chains(chains, settings, pairing), [chains[group[0]] for group in groups], min_rows
    )


def features_of_rows(
    rows: ComplexRows,
    templates: Sequence[Mapping[str, np.ndarray]] | None = None,
    min_rows: int = 512,
) -> dict[str, np.ndarray]:
    """Compute the features of a complex from the rows of its alignment.

    If the unpaired rows are complete alignments, those that equal a paired row of their chain are dropped, as
    in DeepMind's pipeline; otherwise all rows are kept, as in ColabFold.

    Args:
        rows: paired and unpaired rows.
        templates: for each entity, the features that
            `features.templates.template_features.no_templates` returns; default no templates.
        min_rows: see `merge_entities`.

    Returns:
        The features in `msa.base.network_inputs.COMPLEX`, with the chains in the order of `group_chains`.
    """
    if templates is None:
        templates = [no_templates(len(sequence)) for sequence in rows.sequences]
    entities = []
    for number, (sequence, copies) in enumerate(zip(rows.sequences, rows.copies, strict=True)):
        paired, unpaired = rows.paired[number], rows.unpaired[number]
        deletion_mean = unpaired.deletion_mean()
        if rows.is_complete and len(rows.sequences) > 1:
            unpaired = unpaired.take(unpaired.rows_missing_from(paired))
        entities.append(
            ComplexEntity(encode_query(sequence), copies, paired, unpaired, deletion_mean, templates[number])
        )
    return merge_entities(entities, min_rows)


def in_input_order(features: Mapping[str, np.ndarray], rows: ComplexRows) -> dict[str, np.ndarray]:
    """Return the features of a complex with the chains in the order of the input instead of by entity.

    The network accepts any order; its predictions have the same one.
    """
    chains_by_entity = [
        chain
        for entity in range(len(rows.sequences))
        for chain, other in enumerate(rows.order)
        if other == entity
    ]
    if chains_by_entity == sorted(chains_by_entity):
        return dict(features)
    lengths = [len(sequence) for sequence in rows.chains]
    ends = np.cumsum([lengths[chain] for chain in chains_by_entity]).tolist()
    starts = dict(zip(chains_by_entity, [0, *ends[:-1]], strict=True))
    residues = np.concatenate(
        [np.arange(starts[chain], starts[chain] + length) for chain, length in enumerate(lengths)]
    )
    ordered = dict(features)
    for name, array in COMPLEX.items():
        axes = array.axes.split()
        if "N" in axes:
            ordered[name] = np.take(features[name], residues, axis=axes.index("N"))
    numbers = np.arange(1, len(lengths) + 1, dtype=features["asym_id"].dtype)
    ordered["asym_id"] = np.repeat(numbers, lengths)
    return ordered
