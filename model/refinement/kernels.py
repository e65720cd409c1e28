"""Energy, gradients and moves of `model.refinement.refine`, on one CPU thread.

Coordinates are float64 in Å, atoms in the order of atom14. Every residue has eleven degrees of freedom: a
translation and a rotation of all of its atoms, a rotation of the carbonyl oxygen about CA–C (psi), and
rotations of side chain atoms about the axes of up to four chi angles. Gradients are first summed over atoms,
then projected onto these.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from msa.base.cpu_kernels.jit import kernel

FREEDOMS = 11
N, CA, C, OXYGEN = 0, 1, 2, 3
"""Slots of the backbone's atoms."""
SULPHUR = 5
"""Slot of the sulphur of cysteine."""

LARGEST_RADIUS = 1.8  # Å
# atoms that are this much too far apart to overlap are looked at until the next search for pairs, Å
MARGIN = 1.5
# averaging of gradients and of their squares, as in Adam
MEAN_DECAY, SQUARE_DECAY = 0.9, 0.99
# step of rotations, relative to those of shifts and of single angles: atoms are some Å away from CA
ROTATION_STEP = 0.6

# divisions by zero give infinities instead of errors, which lets loops run in vector registers
_kernel = functools.partial(kernel, error_model="numpy")


class Terms(NamedTuple):
    """The terms of the energy that do not change with the structure, and the residues' tables.

    Args:
        num_atoms: [R], number of atoms of each residue.
        bonded: [R], whether a residue is bonded to the previous one.
        radius: [R, 14], van der Waals radii, Å.
        axes: [R, 5, 2], slots of the two atoms of the axes of psi and chi1 to chi4; 0 where there is none.
        moved: [R, 5, 14], whether an atom turns about an axis.
        bonds: [B, 4], residue and slot of both atoms of each bonded distance.
        bond_lengths: [B, 2], their lengths and the deviations that cost 1.
        near: [D, 2], pairs of residues whose CA distance is kept.
        near_distances: [D], these distances.
        is_cysteine: [R].
    """

    num_atoms: np.ndarray
    bonded: np.ndarray
    radius: np.ndarray
    axes: np.ndarray
    moved: np.ndarray
    bonds: np.ndarray
    bond_lengths: np.ndarray
    near: np.ndarray
    near_distances: np.ndarray
    is_cysteine: np.ndarray


class Weights(NamedTuple):
    """Weights of the energy, and the steps.

    Args:
        steps: number of steps.
        step_size: of the first 60 % of the steps, in Å and radians; it then falls to 2 % of this.
        bond: weight of the squared errors of bonded distances, in units of their deviations.
        restraint: weight of the errors of CA distances: half of the square up to 1 Å, then linear.
        clash: weight of squared overlaps in Å²; a tenth of it at first, all of it after half of the steps.
        linear_clash: weight of overlaps in Å, relative to that of their squares.
        overlap: overlap of van der Waals radii that costs nothing, Å.
        pair_interval: steps between searches for atoms that may overlap.
    """

    steps: int
    step_size: float
    bond: float
    restraint: float
    clash: float
    linear_clash: float
    overlap: float
    pair_interval: int


@_kernel
def refine_atoms(atoms, terms, weights):  # type: ignore[no-untyped-def]
    """Move atoms [R, 14, 3] in place towards a low energy."""
    residues = len(atoms)
    gradient = np.zeros(atoms.shape)
    slope = np.zeros((residues, FREEDOMS))
    mean = np.zeros(slope.shape)
    square = np.zeros(slope.shape)
    pairs, count = close_pairs(atoms, terms, weights.overlap)
    for step in range(weights.steps):
        progress = step / weights.steps
        if step % weights.pair_interval == 0 and step > 0:
            pairs, count = close_pairs(atoms, terms, weights.overlap)
        clear(gradient)
        add_bonds(atoms, terms, weights.bond, gradient)
        add_restraints(atoms, terms, weights.restraint, gradient)
        rising = min(1.0, max(0.1, 2.0 * progress))
        add_clashes(atoms, terms, pairs, count, weights, rising * weights.clash, gradient)
        project(atoms, gradient, terms, slope)
        size = weights.step_size * min(1.0, max(0.02, 2.5 * (1.0 - progress)))
        advance(slope, mean, square, step + 1, size)
        move(atoms, slope, terms)


