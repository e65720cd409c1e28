"""Alignments found by a search, given to the chains of a job, with rows paired by species.

Rows are paired by `features.complexes.pairing`, as for AlphaFold2's multimer networks. OpenFold3 follows the
same rules (Evans et al. 2021) but reads species only from UniProt's entry names, and takes the rows of a
species in the order of the file; here species also come from the fields of UniRef's headers, and the rows of
a species in the order of their identity to the chain, so that results of any search can be paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from features.alphafold2.deterministic import make_features
from features.assembly.job import Entity, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from features.complexes.rows import DistinctRows, pair_entities, rows_of_species
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError


@dataclass(frozen=True)
class AlignedJob:
    """A job whose chains have their alignments.

    Attributes:
        notes: what is not known or assumed, one sentence each, for the user.
        paired_rows: number of paired rows after the queries.
    """

    job: MoleculeJob
    notes: tuple[str, ...]
    paired_rows: int


def add_alignments(
    job: MoleculeJob, found: Mapping[str, bytes], settings: PairingSettings = DEFAULT_PAIRING
) -> AlignedJob:
    """Return a job with the alignments of a search, and with paired rows if it has several proteins.

    Alignments of the job itself stay. If it has paired rows for any chain, these are the only ones. A paired
    alignment of the query alone means that the rows of a chain are not paired.

    Raises:
        InputError: an alignment cannot be read, or belongs to another sequence.
    """
    notes: list[str] = []
    entities = tuple(
        _with_alignment(job, entity, found, notes) if isinstance(entity, Polymer) else entity
        for entity in job.entities
    )
    aligned = _with_paired_rows(replace(job, entities=entities), notes, settings)
    entities = tuple(map(_without_empty, aligned.job.entities))
    return replace(aligned, job=replace(aligned.job, entities=entities))


def pair_given_rows(polymers: Sequence[Polymer]) -> list[Polymer]:
    """Return proteins whose paired alignments name species, with row k of each of the same species.

    Rows without a partner are left out. Paired alignments that name no species already belong together row
    by row.
    """
    given = {(each.sequence, each.paired.names): each.paired for each in polymers if each.paired is not None}
    if len(given) < 2 or not any(map(any, (alignment.species for alignment in given.values()))):
        return list(polymers)
    pairs = dict(zip(given, _pair(list(given.values()), DEFAULT_PAIRING), strict=True))
    return [
        each if each.paired is None else replace(each, paired=pairs[each.sequence, each.paired.names])
        for each in polymers
    ]


def _with_paired_rows(job: MoleculeJob, notes: list[str], settings: PairingSettings) -> AlignedJob:
    """Return a job with paired rows, if it has several distinct proteins with alignments and no such rows."""
    proteins = job.proteins()
    given = max((len(polymer.paired) for polymer in proteins if polymer.paired is not None), default=1)
    if given > 1:
        return AlignedJob(job, tuple(notes), given - 1)
    unpaired = [each for each in proteins if each.alignment is not None and each.paired is None]
    distinct = list({each.sequence: each for each in unpaired}.values())
    if len(distinct) < 2:
        return AlignedJob(job, tuple(notes), 0)
    pairs = _pair([each.alignment for each in distinct if each.alignment is not None], settings)
    paired = dict(zip([each.sequence for each in distinct], pairs, strict=True))
    count = len(pairs[0]) - 1
    if count == 0 and settings.mode != "unpaired":
        notes.append("no rows are paired: no species has rows of several chains")
    entities = tuple(
        _with_pairs(entity, paired[entity.sequence], settings)
        if entity in unpaired and entity.sequence in paired
        else entity
        for entity in job.entities
    )
    return AlignedJob(replace(job, entities=entities), tuple(notes), count)


def _without_empty(entity: Entity) -> Entity:
    """Return a molecule without a paired alignment of the query alone."""
    if not isinstance(entity, Polymer) or entity.paired is None or len(entity.paired) > 1:
        return entity
    return replace(entity, alignment=entity.alignment or entity.paired, paired=None)


def _chains(polymer: Polymer) -> str:
    return f"chain{'s' if len(polymer.chains) > 1 else ''} {', '.join(polymer.chains)}"


def _with_alignment(
    job: MoleculeJob, polymer: Polymer, found: Mapping[str, bytes], notes: list[str]
) -> Polymer:
    """Return a polymer with its alignment; add a note if it has none."""
    chains = _chains(polymer)
    if polymer.kind == MoleculeKind.DNA and polymer.alignment is not None and len(polymer.alignment) > 1:
        notes.append(f"{chains}: the network takes no alignment of DNA, so that of the job is not used")
    if polymer.has_rows or polymer.kind == MoleculeKind.DNA:
        return polymer
    if polymer.kind == MoleculeKind.RNA:
        notes.append(f"{chains}: no alignment; --rna-db searches a database of RNA")
        return polymer
    if polymer.sequence not in found:
        notes.append(f"{chains}: no alignment")
        return polymer
    alignment = parse_alignment(found[polymer.sequence])
    if alignment.query != polymer.sequence:
        reason = f"{chains}: the first row of the alignment that was found differs from the sequence"
        raise InputError(reason, *job.location_of(polymer))
    return replace(polymer, alignment=alignment)


def _pair(alignments: Sequence[Alignment], settings: PairingSettings) -> list[Alignment]:
    """Return each chain's part of the paired rows, the query first."""
    features = [make_features([each]) for each in alignments]
    # copies of a chain are one, as in OpenFold3, so that every pair has rows of different proteins
    pairs, species = pair_entities(features, [1] * len(features), settings)
    result = []
    for alignment, rows in zip(alignments, pairs.T, strict=True):
        kept, headers = rows_of_species(DistinctRows.of(alignment), rows, species)
        absent = (kept < 0)[:, None]
        result.append(
            Alignment(
                tuple("" if index < 0 else alignment.names[index] for index in headers),
                np.where(absent, np.uint8(ord("-")), alignment.letters[kept]),
                np.where(absent, alignment.deletions.dtype.type(0), alignment.deletions[kept]),
                alignment.source,
            )
        )
    return result


def _with_pairs(polymer: Polymer, paired: Alignment, settings: PairingSettings) -> Polymer:
    """Return a polymer with its part of the paired rows, and its own rows unless only pairs are used."""
    alignment = polymer.alignment
    if settings.mode == "paired" and alignment is not None:
        alignment = alignment.take(slice(1))
    return replace(polymer, alignment=alignment, paired=paired if len(paired) > 1 else None)
