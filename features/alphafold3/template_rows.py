"""Templates of the chains of a job, laid over its tokens.

The residue of a template that is aligned to a residue of the job gives its class and its N, Cα, C and Cβ to
all tokens of that residue; a residue that the job modifies has one token per atom. This is OpenFold3's way,
but two rules are those of AlphaFold2's templates: a residue without Cβ is masked, where OpenFold3 drops the
template, and a modified residue such as selenomethionine has the class of its parent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, eq=False)
class ChainTemplate:
    """A template laid over the sequence of a chain.

    Attributes:
        classes: int [R], residue classes (`features.chemistry.residue_classes`); the gap's where no residue
            is aligned.
        positions: float32 [R, 37, 3], Å, in AlphaFold2's atom order.
        mask: bool [R, 37], atoms that are present.
    """

    classes: np.ndarray = field(repr=False)
    positions: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)


def templates_of_features(features: Mapping[str, np.ndarray], count: int = 4) -> list[ChainTemplate]:
    """Return the best templates of a chain, given template features of AlphaFold2.

    Args:
        features: those that `features.templates.template_features.no_templates` returns, best first.
        count: largest number of templates.
    """
    codes = features["template_aatype"][:count]
    return [
        ChainTemplate(
            np.where(code == residues.GAP, residue_classes.GAP, code),
            features["template_all_atom_positions"][index],
            features["template_all_atom_masks"][index] > 0,
        )
        for index, code in enumerate(codes)
    ]


def templates_of_hits(hits: TemplateHits, count: int = 4) -> list[ChainTemplate]:
    """Return the best templates of a chain, given the result of a template search."""
    chains = list(zip(hits.chains, hits.templates, strict=True))[:count]
    placed = [(chain, candidate.pairs, 0.0) for chain, candidate in chains]
    return templates_of_features(make_template_features(len(hits.query), placed), count)


def lay_templates(
    atoms: Atoms, tokens: Tokens, found: Mapping[str, Sequence[ChainTemplate]], count: int = 4
) -> TemplateRows | None:
    """Return the templates of all proteins of a job; None if none has any.

    All copies of a protein have its templates. Templates given by the job replace those that were found;
    an empty list in the job means none.

    Args:
        atoms: atoms of the job.
        tokens: its tokens.
        found: templates of a search by sequence, best first.
        count: number of templates; rows beyond the templates of a chain are gaps.
    """
    classes = np.full((count, len(tokens)), residue_classes.GAP, np.int64)
    beta = np.full((count, len(tokens), 3), np.nan)
    frames = np.full((count, len(tokens), 3, 3), np.nan)
    token_chain, residue = atoms.chain[tokens.start], atoms.residue[tokens.start] - 1
    any_template = False
    own: dict[int, Sequence[ChainTemplate]] = {}
    for number, chain in enumerate(atoms.chains):
        if not isinstance(chain.entity, Polymer) or chain.kind != MoleculeKind.PROTEIN:
            continue
        if chain.entity.templates is None:
            templates = found.get(chain.entity.sequence, ())
        else:
            if chain.entity_index not in own:
                hits, _ = own_template_hits(chain.entity.sequence, chain.entity.templates, chain.name, count)
                own[chain.entity_index] = templates_of_hits(hits, count)
            templates = own[chain.entity_index]
        columns = np.flatnonzero(token_chain == number)
        for row, template in enumerate(templates[:count]):
            any_template = True
            classes[row, columns] = template.classes[residue[columns]]
            atoms37 = np.where(template.mask[..., None], template.positions, np.nan)
            is_glycine = template.classes == residues.GLYCINE
            pseudo = np.where(is_glycine[:, None], atoms37[:, residues.CA], atoms37[:, residues.CB])
            beta[row, columns] = pseudo[residue[columns]]
            frames[row, columns] = atoms37[:, _FRAME][residue[columns]]
    return TemplateRows(classes, beta, frames) if any_template else None