@_kernel
def close_pairs(atoms, terms, overlap):  # type: ignore[no-untyped-def]
    """Find pairs of atoms of different residues that are not bonded and may overlap soon.

    Returns:
        Residue and slot of both atoms [≥ P, 4] int32, and P.
    """
    residues = len(atoms)
    reach = np.zeros(residues)
    for i in range(residues):
        for a in range(terms.num_atoms[i]):
            reach[i] = max(reach[i], distance_squared(atoms, i, a, i, CA))
    for i in range(residues):
        reach[i] = math.sqrt(reach[i])
    pairs = np.zeros((1024, 4), np.int32)
    found = 0
    for i in range(residues):
        for j in range(i + 1, residues):
            limit = reach[i] + reach[j] + 2.0 * LARGEST_RADIUS - overlap + MARGIN
            if distance_squared(atoms, i, CA, j, CA) > limit * limit:
                continue
            for a in range(terms.num_atoms[i]):
                for b in range(terms.num_atoms[j]):
                    limit = terms.radius[i, a] + terms.radius[j, b] - overlap + MARGIN
                    if distance_squared(atoms, i, a, j, b) > limit * limit:
                        continue
                    is_peptide_bond = j == i + 1 and terms.bonded[j] and a == C and b == N
                    if is_peptide_bond or disulphide(terms, i, a, j, b):
                        continue
                    if found == len(pairs):
                        pairs = longer(pairs)
                    pairs[found, 0], pairs[found, 1] = i, a
                    pairs[found, 2], pairs[found, 3] = j, b
                    found += 1
    return pairs, found


@_kernel
def disulphide(terms, i, a, j, b):  # type: ignore[no-untyped-def]
    """Return whether two atoms are sulphurs that may be bonded."""
    return a == SULPHUR and b == SULPHUR and terms.is_cysteine[i] and terms.is_cysteine[j]


@_kernel
def longer(pairs):  # type: ignore[no-untyped-def]
    """Return a copy with twice as many rows."""
    copy = np.zeros((2 * len(pairs), 4), np.int32)
    for row in range(len(pairs)):
        for column in range(4):
            copy[row, column] = pairs[row, column]
    return copy


@_kernel
def distance_squared(atoms, i, a, j, b):  # type: ignore[no-untyped-def]
    """Return the squared distance of two atoms."""
    x = atoms[i, a, 0] - atoms[j, b, 0]
    y = atoms[i, a, 1] - atoms[j, b, 1]
    z = atoms[i, a, 2] - atoms[j, b, 2]
    return x * x + y * y + z * z


@_kernel
def clear(gradient):  # type: ignore[no-untyped-def]
    """Set an array [R, 14, 3] to 0."""
    for i in range(gradient.shape[0]):
        for a in range(14):
            for k in range(3):
                gradient[i, a, k] = 0.0


@_kernel
def add_pull(atoms, gradient, i, a, j, b, slope):  # type: ignore[no-untyped-def]
    """Add the gradient of an energy whose derivative by the distance of two atoms is `slope`."""
    length = math.sqrt(distance_squared(atoms, i, a, j, b)) + 1e-9
    for k in range(3):
        pull = slope * (atoms[i, a, k] - atoms[j, b, k]) / length
        gradient[i, a, k] += pull
        gradient[j, b, k] -= pull


