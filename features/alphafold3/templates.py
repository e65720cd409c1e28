"""Templates of the chains of a job, and the network's features of them.

The residue of a template that is aligned to a residue of the job gives its class and its N, Cα, C and Cβ to
all tokens of that residue, as in OpenFold3. Two rules are AlphaFold2's: a residue without Cβ is masked, where
OpenFold3 drops the template, and a modified residue such as selenomethionine has the class of its parent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from features.alphafold3.tokens import one_hot
from features.assembly.atoms import Atoms
from features.assembly.job import Polymer
from features.assembly.tokens import Tokens
from features.chemistry import residues
from features.chemistry.residue_classes import CLASSES, GAP, MoleculeKind
from features.templates.candidates import TemplateHits
from features.templates.job_templates import job_template_hits
from features.templates.template_features import make_template_features
from msa.base.residues import ATOM_ORDER

_FRAME = [ATOM_ORDER[name] for name in ("N", "CA", "C")]
_BIN_EDGES = np.linspace(3.25, 50.75, 39) ** 2
_LAST_EDGE = 1e8
_EPSILON = np.float32(1e-6)


@dataclass(frozen=True, eq=False)
class TokenTemplates:
    """Templates mapped to the tokens of a job; tokens of one chain only see that chain's template.

    Attributes:
        classes: int [K, T], residue classes; the gap's where there is no template.
        pseudo_beta: float [K, T, 3], Cβ (Cα of glycine) in Å; NaN where absent.
        frames: float [K, T, 3, 3], N, Cα and C in Å; NaN where absent.
    """

    classes: np.ndarray = field(repr=False)
    pseudo_beta: np.ndarray = field(repr=False)
    frames: np.ndarray = field(repr=False)


def features_of_hits(hits: TemplateHits, count: int = 4) -> dict[str, np.ndarray]:
    """Return AlphaFold2's features of the best templates of a chain; see `make_template_features`."""
    chains = list(zip(hits.chains, hits.templates, strict=True))[:count]
    return make_template_features(len(hits.query), [(chain, each.pairs, 0.0) for chain, each in chains])


def map_templates_to_tokens(
    atoms: Atoms, tokens: Tokens, found: Mapping[str, Mapping[str, np.ndarray]], count: int = 4
) -> TokenTemplates | None:
    """Return the templates of all proteins of a job; None if none has any.

    All copies of a protein have its templates. Templates given by the job replace those that were found;
    an empty list in the job means none.

    Args:
        atoms: atoms of the job.
        tokens: its tokens.
        found: features of the templates of a search by sequence, best first; see `features_of_hits`.
        count: number of templates; rows beyond the templates of a chain are gaps.
    """
    classes = np.full((count, len(tokens)), GAP, np.int64)
    beta = np.full((count, len(tokens), 3), np.nan)
    frames = np.full((count, len(tokens), 3, 3), np.nan)
    token_chain, residue = atoms.chain[tokens.start], atoms.residue[tokens.start] - 1
    any_template = False
    given: dict[int, dict[str, np.ndarray]] = {}
    for number, chain in enumerate(atoms.chains):
        if not isinstance(chain.entity, Polymer) or chain.kind != MoleculeKind.PROTEIN:
            continue
        features = found.get(chain.entity.sequence)
        if chain.entity.templates is not None:
            if chain.entity_index not in given:
                hits, _ = job_template_hits(chain.entity.sequence, chain.entity.templates, chain.name, count)
                given[chain.entity_index] = features_of_hits(hits, count)
            features = given[chain.entity_index]
        if features is None:
            continue
        columns = np.flatnonzero(token_chain == number)
        for row, code in enumerate(features["template_aatype"][:count]):
            any_template = True
            code = np.where(code == residues.GAP, GAP, code)
            classes[row, columns] = code[residue[columns]]
            mask = features["template_all_atom_masks"][row] > 0
            atoms37 = np.where(mask[..., None], features["template_all_atom_positions"][row], np.nan)
            is_glycine = code == residues.GLYCINE
            pseudo = np.where(is_glycine[:, None], atoms37[:, residues.CA], atoms37[:, residues.CB])
            beta[row, columns] = pseudo[residue[columns]]
            frames[row, columns] = atoms37[:, _FRAME][residue[columns]]
    return TokenTemplates(classes, beta, frames) if any_template else None


def template_features(tokens: Tokens, rows: TokenTemplates | None, count: int) -> dict[str, np.ndarray]:
    """Return the features of a job's templates; see `msa.base.network_inputs.ALL_ATOM`.

    Args:
        tokens: the tokens.
        rows: the templates; None without.
        count: number of templates, used when there are none.
    """
    if rows is None:
        shape = count, len(tokens)
        absent = np.full((*shape, 3, 3), np.nan)
        rows = TokenTemplates(np.full(shape, GAP), absent[..., 0], absent)
    same_chain = (tokens.chain[:, None] == tokens.chain).astype(np.float32)
    beta_mask = (~np.isnan(rows.pseudo_beta).any(-1)).astype(np.float32)
    frame_mask = (~np.isnan(rows.frames).any((-2, -1))).astype(np.float32)
    return {
        "template_pseudo_beta_mask": beta_mask,
        "template_backbone_frame_mask": frame_mask,
        "template_restype": one_hot(rows.classes, CLASSES),
        "template_distogram": _distogram(rows.pseudo_beta, beta_mask, same_chain),
        "template_unit_vector": _directions(rows.frames, frame_mask, same_chain),
    }


def _pairs(mask: np.ndarray, same_chain: np.ndarray) -> np.ndarray:
    """Return the pairs of a mask [T] within chains: float32 [T, T, 1]."""
    return (mask[:, None] * mask * same_chain)[..., None]


def _distogram(positions: np.ndarray, mask: np.ndarray, same_chain: np.ndarray) -> np.ndarray:
    """Return the one-hot bins of squared distances: int8 [K, T, T, 39]."""
    upper = np.append(_BIN_EDGES[1:], _LAST_EDGE)
    result = np.zeros((*positions.shape[:2], positions.shape[1], len(upper)), np.int8)
    for template, single in enumerate(positions):
        if np.isnan(single).all():
            continue
        squared = ((single[:, None] - single) ** 2).sum(-1)[..., None]
        bins = (squared > _BIN_EDGES) & (squared < upper)
        result[template] = bins * _pairs(mask[template], same_chain)
    return result


def _directions(frames: np.ndarray, mask: np.ndarray, same_chain: np.ndarray) -> np.ndarray:
    """Return the direction of every Cα seen from every backbone frame: float32 [K, T, T, 3]."""
    result = np.zeros((*frames.shape[:2], frames.shape[1], 3), np.float32)
    for template, single in enumerate(frames):
        if np.isnan(single).all():
            continue
        nitrogen, alpha, carbon = (np.nan_to_num(single[:, i]).astype(np.float32) for i in range(3))
        first = _unit(carbon - alpha)
        second = nitrogen - alpha
        second = _unit(second - first * (first * second).sum(-1, keepdims=True))
        axes = np.stack([first, second, np.cross(first, second)], 1)  # [T, axis, 3]
        offsets = alpha[None] - alpha[:, None]
        directions = _unit(np.einsum("tax,tux->tua", axes, offsets))
        result[template] = directions * _pairs(mask[template], same_chain)
    return result


def _unit(vector: np.ndarray) -> np.ndarray:
    """Return vectors of length one; zero for those shorter than a millionth of an Å."""
    norm = np.sqrt(np.maximum((vector**2).sum(-1, keepdims=True), _EPSILON**2))
    return vector / norm
