"""Scores of predictions as JSON: with ColabFold's keys, and as AlphaFold 3 writes them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.chains import chain_names
from model.prediction import AllAtomScores, PairScores, Prediction
from model.structure import Structure


def format_scores(prediction: Prediction, extra: dict[str, Any] | None = None) -> str:
    """Format the scores of a prediction as JSON, with ColabFold's keys, order and rounding, and extra ones.

    Keys: plddt [N]; for networks with a PAE head max_pae, pae [N, N] (Å) and ptm; for complexes also iptm,
    actifptm, per_chain_ptm by name of the chain ("A"), pairwise_iptm and pairwise_actifptm by pairs of names
    ("A-B"), and those of `_pair_scores`.
    """
    scores: dict[str, Any] = {"plddt": _round(prediction.plddt)}
    if prediction.pae is not None:
        scores["max_pae"] = float(prediction.pae.max())
        scores["pae"] = _round(prediction.pae)
    if (pairs := prediction.scores) is not None:
        names = chain_names(len(pairs.per_chain_ptm))
        scores["pairwise_actifptm"] = _by_pair(names, pairs.pairwise_actifptm, 3)
        scores["pairwise_iptm"] = _by_pair(names, pairs.pairwise_iptm, 3)
        scores["per_chain_ptm"] = _by_chain(names, pairs.per_chain_ptm, 3)
        scores["actifptm"] = round(pairs.actifptm, 3)
    if prediction.ptm is not None:
        scores["ptm"] = round(float(prediction.ptm), 2)
    if pairs is not None:
        scores["iptm"] = round(pairs.iptm, 2)
        scores |= _pair_scores(names, pairs)
        scores["pairwise_pae_min"] = _by_pair(names, pairs.pae_min, 2, both_directions=True)
    return json.dumps(scores | (extra or {}))


def _pair_scores(names: Sequence[str], pairs: PairScores) -> dict[str, Any]:
    """Return pdockq, lis and ilis by pairs of names, ipsae and pdockq2 in both directions, and by chain."""
    return {
        "ipsae": _by_pair(names, pairs.ipsae, 6, both_directions=True),
        "pdockq": _by_pair(names, pairs.pdockq, 4),
        "pdockq2": _by_pair(names, pairs.pdockq2, 4, both_directions=True),
        "per_chain_pdockq2": _by_chain(names, pairs.per_chain_pdockq2, 4),
        "lis": _by_pair(names, pairs.lis, 4),
        "ilis": _by_pair(names, pairs.ilis, 4),
    }


def format_all_atom_scores(prediction: Prediction, extra: Mapping[str, Any] | None = None) -> str:
    """Format the scores as JSON, with ColabFold's keys where it has one.

    Keys of ColabFold, of tokens instead of residues: plddt, max_pae, pae, ptm, iptm, per_chain_ptm and
    pairwise_iptm. Further keys: ranking_score, pde, has_clash, fraction_disordered, atom_plddt,
    per_chain_plddt, pairwise_pae_min in both directions, those of `_pair_scores` for protein chains, the
    kinds of chains, and tokens with chain, residue, component and atom ("" for whole residues).

    Pairs are named like "A-B"; they are left out if the name of a
    chain has "-", because "A-B-C" could be two pairs. chain_pair_iptm and chain_pair_pae_min, AlphaFold 3's
    matrices in the order of chain_ids, are always there.

    Raises:
        ValueError: a score of a pair of tokens is not finite.
    """
    structure, own = prediction.structure, prediction.all_atom
    names, chain = structure.chain_names, structure.atom_chain
    assert own is not None and prediction.pae is not None
    assert prediction.ptm is not None and prediction.ranking_score is not None
    chain_plddt = np.bincount(chain, prediction.b_factors) / np.bincount(chain)
    scores: dict[str, Any] = {
        "chain_ids": list(names),
        "plddt": _round(prediction.plddt),
        "max_pae": round(float(prediction.pae.max()), 2),
        "pae": prediction.pae,
        "per_chain_ptm": _by_chain(names, own.chain_ptm, 3),
        "ptm": round(prediction.ptm, 2),
    }
    if own.iptm is not None:
        scores["iptm"] = round(own.iptm, 2)
        scores |= {
            "chain_pair_iptm": np.round(_chain_pair_iptm(own), 3).tolist(),
            "chain_pair_pae_min": _round(prediction.chain_pair_pae_min),
        }
        if not any("-" in name for name in names):
            # imports torch, which workers that write other predictions do not need
            from model.confidence.pair_scores import protein_pair_scores

            pae_min = prediction.chain_pair_pae_min
            scores["pairwise_iptm"] = _by_pair(names, own.chain_pair_iptm, 3)
            scores["pairwise_pae_min"] = _by_pair(names, pae_min, 2, both_directions=True)
            if (pairs := protein_pair_scores(prediction)) is not None:
                scores |= _pair_scores(*pairs)
    scores |= {
        "ranking_score": round(prediction.ranking_score, 4),
        "has_clash": own.has_clash,
        "fraction_disordered": round(own.fraction_disordered, 4),
        "per_chain_plddt": _by_chain(names, chain_plddt, 2),
        "atom_plddt": _round(prediction.b_factors),
        "pde": own.pde,
        "tokens": _tokens(structure),
        "chains": {name: str(structure.kind(index)) for index, name in enumerate(names)},
    }
    if own.gpde is not None:
        scores["gpde"] = round(own.gpde, 3)
    return _dump(scores | dict(extra or {}))


def format_summary_confidences(prediction: Prediction) -> str:
    """Format the scores with the keys of AlphaFold 3's `summary_confidences.json`, rounded as it does."""
    own = prediction.all_atom
    assert own is not None and prediction.ptm is not None and prediction.ranking_score is not None
    is_complex = prediction.num_chains > 1
    chain_iptm = np.nanmean(own.chain_pair_iptm, axis=1).tolist() if is_complex else [None]
    summary = {
        "chain_iptm": [None if value is None else round(value, 2) for value in chain_iptm],
        "chain_pair_iptm": _round(_chain_pair_iptm(own)),
        "chain_pair_pae_min": _round(prediction.chain_pair_pae_min),
        "chain_ptm": _round(own.chain_ptm),
        "fraction_disordered": round(own.fraction_disordered, 2),
        "has_clash": float(own.has_clash),
        "iptm": None if own.iptm is None else round(own.iptm, 2),
        "ptm": round(prediction.ptm, 2),
        "ranking_score": round(prediction.ranking_score, 2),
    }
    return json.dumps(summary, indent=1)


