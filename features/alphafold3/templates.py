"""Features of templates: classes, distances of Cβ atoms and directions in backbone frames."""

from dataclasses import dataclass, field

import numpy as np

from features.alphafold3.tokens import one_hot
from features.assembly.tokens import Tokens
from features.chemistry.residue_classes import CLASSES, GAP

_BIN_EDGES = np.linspace(3.25, 50.75, 39) ** 2
_LAST_EDGE = 1e8
_EPSILON = np.float32(1e-6)


@dataclass(frozen=True, eq=False)
class TemplateRows:
    """Templates laid over the tokens of a job; tokens of one chain only see that chain's template.

    Attributes:
        classes: int [K, T], residue classes; the gap's where there is no template.
        pseudo_beta: float [K, T, 3], Cβ (Cα of glycine) in Å; NaN where absent.
        frames: float [K, T, 3, 3], N, Cα and C in Å; NaN where absent.
    """

    classes: np.ndarray = field(repr=False)
    pseudo_beta: np.ndarray = field(repr=False)
    frames: np.ndarray = field(repr=False)


def template_features(tokens: Tokens, rows: TemplateRows | None, count: int) -> dict[str, np.ndarray]:
    """Return the features of a job's templates; see `msa.base.network_inputs.ALL_ATOM`.

    Args:
        tokens: the tokens.
        rows: the templates; None without.
        count: number of templates, used when there are none.
    """
    if rows is None:
        shape = count, len(tokens)
        absent = np.full((*shape, 3, 3), np.nan)
        rows = TemplateRows(np.full(shape, GAP), absent[..., 0], absent)
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
