"""Templates of the chains of a job, laid over its tokens.

The residue of a template that is aligned to a residue of the job gives its class and its N, Cα, C and Cβ to
all tokens of that residue; a residue that the job modifies has one token per atom. This is OpenFold3's way,
but two rules are those of AlphaFold2's templates: a residue without Cβ is masked, where OpenFold3 drops the
template, and a modified residue such as selenomethionine has the class of its parent.
"""

from collections.abc import Mapping

import numpy as np

from features.alphafold3.templates import TemplateRows
from features.assembly.atoms import Atoms
from features.assembly.job import Polymer
from features.assembly.tokens import Tokens
from features.chemistry import residue_classes, residues
from features.chemistry.residue_classes import MoleculeKind
from features.templates.candidates import TemplateHits
from features.templates.own_templates import own_template_hits
from features.templates.template_features import make_template_features
from msa.base.residues import ATOM_ORDER

_FRAME = [ATOM_ORDER[name] for name in ("N", "CA", "C")]


def features_of_hits(hits: TemplateHits, count: int = 4) -> dict[str, np.ndarray]:
    """Return AlphaFold2's features of the best templates of a chain; see `make_template_features`."""
    chains = list(zip(hits.chains, hits.templates, strict=True))[:count]
    return make_template_features(len(hits.query), [(chain, each.pairs, 0.0) for chain, each in chains])


def lay_templates(
    atoms: Atoms, tokens: Tokens, found: Mapping[str, Mapping[str, np.ndarray]], count: int = 4
) -> TemplateRows | None:
    """Return the templates of all proteins of a job; None if none has any.

    All copies of a protein have its templates. Templates given by the job replace those that were found;
    an empty list in the job means none.

    Args:
        atoms: atoms of the job.
        tokens: its tokens.
        found: features of the templates of a search by sequence, best first; see `features_of_hits`.
        count: number of templates; rows beyond the templates of a chain are gaps.
    """
    classes = np.full((count, len(tokens)), residue_classes.GAP, np.int64)
    beta = np.full((count, len(tokens), 3), np.nan)
    frames = np.full((count, len(tokens), 3, 3), np.nan)
    token_chain, residue = atoms.chain[tokens.start], atoms.residue[tokens.start] - 1
    any_template = False
    own: dict[int, dict[str, np.ndarray]] = {}
    for number, chain in enumerate(atoms.chains):
        if not isinstance(chain.entity, Polymer) or chain.kind != MoleculeKind.PROTEIN:
            continue
        features = found.get(chain.entity.sequence)
        if chain.entity.templates is not None:
            if chain.entity_index not in own:
                hits, _ = own_template_hits(chain.entity.sequence, chain.entity.templates, chain.name, count)
                own[chain.entity_index] = features_of_hits(hits, count)
            features = own[chain.entity_index]
        if features is None:
            continue
        columns = np.flatnonzero(token_chain == number)
        for row, code in enumerate(features["template_aatype"][:count]):
            any_template = True
            code = np.where(code == residues.GAP, residue_classes.GAP, code)
            classes[row, columns] = code[residue[columns]]
            mask = features["template_all_atom_masks"][row] > 0
            atoms37 = np.where(mask[..., None], features["template_all_atom_positions"][row], np.nan)
            is_glycine = code == residues.GLYCINE
            pseudo = np.where(is_glycine[:, None], atoms37[:, residues.CA], atoms37[:, residues.CB])
            beta[row, columns] = pseudo[residue[columns]]
            frames[row, columns] = atoms37[:, _FRAME][residue[columns]]
    return TemplateRows(classes, beta, frames) if any_template else None
