"""Secondary structure from backbone coordinates, by the hydrogen bonds of DSSP.

Kabsch and Sander, Biopolymers 22, 2577 (1983). Helices of five residues per turn, isolated bridges, turns and
bends count as coil, and a group may form any number of hydrogen bonds.
"""

from collections.abc import Sequence

import numpy as np

ALPHA_HELIX, HELIX_310, STRAND, COIL = "HGE-"
# kcal/mol: below MAX_ENERGY there is a hydrogen bond; equation on page 2580
_COUPLING, MAX_ENERGY = 27.9, -0.5
_NH_LENGTH = 1.0  # Å
# Å; more than twice the length of a peptide bond
_MAX_PEPTIDE_BOND = 2.5
# Å between Cα; residues farther apart have no hydrogen bond
_MAX_CA_DISTANCE = 9.0
_CHUNK = 512


def assign_secondary_structure(
    backbone: Sequence[np.ndarray], sequence: str, chain_starts: Sequence[int] = (0,)
) -> str:
    """Return the secondary structure of one or more chains.

    Args:
        backbone: positions of N, Cα, C and O, each float [N, 3] in Å; NaN for missing atoms.
        sequence: one-letter codes; prolines donate no hydrogen bond.
        chain_starts: indices of the first residue of each chain.

    Returns:
        N letters: ALPHA_HELIX, HELIX_310, STRAND or COIL.
    """
    n, ca, c, o = backbone
    length = len(ca)
    # True if a residue is bonded to the one before; False for NaN
    is_bonded = np.zeros(length, bool)
    is_bonded[1:] = np.linalg.norm(c[:-1] - n[1:], axis=1) < _MAX_PEPTIDE_BOND
    is_bonded[list(chain_starts)] = False
    carbonyl = np.full((length, 3), np.nan)
    carbonyl[1:] = (c - o)[:-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        h = n + _NH_LENGTH * carbonyl / np.linalg.norm(carbonyl, axis=1, keepdims=True)
    is_donor = is_bonded & np.isfinite(h).all(1) & (np.frombuffer(sequence.encode(), np.uint8) != ord("P"))
    if not is_donor.any():
        return COIL * length
    acceptors, donors = _hydrogen_bonds(n, ca, c, o, h, is_donor)
    # number of chain breaks before each residue
    segment = np.cumsum(~is_bonded)
    letters = np.full(length, COIL)
    letters[_strands(acceptors, donors, segment)] = STRAND
    for turn, letter in ((4, ALPHA_HELIX), (3, HELIX_310)):
        is_turn = (donors - acceptors == turn) & (segment[acceptors] == segment[donors])
        turns = np.unique(acceptors[is_turn])
        # a minimal helix begins at the second of two consecutive turns
        for start in turns[np.isin(turns - 1, turns)]:
            part = slice(start, start + turn)
            # DSSP prefers α-helices to strands, and both to 3-10 helices
            if letter == ALPHA_HELIX or np.isin(letters[part], (COIL, HELIX_310)).all():
                letters[part] = letter
    return "".join(letters)


def _hydrogen_bonds(
    n: np.ndarray, ca: np.ndarray, c: np.ndarray, o: np.ndarray, h: np.ndarray, is_donor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return all hydrogen bonds: the residues of the acceptors (C=O), and those of the donors (N-H)."""
    # float32 is exact enough to find neighbours, and halves the time for long chains
    centred = np.nan_to_num(ca - np.nanmean(ca, axis=0), nan=1e6).astype(np.float32)
    squares, donor_indices = (centred * centred).sum(1), np.flatnonzero(is_donor)
    pairs = [np.zeros((2, 0), np.int64)]
    for start in range(0, len(ca), _CHUNK):
        rows = slice(start, start + _CHUNK)
        distances = (
            squares[rows, None] - 2 * centred[rows] @ centred[donor_indices].T + squares[donor_indices]
        )
        acceptors, columns = np.nonzero(distances < _MAX_CA_DISTANCE**2)
        pairs.append(np.stack([acceptors + start, donor_indices[columns]]))
    acceptors, donors = np.concatenate(pairs, 1)
    # neighbours in the chain form no hydrogen bond
    are_separate = (acceptors != donors) & (acceptors + 1 != donors)
    acceptors, donors = acceptors[are_separate], donors[are_separate]

    def inverse(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return 1 / np.maximum(np.linalg.norm(a - b, axis=1), 0.5)

    energy = _COUPLING * (
        inverse(o[acceptors], n[donors])
        + inverse(c[acceptors], h[donors])
        - inverse(o[acceptors], h[donors])
        - inverse(c[acceptors], n[donors])
    )
    have_bond = energy < MAX_ENERGY  # False for NaN
    return acceptors[have_bond], donors[have_bond]


def _strands(acceptors: np.ndarray, donors: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """Return bool [N]: residues of ladders, which are two or more consecutive bridges."""
    length = len(segment)
    in_strand = np.zeros(length, bool)
    bonds = acceptors * length + donors

    def have_bond(acceptor: np.ndarray, donor: np.ndarray) -> np.ndarray:
        inside = (acceptor >= 0) & (donor >= 0) & (acceptor < length) & (donor < length)
        return inside & np.isin(acceptor * length + donor, bonds)

    # A bridge of residues i and j is a pattern of two hydrogen bonds. Every bond is tried as the first of
    # each pattern, which also finds the patterns with i and j exchanged. Antiparallel strands have two
    # patterns, whose bonds form a narrow or a wide ring.
    parallel = have_bond(donors, acceptors + 2)
    narrow = have_bond(donors, acceptors)
    wide = have_bond(donors - 2, acceptors + 2)
    for i, j, direction in (
        (acceptors[parallel] + 1, donors[parallel], 1),
        (
            np.concatenate([acceptors[narrow], acceptors[wide] + 1]),
            np.concatenate([donors[narrow], donors[wide] - 1]),
            -1,
        ),
    ):
        i, j = np.unique(np.sort(np.stack([i, j]), axis=0), axis=1)
        is_inside = (i >= 1) & (j < length - 1) & (j - i >= 3)
        i, j = i[is_inside], j[is_inside]
        is_unbroken = (segment[i - 1] == segment[i + 1]) & (segment[j - 1] == segment[j + 1])
        i, j = i[is_unbroken], j[is_unbroken]
        step_i, step_j = i[None] - i[:, None], direction * (j[None] - j[:, None])
        # the next bridge of a ladder, or one after a bulge: 1 residue in one strand, up to 4 in the other
        are_consecutive = (
            (step_i > 0) & (step_j > 0) & (np.minimum(step_i, step_j) < 3) & (np.maximum(step_i, step_j) < 6)
        )
        for first, second in zip(*np.nonzero(are_consecutive), strict=True):
            in_strand[i[first] : i[second] + 1] = True
            low, high = sorted((j[first], j[second]))
            in_strand[low : high + 1] = True
    return in_strand