@_kernel
def add_bonds(atoms, terms, weight, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of Σ weight ((distance - length) / deviation)² over bonded distances."""
    for index in range(len(terms.bonds)):
        i, a = terms.bonds[index, 0], terms.bonds[index, 1]
        j, b = terms.bonds[index, 2], terms.bonds[index, 3]
        length, deviation = terms.bond_lengths[index, 0], terms.bond_lengths[index, 1]
        error = math.sqrt(distance_squared(atoms, i, a, j, b)) - length
        add_pull(atoms, gradient, i, a, j, b, 2.0 * weight * error / (deviation * deviation))


@_kernel
def add_restraints(atoms, terms, weight, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of the smooth L1 error of CA distances."""
    for index in range(len(terms.near)):
        i, j = terms.near[index, 0], terms.near[index, 1]
        error = math.sqrt(distance_squared(atoms, i, CA, j, CA)) - terms.near_distances[index]
        add_pull(atoms, gradient, i, CA, j, CA, weight * min(1.0, max(-1.0, error)))


@_kernel
def add_clashes(atoms, terms, pairs, count, weights, weight, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of Σ weight (excess² + linear · excess) over pairs that overlap too much."""
    for index in range(count):
        i, a, j, b = pairs[index, 0], pairs[index, 1], pairs[index, 2], pairs[index, 3]
        limit = terms.radius[i, a] + terms.radius[j, b] - weights.overlap
        squared = distance_squared(atoms, i, a, j, b)
        if squared < limit * limit:
            excess = limit - math.sqrt(squared)
            add_pull(atoms, gradient, i, a, j, b, -weight * (2.0 * excess + weights.linear_clash))


@_kernel
def project(atoms, gradient, terms, slope):  # type: ignore[no-untyped-def]
    """Set the derivatives [R, 11] by translation, rotation about CA, psi and chi1 to chi4."""
    for i in range(len(atoms)):
        for k in range(FREEDOMS):
            slope[i, k] = 0.0
        for a in range(terms.num_atoms[i]):
            p, q, r = gradient[i, a, 0], gradient[i, a, 1], gradient[i, a, 2]
            x, y, z = offset(atoms, i, CA, a)
            slope[i, 0] += p
            slope[i, 1] += q
            slope[i, 2] += r
            slope[i, 3] += y * r - z * q
            slope[i, 4] += z * p - x * r
            slope[i, 5] += x * q - y * p
        for turn in range(5):
            first, second = terms.axes[i, turn, 0], terms.axes[i, turn, 1]
            if first == second:
                continue
            u, v, w = axis(atoms, i, first, second)
            for a in range(terms.num_atoms[i]):
                if terms.moved[i, turn, a]:
                    p, q, r = gradient[i, a, 0], gradient[i, a, 1], gradient[i, a, 2]
                    x, y, z = offset(atoms, i, second, a)
                    slope[i, 6 + turn] += u * (y * r - z * q) + v * (z * p - x * r) + w * (x * q - y * p)


@_kernel
def offset(atoms, i, first, second):  # type: ignore[no-untyped-def]
    """Return the vector from one atom of a residue to another."""
    return (
        atoms[i, second, 0] - atoms[i, first, 0],
        atoms[i, second, 1] - atoms[i, first, 1],
        atoms[i, second, 2] - atoms[i, first, 2],
    )


@_kernel
def axis(atoms, i, first, second):  # type: ignore[no-untyped-def]
    """Return the unit vector from one atom of a residue to another."""
    x, y, z = offset(atoms, i, first, second)
    length = math.sqrt(x * x + y * y + z * z)
    return x / length, y / length, z / length


@_kernel
def advance(slope, mean, square, step, size):  # type: ignore[no-untyped-def]
    """Replace derivatives by the moves of Adam: Å for translations, and radians."""
    scale_mean, scale_square = 1.0 / (1.0 - MEAN_DECAY**step), 1.0 / (1.0 - SQUARE_DECAY**step)
    for i in range(len(slope)):
        for k in range(FREEDOMS):
            mean[i, k] = MEAN_DECAY * mean[i, k] + (1.0 - MEAN_DECAY) * slope[i, k]
            square[i, k] = SQUARE_DECAY * square[i, k] + (1.0 - SQUARE_DECAY) * slope[i, k] ** 2
            factor = ROTATION_STEP if 3 <= k < 6 else 1.0
            spread = math.sqrt(square[i, k] * scale_square) + 1e-8
            slope[i, k] = -size * factor * mean[i, k] * scale_mean / spread


@_kernel
def move(atoms, moves, terms):  # type: ignore[no-untyped-def]
    """Turn and shift the residues."""
    for i in range(len(atoms)):
        for turn in range(5):
            first, second = terms.axes[i, turn, 0], terms.axes[i, turn, 1]
            if first == second:
                continue
            u, v, w = axis(atoms, i, first, second)
            for a in range(terms.num_atoms[i]):
                if terms.moved[i, turn, a]:
                    rotate_atom(atoms, i, a, second, u, v, w, moves[i, 6 + turn])
        angle = math.sqrt(moves[i, 3] ** 2 + moves[i, 4] ** 2 + moves[i, 5] ** 2)
        if angle > 0.0:
            u, v, w = moves[i, 3] / angle, moves[i, 4] / angle, moves[i, 5] / angle
            for a in range(terms.num_atoms[i]):
                if a != CA:
                    rotate_atom(atoms, i, a, CA, u, v, w, angle)
        for a in range(terms.num_atoms[i]):
            for k in range(3):
                atoms[i, a, k] += moves[i, k]


@_kernel
def rotate_atom(atoms, i, a, center, u, v, w, angle):  # type: ignore[no-untyped-def]
    """Rotate an atom about an axis (u, v, w) through another atom of its residue."""
    x, y, z = offset(atoms, i, center, a)
    cosine, sine = math.cos(angle), math.sin(angle)
    along = (1.0 - cosine) * (u * x + v * y + w * z)
    atoms[i, a, 0] = atoms[i, center, 0] + cosine * x + sine * (v * z - w * y) + along * u
    atoms[i, a, 1] = atoms[i, center, 1] + cosine * y + sine * (w * x - u * z) + along * v
    atoms[i, a, 2] = atoms[i, center, 2] + cosine * z + sine * (u * y - v * x) + along * w
