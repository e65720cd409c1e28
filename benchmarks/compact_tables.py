"""Scores of held-out chains, tables of their means, and an ideal helix as baseline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from model.alphafold2.modules.heads import shift_log_odds
from model.checkpoints.network_folder import HeldOutCase

# limits of the numbers of effective sequences, and of the identities of the best template
EFFECTIVE = (0.0, 10.0, 30.0, None)
IDENTITY = (0.0, 0.3, 0.4)
CLOSE_IDENTITY = (0.4, 0.6, None)
# sets of held-out chains: whether they have templates, and the limits of their kinds
GROUPS: dict[str, tuple[bool, tuple[float | None, ...]]] = {
    "A": (False, EFFECTIVE),
    "B": (True, IDENTITY),
    "C": (True, CLOSE_IDENTITY),
    "W": (True, (0.0, None)),
}
BOOTSTRAP = 10_000
HELIX_RISE, HELIX_RADIUS, HELIX_TURN = 1.5, 2.3, np.deg2rad(100.0)  # Å, Å, per residue


@dataclass(frozen=True)
class ChainScores:
    """The scores of one chain; lDDT and pLDDT from 0 to 1.

    Args:
        name: name of the chain.
        group: A, B, C, W or X.
        residues: its length.
        effective: number of effective sequences.
        identity: identity of the best template, or None.
        lddt: mean lDDT-CA.
        plddt: mean pLDDT.
        residue_error: mean absolute difference of pLDDT and lDDT of a residue.
        baseline: lDDT-CA of the copied template or of the helix.
        contacts: precision of the distogram's long-range contacts.
        junctions: share of peptide bonds that are within 12 standard deviations with their angles.
        clashes: pairs of atoms that overlap by more than 1.5 Å, per 100 residues.
        seconds: time of the passes.
        refine_seconds: time of the refinement.
    """

    name: str
    group: str
    residues: int
    effective: float
    identity: float | None
    lddt: float
    plddt: float
    residue_error: float
    baseline: float
    contacts: float
    junctions: float
    clashes: float
    seconds: float
    refine_seconds: float


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean."""
    draws = np.random.default_rng(0).integers(len(values), size=(BOOTSTRAP, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def column(scores: Sequence[ChainScores], get: Callable[[ChainScores], float]) -> np.ndarray:
    """Return a value of each chain, float64."""
    return np.array([get(score) for score in scores], np.float64)


def held_out_case(
    scores: Sequence[ChainScores],
    with_template: bool,
    lower: float,
    upper: float | None,
    weak_template: bool = False,
) -> HeldOutCase | None:
    """Return the accuracy of the chains of one kind, or None if there are none."""
    empty = HeldOutCase(with_template, lower, upper, 0, 0.0, 0.0, 0.0, 0.0, 0.0, weak_template)
    chosen = [score for score in scores if empty.contains(score.identity, score.effective, weak_template)]
    if not chosen:
        return None
    lddt = column(chosen, lambda score: score.lddt)
    low, high = interval(lddt)
    percentile_10, percentile_90 = map(float, np.quantile(lddt, [0.1, 0.9]))
    residues = [score.residues for score in chosen]
    return HeldOutCase(
        with_template, lower, upper, len(chosen), float(lddt.mean()), low, high,
        float(column(chosen, lambda score: score.baseline).mean()),
        float(column(chosen, lambda score: abs(score.plddt - score.lddt)).mean()),
        weak_template, percentile_10, percentile_90, min(residues), max(residues),
    )  # fmt: skip


def with_interval(values: np.ndarray) -> str:
    """Return a mean and its interval as text."""
    low, high = interval(values)
    return f"{values.mean():.3f} ({low:.3f} to {high:.3f})"


def regular_bonds(scores: Sequence[ChainScores]) -> float:
    """Return the share of regular junctions of all chains together."""
    residues = column(scores, lambda score: score.residues)
    return float(np.average(column(scores, lambda score: score.junctions), weights=residues))


def calibrate(residue_scores: Sequence[np.ndarray]) -> float:
    """Fit the shift of pLDDT's log odds to lDDT, by least squares; each chain has the same weight.

    Args:
        residue_scores: [2, residues] for each chain, pLDDT and lDDT-CA from 0 to 1.
    """
    chains = [torch.from_numpy(each).double() for each in residue_scores]

    def error(shift: float) -> float:
        return sum(float((shift_log_odds(plddt, shift) - lddt).square().mean()) for plddt, lddt in chains)

    return min((hundredths / 100 for hundredths in range(-300, 301)), key=error)


def report(scores: Sequence[ChainScores]) -> list[HeldOutCase]:
    """Print the tables; return the cases of the network's manifest."""
    print("| chains | number | lDDT-CA | baseline | difference | contacts L/5 |")
    print("|---|---|---|---|---|---|")
    rows: list[tuple[str, list[ChainScores]]] = []
    cases = []
    for group, (with_template, limits) in GROUPS.items():
        members = [score for score in scores if score.group == group]
        rows.append((f"{group}, all", members))
        for lower, upper in pairwise(limits):
            assert lower is not None
            case = held_out_case(members, with_template, lower, upper, weak_template=group == "W")
            if case is not None:
                cases.append(case)
                inside = [
                    score
                    for score in members
                    if case.contains(score.identity, score.effective, case.weak_template)
                ]
                rows.append((f"{group}, {case.label}", inside))
    if related := [score for score in scores if score.group == "X"]:
        rows.append(("X, all", related))
    for label, chosen in rows:
        if chosen:
            lddt, baseline = column(chosen, lambda s: s.lddt), column(chosen, lambda s: s.baseline)
            print(
                f"| {label} | {len(chosen)} | {with_interval(lddt)} | {with_interval(baseline)} | "
                f"{with_interval(lddt - baseline)} | {with_interval(column(chosen, lambda s: s.contacts))} |"
            )
    columns = (
        "chains, pLDDT error of chains, of residues, correlation of chains, junctions within 12 σ, "
        "clashes per 100 residues, median seconds per chain, of its refinement"
    )
    print(f"\n| {columns.replace(', ', ' | ')} |\n{'|---' * 8}|")
    for label, chosen in [("all sets", list(scores)), *(row for row in rows if row[0].endswith("all"))]:
        if len(chosen) > 1:
            lddt, plddt = column(chosen, lambda s: s.lddt), column(chosen, lambda s: s.plddt)
            residues = column(chosen, lambda s: s.residues)
            print(
                f"| {label} | {np.abs(lddt - plddt).mean():.3f} | "
                f"{column(chosen, lambda s: s.residue_error).mean():.3f} | "
                f"{np.corrcoef(lddt, plddt)[0, 1]:.2f} | "
                f"{regular_bonds(chosen):.4f} | "
                f"{np.average(column(chosen, lambda s: s.clashes), weights=residues):.2f} | "
                f"{np.median(column(chosen, lambda s: s.seconds)):.2f} | "
                f"{np.median(column(chosen, lambda s: s.refine_seconds)):.2f} |"
            )
    return cases


def ideal_helix(length: int) -> torch.Tensor:
    """Return the CA atoms of a helix, [length, 3] in Å."""
    index = np.arange(length)
    points = [
        HELIX_RADIUS * np.cos(HELIX_TURN * index),
        HELIX_RADIUS * np.sin(HELIX_TURN * index),
        HELIX_RISE * index,
    ]
    return torch.from_numpy(np.stack(points, axis=1).astype(np.float32))
