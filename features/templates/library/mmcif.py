"""Chains of known structure as mmCIF."""

from collections.abc import Mapping

import gemmi
import numpy as np

from features.templates.library.chains import TemplateChain
from msa.base.residues import ATOM37, RESTYPE_NAMES, RESTYPES

_NAMES = dict(zip(RESTYPES, RESTYPE_NAMES[:20], strict=True))
UNKNOWN_DATE = "1900-01-01"
"""Release date of chains without one; AlphaFold 3 requires a date."""


def known_residues(chain: TemplateChain) -> np.ndarray:
    """Return which residues have coordinates: bool [residues]."""
    known: np.ndarray = chain.mask.any(axis=1) & np.isin(list(chain.sequence), list(_NAMES))
    return known


def chains_as_mmcif(entry: str, chains: Mapping[str, TemplateChain]) -> str:
    """Return the residues of chains with known coordinates as mmCIF text, with the release date."""
    structure = gemmi.Structure()
    structure.name = entry
    model = gemmi.Model(1)
    for number, (name, chain) in enumerate(chains.items(), 1):
        polymer = _polymer(name, str(number), chain)
        entity = gemmi.Entity(str(number))
        entity.entity_type, entity.polymer_type = gemmi.EntityType.Polymer, gemmi.PolymerType.PeptideL
        entity.subchains = [name]
        entity.full_sequence = [residue.name for residue in polymer]
        structure.entities.append(entity)
        model.add_chain(polymer)
    structure.add_model(model)
    document = structure.make_mmcif_document()
    block = document.sole_block()
    block.name = entry
    for row in block.find("_chem_comp.", ["type"]):
        # AlphaFold2 takes chains of peptides only
        row[0] = "'PEPTIDE LINKING'"
    date = next(iter(chains.values())).release_date
    history = block.init_loop("_pdbx_audit_revision_history.", ["ordinal", "revision_date"])
    history.add_row(["1", date or UNKNOWN_DATE])
    return str(document.as_string())


def _polymer(name: str, entity: str, chain: TemplateChain) -> gemmi.Chain:
    """Return the residues of a chain with known coordinates."""
    polymer = gemmi.Chain(name)
    for number, index in enumerate(np.flatnonzero(known_residues(chain)).tolist(), 1):
        residue = gemmi.Residue()
        residue.name, residue.seqid = _NAMES[chain.sequence[index]], gemmi.SeqId(number, " ")
        residue.label_seq, residue.subchain, residue.entity_id = number, name, entity
        residue.het_flag, residue.entity_type = "A", gemmi.EntityType.Polymer
        for slot in np.flatnonzero(chain.mask[index]).tolist():
            atom = gemmi.Atom()
            atom.name, atom.element = ATOM37[slot], gemmi.Element(ATOM37[slot][0])
            atom.pos = gemmi.Position(*chain.positions[index, slot].tolist())
            atom.occ = 1.0
            residue.add_atom(atom)
        polymer.add_residue(residue)
    return polymer
