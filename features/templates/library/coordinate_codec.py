"""Compact storage of a chain's coordinates: integers, stored as differences to predictions, then LZMA.

Positions are rounded to a grid. Each atom is stored as the difference to a position that is predicted from
atoms stored before it: the previous CA for a CA, a planar peptide for N and O, an ideal tetrahedron for CB,
and the previous atom of the residue for side chains. All arithmetic is on integers, so decoding is exact on
every machine, and errors do not accumulate along the chain.
"""

import lzma
from collections.abc import Callable

import numpy as np

from features.chemistry.residues import CA, CB
from msa.base.residues import ATOM37

_N, _C, _O = (ATOM37.index(name) for name in ("N", "C", "O"))
_SIDE_CHAIN = [k for k in range(len(ATOM37)) if k not in (_N, CA, _C, CB, _O)]
MAX_COORDINATE = 10_000.0
"""Largest coordinate that can be stored, Å; the PDB format has the same limit."""
_MASK_BYTES = 5  # 37 bits
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 18, "lc": 0, "pb": 0}]
# Coefficients of the predictions, in 1/1024 and, for the cross product, 1/10,000 per Å: a least-squares fit
# to the backbones of about 4,000 chains of the PDB. They are part of the format.
_N_ALONG, _N_ACROSS = 904, -688
_O_FROM_CA, _O_FROM_N = 705, -732
_CB_FROM_N, _CB_FROM_C, _CB_NORMAL = 574, -547, -5842
_LONGEST_BOND = 8  # Å


def encode_coordinates(
    positions: np.ndarray, mask: np.ndarray, complete: np.ndarray, units_per_angstrom: int
) -> bytes:
    """Compress the coordinates of a chain.

    Args:
        positions: float [residues, 37, 3], Å, within ±`MAX_COORDINATE`.
        mask: bool [residues, 37], atoms that are present.
        complete: bool [residues, 37], atoms that are expected; only deviations of `mask` from it take space.
        units_per_angstrom: grid points per Å.
    """
    grid = np.rint(np.asarray(positions, np.float64) * units_per_angstrom).astype(np.int64)
    differences: list[np.ndarray] = []

    def store(atom: int, prediction: np.ndarray) -> np.ndarray:
        present = mask[:, atom]
        differences.append((grid[present, atom] - prediction[present]).T.reshape(-1))
        return grid[present, atom]

    alpha = grid[mask[:, CA], CA]
    differences.append(np.diff(alpha, axis=0, prepend=np.zeros((1, 3), np.int64)).T.reshape(-1))
    _place_atoms(mask, _fill_forward(alpha, mask[:, CA]), units_per_angstrom, store)
    values = np.concatenate(differences)
    zigzag = ((values << 1) ^ (values >> 63)).astype("<u4")
    planes = zigzag.view(np.uint8).reshape(-1, 4).T
    mask_bytes = np.packbits(mask ^ complete, axis=1).T
    return lzma.compress(mask_bytes.tobytes() + planes.tobytes(), format=lzma.FORMAT_RAW, filters=_FILTERS)


def decode_coordinates(
    data: bytes, complete: np.ndarray, units_per_angstrom: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (float32 [residues, 37, 3], Å) and mask (bool [residues, 37]) of a chain.

    Raises:
        ValueError: the data are damaged.
    """
    residues, atoms = complete.shape
    try:
        raw = np.frombuffer(lzma.decompress(data, format=lzma.FORMAT_RAW, filters=_FILTERS), np.uint8)
    except lzma.LZMAError as error:
        raise ValueError(f"damaged coordinates: {error}") from None
    mask_size = _MASK_BYTES * residues
    packed = raw[:mask_size].reshape(_MASK_BYTES, -1).T
    if len(raw) < mask_size:
        raise ValueError("damaged coordinates: too short")
    mask = np.unpackbits(packed, axis=1)[:, :atoms].astype(bool) ^ complete
    if len(raw) != mask_size + 12 * np.count_nonzero(mask):
        raise ValueError("damaged coordinates: the number of atoms is wrong")
    zigzag = np.ascontiguousarray(raw[mask_size:].reshape(4, -1).T).view("<u4")[:, 0].astype(np.int64)
    values = (zigzag >> 1) ^ -(zigzag & 1)
    end = 0

    def take(count: int) -> np.ndarray:
        nonlocal end
        start, end = end, end + 3 * count
        return values[start:end].reshape(3, count).T

    positions = np.zeros((*mask.shape, 3), np.float32)

    def load(atom: int, prediction: np.ndarray) -> np.ndarray:
        present = mask[:, atom]
        grid = take(int(np.count_nonzero(present))) + prediction[present]
        positions[present, atom] = grid / units_per_angstrom
        return grid

    steps = take(int(np.count_nonzero(mask[:, CA])))
    alpha = _fill_forward(np.cumsum(steps, axis=0), mask[:, CA])
    positions[:, CA] = np.where(mask[:, CA, None], alpha / units_per_angstrom, 0)
    _place_atoms(mask, alpha, units_per_angstrom, load)
    return positions, mask


def _fill_forward(alpha: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return a position for every residue: that of its CA, or of the last one before it, or 0."""
    with_origin = np.concatenate([np.zeros((1, 3), np.int64), alpha])
    return with_origin[np.cumsum(present)]


def _place_atoms(
    mask: np.ndarray,
    alpha: np.ndarray,
    units_per_angstrom: int,
    place: Callable[[int, np.ndarray], np.ndarray],
) -> None:
    """Place all atoms but CA, one atom type after another.

    Args:
        mask: bool [residues, 37].
        alpha: int64 [residues, 3], grid positions of CA.
        units_per_angstrom: grid points per Å.
        place: called with an atom type and its predicted positions [residues, 3]; returns the grid positions
            of the present atoms, [present, 3].
    """

    def put(atom: int, prediction: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """Place one atom type; return its grid positions, [residues, 3], `absent` where it is absent."""
        grid = absent.copy()
        grid[mask[:, atom]] = place(atom, prediction)
        return grid

    c = put(_C, alpha, alpha)
    # in a planar peptide, N is a linear combination of the CA before, the C before and the CA
    prediction = alpha.copy()
    step, bond = alpha[1:] - alpha[:-1], (c - alpha)[:-1]
    prediction[1:] = alpha[:-1] + (_N_ALONG * step + _N_ACROSS * bond) // 1024
    n = put(_N, prediction, alpha)
    # O is in the plane of CA, C and the next N
    prediction = c.copy()
    prediction[:-1] += (_O_FROM_CA * bond + _O_FROM_N * (n[1:] - c[:-1])) // 1024
    put(_O, prediction, alpha)
    to_alpha, from_alpha = alpha - n, c - alpha
    # no prediction for impossible bonds, whose cross product would need more bits
    longest = np.maximum(np.abs(to_alpha), np.abs(from_alpha)).max(axis=1)
    normal = _cross(to_alpha, from_alpha) * (longest <= _LONGEST_BOND * units_per_angstrom)[:, None]
    prediction = (
        alpha
        + (_CB_FROM_N * to_alpha + _CB_FROM_C * from_alpha) // 1024
        + _CB_NORMAL * normal // (10_000 * units_per_angstrom)
    )
    last = put(CB, prediction, alpha)
    counts = np.count_nonzero(mask, axis=0)
    for atom in _SIDE_CHAIN:
        if counts[atom]:
            last = put(atom, last, last)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cross products of the rows of two arrays [n, 3]; np.cross takes ten times as long."""
    (ax, ay, az), (bx, by, bz) = a.T, b.T
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=1)