def _chain_pair_iptm(scores: AllAtomScores) -> np.ndarray:
    """Return the ipTM of each pair of chains [C, C]; as AlphaFold 3, the chain's pTM on the diagonal."""
    pairs = scores.chain_pair_iptm.copy()
    np.fill_diagonal(pairs, scores.chain_ptm)
    return pairs


def format_confidences(prediction: Prediction) -> str:
    """Format the scores with the keys of AlphaFold 3's `confidences.json`; contact_probs only if known.

    Raises:
        ValueError: a score of a pair of tokens is not finite.
    """
    structure = prediction.structure
    names = np.array(structure.chain_names, object)
    full: dict[str, Any] = {
        "atom_chain_ids": names[structure.atom_chain].tolist(),
        "atom_plddts": _round(prediction.b_factors),
        "pae": prediction.pae,
        "token_chain_ids": names[structure.token_chain].tolist(),
        "token_res_ids": structure.residue_number[structure.token_residue].tolist(),
    }
    if prediction.all_atom is not None and prediction.all_atom.contact_probs is not None:
        full["contact_probs"] = prediction.all_atom.contact_probs
    return _dump(dict(sorted(full.items())))


def _tokens(structure: Structure) -> dict[str, list[Any]]:
    """Return chain, residue number, component and atom of each token; no atom for whole residues."""
    residue = structure.token_residue
    names = np.array(structure.chain_names, object)
    return {
        "chain": names[structure.token_chain].tolist(),
        "residue": structure.residue_number[residue].tolist(),
        "component": structure.residue_code[residue].tolist(),
        "atom": np.where(structure.token_is_atom, structure.atom_name[structure.token_start], "").tolist(),
    }


def _by_chain(names: Sequence[str], values: np.ndarray, digits: int) -> dict[str, float]:
    return {name: round(float(value), digits) for name, value in zip(names, values, strict=True)}


def _by_pair(
    names: Sequence[str], values: np.ndarray, digits: int, both_directions: bool = False
) -> dict[str, float]:
    """Return scores [C, C] of pairs of chains, keyed by their names, such as "A-B"."""
    return {
        f"{names[a]}-{names[b]}": round(float(values[a, b]), digits)
        for a in range(len(names))
        for b in range(len(names))
        if a < b or (both_directions and a != b)
    }


def _dump(content: dict[str, Any]) -> str:
    """Return JSON, with matrices of numbers that are not negative rounded to two decimals.

    The numbers come from a table of texts, ten times as fast as from `json` for thousands of tokens.
    """
    matrices = {key: value for key, value in content.items() if isinstance(value, np.ndarray)}
    parts = []
    for key, value in content.items():
        text = _matrix(key, value) if key in matrices else json.dumps(value)
        parts.append(f"{json.dumps(key)}: {text}")
    return "{" + ", ".join(parts) + "}"


def _matrix(name: str, values: np.ndarray) -> str:
    """Return a matrix as JSON, with the same digits as `_round`."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} is not finite")
    hundredths = np.rint(values.astype(np.float64) * 100).astype(np.int64)
    texts = np.array([repr(number / 100) for number in range(int(hundredths.max(initial=0)) + 1)], object)
    return "[" + ", ".join(f"[{', '.join(row)}]" for row in texts[hundredths].tolist()) + "]"


def _round(values: np.ndarray) -> list[Any]:
    # in float64, so that JSON shows 61.34 and not the digits of the nearest float32
    rounded: list[Any] = np.round(values.astype(np.float64), 2).tolist()
    return rounded
