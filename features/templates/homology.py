"""A model of the query copied from its best template, without any network.

Aligned residues get the template's backbone, and its side chain where the residue is the same. Short loops
are closed with ideal geometry. All other residues are left out. The expected lDDT-CA of a residue is a
regression on copies of library chains (benchmarks/template_copy.py), not a prediction from the model.
"""

import re
from dataclasses import dataclass, field

import numpy as np

from features.chemistry.residues import CA, CB, GLYCINE, X, atom_maps, encode_msa, encode_query
from features.templates.backbone_geometry import close_loop, place_beta, place_oxygen
from features.templates.candidates import TemplateCandidate, TemplateHits
from features.templates.compiled_loops import C_N
from features.templates.library.chains import TemplateChain
from msa.base.residues import ATOM37

_N, _C, _O = (ATOM37.index(name) for name in ("N", "C", "O"))
_BACKBONE = [_N, CA, _C]
MAX_LOOP = 12
"""Longest insertion that is built, residues."""
_MAX_FLANK = 5  # residues next to a loop that are rebuilt with it, on each side
_MAX_BOND = C_N + 0.7  # Å; residues with longer peptide bonds are not connected
_CLASH = 3.4  # Å between CA atoms that are not neighbours
# Expected lDDT-CA of a copied residue: intercept, slopes for the identity of the alignment, the identity of
# the 11 residues around it, and the square root of the distance to the next gap; upper limits of these
_INTERCEPT, _IDENTITY_SLOPE, _WINDOW_SLOPE, _DISTANCE_SLOPE = 0.123, 0.917, 0.200, 0.076
_MAX_IDENTITY, _MAX_WINDOW_IDENTITY, _MAX_DISTANCE, _WINDOW = 0.45, 0.8, 10, 5
_LOOP_LDDT = 0.47
# Factor for residues that are missing around a copied one: intercept, and slopes for the fraction of the
# template's neighbours that are aligned, and for the fraction of the query that is modelled
_COMPLETENESS_INTERCEPT, _NEIGHBOUR_SLOPE, _COVERAGE_SLOPE = 0.325, 0.486, 0.236
_NEIGHBOUR_DISTANCE = 15.0  # Å between CA atoms, as in lDDT
_PDB_CHAIN = re.compile(r"([0-9][0-9a-z]{3})_([0-9a-z]{1,4})", re.ASCII | re.IGNORECASE)
# entries in other collections: with ligand or receptor, bound or unbound, or with a domain's letter
_COLLECTION_CHAIN = re.compile(
    r"([0-9][0-9a-z]{3})(?:_[lr]_[bu](?:-matched)?|[0-9a-z])_\w+", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, eq=False)
class HomologyModel:
    """A model copied from a template.

    Args:
        hits: the query and the template.
        aatype: int64 [residues], residue types of the query.
        positions: float32 [residues, 37, 3], Å; 0 for absent atoms.
        mask: bool [residues, 37], atoms of the model; residues that are left out have none.
        expected_lddt: float32 [residues], expected lDDT-CA from 0 to 100; 0 for residues that are left out.
    """

    hits: TemplateHits
    aatype: np.ndarray = field(repr=False)
    positions: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)
    expected_lddt: np.ndarray = field(repr=False)

    @property
    def template(self) -> TemplateCandidate:
        """The template."""
        return self.hits.templates[0]

    @property
    def modelled(self) -> np.ndarray:
        """Residues that have coordinates: bool [residues]."""
        return np.asarray(self.mask[:, CA])

    @property
    def origin(self) -> str:
        """The template in words, such as "PDB 1ABC_D, 34 % identity, 92 % of the residues"."""
        share, identity = 100 * self.modelled.mean(), 100 * self.template.identity
        return f"{template_name(self.template.id)}, {identity:.0f} % identity, {share:.0f} % of the residues"


def template_name(chain_id: str) -> str:
    """Return a chain's name for readers, such as "PDB 1ABC_D" for 1abc_D."""
    if match := _PDB_CHAIN.fullmatch(chain_id):
        return f"PDB {match[1].upper()}_{match[2]}"
    if match := _COLLECTION_CHAIN.fullmatch(chain_id):
        return f"PDB {match[1].upper()} ({chain_id} in its collection)"
    return chain_id


