"""Merging of the alignments and templates of all chains into the features of a complex.

Rules, names and dtypes are those of AlphaFold-Multimer's data pipeline (Evans et al. 2021).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from features.chemistry.residues import atom_maps
from features.complexes.entities import AlignedRows, ComplexEntity
from msa.base.network_inputs import COMPLEX
from msa.base.residues import ATOM37, GAP

# largest numbers of rows of a chain, of paired rows among them, and of templates
MAX_ROWS, MAX_PAIRED_ROWS, MAX_TEMPLATES = 2048, 1024, 4


def merge_entities(entities: Sequence[ComplexEntity], min_rows: int = 512) -> dict[str, np.ndarray]:
    """Merge the entities of a complex.

    The merged alignment has the paired rows, then the unpaired rows of each entity, with gaps in all other
    chains. Copies of an entity have the same residues in each row. With one entity, all rows are its unpaired
    rows.

    Args:
        entities: at least one.
        min_rows: minimum number of rows, reached by adding masked rows, so that the network finds as many as
            it samples.

    Returns:
        The features in `msa.base.network_inputs.COMPLEX`.
    """
    aatype = _per_chain(entities, lambda entity: entity.aatype)
    residues = len(aatype)
    return {
        "aatype": aatype,
        "residue_index": _per_chain(entities, lambda entity: np.arange(len(entity.aatype), dtype=np.int32)),
        "seq_length": np.array(residues, np.int32),
        "seq_mask": np.ones(residues, np.float32),
        "assembly_num_chains": np.array(sum(entity.copies for entity in entities), np.int64),
        **_chain_ids(entities),
        "entity_mask": np.ones(residues, np.int32),
        "all_atom_mask": atom_maps(aatype)["atom37_atom_exists"].astype(np.int32),
        "all_atom_positions": np.zeros((residues, len(ATOM37), 3), np.float32),
        "deletion_mean": _per_chain(entities, lambda entity: entity.deletion_mean),
        **_merge_alignments(entities, min_rows),
        **_merge_templates(entities),
    }


def _per_chain(
    entities: Sequence[ComplexEntity], values: Callable[[ComplexEntity], np.ndarray]
) -> np.ndarray:
    """Return an array with one element per residue of an entity, for all chains."""
    return np.concatenate([np.tile(values(entity), entity.copies) for entity in entities])


def _chain_ids(entities: Sequence[ComplexEntity]) -> dict[str, np.ndarray]:
    """Return the number of each residue's chain, entity, and copy of the entity, each from 1."""
    chains = [
        (number, copy, len(entity.aatype))
        for number, entity in enumerate(entities, 1)
        for copy in range(1, entity.copies + 1)
    ]
    entity_ids, copies, lengths = (np.array(column) for column in zip(*chains, strict=True))
    ids = {"asym_id": np.arange(1, len(chains) + 1), "entity_id": entity_ids, "sym_id": copies}
    return {name: np.repeat(values, lengths).astype(np.float32) for name, values in ids.items()}


def _merge_alignments(entities: Sequence[ComplexEntity], min_rows: int) -> dict[str, np.ndarray]:
    """Return the alignment of all chains with its masks."""
    ends = np.cumsum([len(entity.aatype) * entity.copies for entity in entities]).tolist()
    columns = [slice(start, end) for start, end in pairwise([0, *ends])]
    paired_rows = min(len(entities[0].paired), MAX_PAIRED_ROWS) if len(entities) > 1 else 0
    blocks = [
        (0, columns[number], _first_rows(entity.paired, paired_rows), entity.copies)
        for number, entity in enumerate(entities)
    ]
    rows = paired_rows
    for number, entity in enumerate(entities):
        unpaired = _first_rows(entity.unpaired, _unpaired_rows(entity, paired_rows))
        blocks.append((rows, columns[number], unpaired, entity.copies))
        rows += len(unpaired)

    shape = max(rows, min_rows), ends[-1]
    msa, mask = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    msa[:rows], mask[:rows] = GAP, 1
    deletions, block_mask = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for first, residues, block, copies in blocks:
        part = slice(first, first + len(block)), residues
        msa[part] = np.tile(block.codes, copies)
        deletions[part] = np.tile(block.deletions, copies)
        block_mask[part] = 1
    is_query = np.zeros(shape[0], np.float32)
    is_query[0] = 1
    return {
        "msa": msa,
        "msa_mask": mask,
        "deletion_matrix": deletions,
        "bert_mask": block_mask,
        "cluster_bias_mask": is_query,
        "num_alignments": np.array(rows, np.int32),
    }


def _unpaired_rows(entity: ComplexEntity, paired_rows: int) -> int:
    """Return how many unpaired rows of an entity fit into MAX_ROWS after its non-empty paired rows."""
    occupied = (entity.paired.codes[:paired_rows] != GAP).any(axis=1).sum()
    return MAX_ROWS - int(occupied)


def _first_rows(alignment: AlignedRows, rows: int) -> AlignedRows:
    return AlignedRows(alignment.codes[:rows], alignment.deletions[:rows])


def _merge_templates(entities: Sequence[ComplexEntity]) -> dict[str, np.ndarray]:
    """Return the templates of all chains: template k of each chain is in slot k, and unused slots are 0."""
    chains = [slots for entity in entities for slots in [template_slots(entity.templates)] * entity.copies]
    merged = {name: np.concatenate([slots[name] for slots in chains], axis=1) for name in chains[0]}
    # DeepMind's pipeline has the number of the first chain here; the network does not read it
    templates = min(len(entities[0].templates["template_aatype"]), MAX_TEMPLATES)
    return merged | {"num_templates": np.array(templates, np.int32)}


def template_slots(templates: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the templates of one chain as features of a complex: MAX_TEMPLATES slots, unused ones 0.

    Args:
        templates: the features that `features.templates.template_features.no_templates` returns.
    """
    result = {}
    for name in ("template_aatype", "template_all_atom_positions", "template_all_atom_mask"):
        values = templates["template_all_atom_masks" if name.endswith("mask") else name][:MAX_TEMPLATES]
        result[name] = np.zeros((MAX_TEMPLATES, *values.shape[1:]), COMPLEX[name].dtype)
        result[name][: len(values)] = values
    return result