def copy_best_template(hits: TemplateHits) -> HomologyModel | None:
    """Copy the template with the highest sum of expected lDDT; return None if there are no templates."""
    best: HomologyModel | None = None
    for candidate, chain in zip(hits.templates, hits.chains, strict=True):
        model = copy_template(hits.query, candidate, chain)
        if best is None or model.expected_lddt.sum() > best.expected_lddt.sum():
            best = model
    return best


def copy_template(query: str, candidate: TemplateCandidate, chain: TemplateChain) -> HomologyModel:
    """Copy a template's coordinates to the query, in the template's coordinate system."""
    positions, mask, same = _copy_atoms(query, candidate.pairs, chain)
    expected = _expected_lddt(candidate, same, mask[:, CA])
    loops = _close_gaps(query, positions, mask)
    neighbours = aligned_neighbours(candidate.pairs[:, 1], chain)
    expected[candidate.pairs[:, 0]] *= completeness(neighbours, mask[:, CA].mean())
    for start, end in loops:
        expected[start:end] = _LOOP_LDDT
    expected = (100 * expected.clip(max=1) * mask[:, CA]).astype(np.float32)
    hits = TemplateHits(query, [candidate], [chain])
    return HomologyModel(hits, encode_query(query), positions, mask, expected)


def _copy_atoms(
    query: str, pairs: np.ndarray, chain: TemplateChain
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions and mask of the copied atoms, and the residues that are the same in both."""
    rows, columns = pairs.T
    aatype = encode_query(query)
    template_type = encode_msa(np.frombuffer(chain.sequence.encode("ascii"), np.uint8))
    same = np.zeros(len(query), bool)
    same[rows] = (aatype[rows] == template_type[columns]) & (aatype[rows] != X)
    positions = np.zeros((len(query), len(ATOM37), 3), np.float32)
    mask = np.zeros((len(query), len(ATOM37)), bool)
    complete = chain.mask[columns][:, _BACKBONE].all(axis=1)
    rows, columns = rows[complete], columns[complete]
    exists = atom_maps(aatype)["atom37_atom_exists"] > 0
    copied = exists[rows] & chain.mask[columns]
    side_chain = np.ones(len(ATOM37), bool)
    side_chain[[*_BACKBONE, _O, CB]] = False
    copied &= ~side_chain | same[rows, None]
    mask[rows] = copied
    positions[rows] = chain.positions[columns] * copied[..., None]
    _add_beta(aatype, positions, mask, rows)
    return positions, mask, same


def _add_beta(aatype: np.ndarray, positions: np.ndarray, mask: np.ndarray, rows: np.ndarray) -> None:
    """Add an ideal CB to residues with a backbone and without CB, other than glycine and unknown residues."""
    needed = rows[(aatype[rows] != GLYCINE) & (aatype[rows] != X) & ~mask[rows, CB]]
    positions[needed, CB] = place_beta(*(positions[needed, atom] for atom in _BACKBONE))
    mask[needed, CB] = True


def _expected_lddt(candidate: TemplateCandidate, same: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the expected lDDT-CA of copied residues, 0 to 1, by identity and distance to gaps; else 0."""
    rows = candidate.pairs[:, 0]
    identical = same[rows].astype(np.float64)
    # mean over a window, which is shorter at the ends
    kernel = np.ones(2 * _WINDOW + 1)
    around = np.convolve(identical, kernel, "same") / np.convolve(np.ones(len(rows)), kernel, "same")
    breaks = np.flatnonzero(np.any(np.diff(candidate.pairs, axis=0) != 1, axis=1))
    edges = np.concatenate([[0], breaks, breaks + 1, [len(rows) - 1]])
    distance = np.abs(np.arange(len(rows))[:, None] - edges).min(axis=1).clip(max=_MAX_DISTANCE)
    value = _INTERCEPT + _IDENTITY_SLOPE * min(candidate.identity, _MAX_IDENTITY)
    value += _WINDOW_SLOPE * around.clip(max=_MAX_WINDOW_IDENTITY) + _DISTANCE_SLOPE * np.sqrt(distance)
    expected = np.zeros(len(present))
    expected[rows] = np.minimum(value, 1)
    return expected * present


def completeness(neighbours: np.ndarray, coverage: float) -> np.ndarray:
    """Return the factor by which missing residues lower the expected lDDT-CA of copied residues, [n].

    Args:
        neighbours: [n], see `aligned_neighbours`.
        coverage: fraction of the query that is modelled.
    """
    return _COMPLETENESS_INTERCEPT + _NEIGHBOUR_SLOPE * neighbours + _COVERAGE_SLOPE * coverage


def aligned_neighbours(columns: np.ndarray, chain: TemplateChain) -> np.ndarray:
    """Return the fraction of the neighbours of each aligned residue that are aligned, too, [n].

    lDDT counts neighbours that are missing from the model as wrong.

    Args:
        columns: int64 [n], the aligned residues of the template.
        chain: the template.
    """
    present = chain.mask[:, CA]
    alpha = chain.positions[:, CA]
    distances = np.linalg.norm(alpha[columns, None] - alpha[None], axis=-1)  # [n, residues]
    near = (distances < _NEIGHBOUR_DISTANCE) & present
    near[np.arange(len(columns)), columns] = False
    aligned = np.zeros(len(present), bool)
    aligned[columns] = True
    return np.asarray((near & aligned).sum(axis=1) / np.maximum(near.sum(axis=1), 1))


def _close_gaps(query: str, positions: np.ndarray, mask: np.ndarray) -> list[tuple[int, int]]:
    """Build loops between unconnected residues, in place; return the first and end index of each."""
    loops = []
    present = np.flatnonzero(mask[:, CA])
    for left, right in zip(present[:-1].tolist(), present[1:].tolist(), strict=True):
        connected = right == left + 1 and (
            np.linalg.norm(positions[left, _C] - positions[right, _N]) <= _MAX_BOND
        )
        if connected or right - left - 1 > MAX_LOOP:
            continue
        for flank in range(right == left + 1, _MAX_FLANK + 1):
            first, end = left + 1 - flank, right + flank
            if first < 1 or end >= len(query) or not (mask[first - 1, CA] and mask[end, CA]):
                break
            loop = _best_loop(positions, mask, first, end)
            if loop is not None:
                _insert_loop(query, positions, mask, first, loop)
                loops.append((first, end))
                break
    return loops


def _best_loop(positions: np.ndarray, mask: np.ndarray, first: int, end: int) -> np.ndarray | None:
    """Return the backbone of the loop with fewest clashes, [residues, 3, 3]; None if none can be closed."""
    loops = close_loop(positions[first - 1, _BACKBONE], positions[end, _BACKBONE], end - first)
    outside = mask[:, CA].copy()
    outside[first - 2 if first > 1 else 0 : end + 2] = False
    others = positions[outside, CA]

    def clashes(loop: np.ndarray) -> int:
        distances = np.linalg.norm(loop[:, None, 1] - others[None], axis=-1)
        return int(np.count_nonzero(distances < _CLASH))

    return min(loops, key=clashes, default=None)


def _insert_loop(query: str, positions: np.ndarray, mask: np.ndarray, first: int, loop: np.ndarray) -> None:
    """Replace the residues from `first` on by a loop, with O and CB and without side chains."""
    end = first + len(loop)
    rows = np.arange(first, end)
    positions[rows] = 0
    mask[rows] = False
    positions[first:end, _BACKBONE] = loop
    mask[first:end, _BACKBONE] = True
    # O of the residue before depends on the loop's first N
    oxygens = np.arange(first - 1, end)
    positions[oxygens, _O] = place_oxygen(
        positions[oxygens, CA], positions[oxygens, _C], positions[oxygens + 1, _N]
    )
    mask[oxygens, _O] = True
    _add_beta(encode_query(query), positions, mask, rows)
