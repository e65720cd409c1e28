"""Ideal bonds of a protein's backbone, and the compiled loops of features/templates/backbone_geometry.py."""

import math

import numpy as np

from msa.base.cpu_kernels.jit import kernel

N_CA, CA_C, C_N, C_O = 1.458, 1.525, 1.329, 1.231
"""Lengths in Å."""
N_CA_C, CA_C_N, C_N_CA = (math.radians(angle) for angle in (111.0, 117.2, 121.7))
"""Angles in radians."""

# compiled functions compute with tuples of three numbers, since numba compiles array expressions slowly


@kernel
def _plus(a, b):  # type: ignore[no-untyped-def]
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@kernel
def _times(factor, a):  # type: ignore[no-untyped-def]
    return factor * a[0], factor * a[1], factor * a[2]


@kernel
def _dot(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@kernel
def _cross(a, b):  # type: ignore[no-untyped-def]
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@kernel
def _direction(start, end):  # type: ignore[no-untyped-def]
    """Return the vector of length 1 from one point to another."""
    difference = _plus(end, _times(-1.0, start))
    return _times(1.0 / math.sqrt(_dot(difference, difference)), difference)


@kernel
def _atom(chain, residue, atom):  # type: ignore[no-untyped-def]
    return chain[residue, atom, 0], chain[residue, atom, 1], chain[residue, atom, 2]


@kernel
def _set_atom(chain, residue, atom, position):  # type: ignore[no-untyped-def]
    for axis in range(3):
        chain[residue, atom, axis] = position[axis]


@kernel
def extend_chain(before, residues, phi, psi):  # type: ignore[no-untyped-def]
    """Return N, CA and C of `before` and of `residues` more residues, [residues + 1, 3, 3]."""
    chain = np.empty((residues + 1, 3, 3))
    chain[0] = before
    for k in range(1, residues + 1):
        n, alpha, c = _atom(chain, k - 1, 0), _atom(chain, k - 1, 1), _atom(chain, k - 1, 2)
        next_n = _place_atom(n, alpha, c, C_N, CA_C_N, psi)
        next_alpha = _place_atom(alpha, c, next_n, N_CA, C_N_CA, math.pi)
        _set_atom(chain, k, 0, next_n)
        _set_atom(chain, k, 1, next_alpha)
        _set_atom(chain, k, 2, _place_atom(c, next_n, next_alpha, CA_C, N_CA_C, phi))
    return chain


@kernel
def _place_atom(a, b, c, length, angle, torsion):  # type: ignore[no-untyped-def]
    """Return the atom bonded to c, with the bond angle b-c-x and the torsion a-b-c-x."""
    axis = _direction(b, c)
    normal = _direction((0.0, 0.0, 0.0), _cross(_direction(a, b), axis))
    across = _cross(normal, axis)
    sideways = _plus(_times(math.cos(torsion), across), _times(math.sin(torsion), normal))
    bond = _plus(_times(-math.cos(angle), axis), _times(math.sin(angle), sideways))
    return _plus(c, _times(length, bond))


@kernel
def descend(chain, after, max_rounds, closed):  # type: ignore[no-untyped-def]
    """Turn the torsion angles of a chain until its last residue is at `after`; return whether it is.

    Args:
        chain: float64 [residues, 3, 3], changed; its first residue is fixed.
        after: float64 [1, 3, 3].
        max_rounds: number of passes over all torsion angles.
        closed: root mean square distance at which the loop is closed, Å.
    """
    last = len(chain) - 1
    for _ in range(max_rounds):
        squares = 0.0
        for k in range(3):
            difference = _plus(_atom(chain, last, k), _times(-1.0, _atom(after, 0, k)))
            squares += _dot(difference, difference)
        if math.sqrt(squares / 3) < closed:
            return True
        for k in range(last + 1):
            # phi turns around N-CA, psi around CA-C; the first residue's phi and the last one's psi are fixed
            if k > 0:
                _turn(chain, after, k, 0)
            if k < last:
                _turn(chain, after, k, 1)
    return False


@kernel
def _turn(chain, after, residue, atom):  # type: ignore[no-untyped-def]
    """Turn all atoms after a bond, to bring the last residue as close as possible to its target."""
    last = len(chain) - 1
    origin = _atom(chain, residue, atom)
    axis = _direction(origin, _atom(chain, residue, atom + 1))
    to_origin = _times(-1.0, origin)
    cosine, sine = 0.0, 0.0
    for k in range(3):
        if residue == last and k <= atom + 1:
            continue
        arm = _plus(_atom(chain, last, k), to_origin)
        arm = _plus(arm, _times(-_dot(arm, axis), axis))
        wanted = _plus(_atom(after, 0, k), to_origin)
        cosine += _dot(wanted, arm)
        sine += _dot(wanted, _cross(axis, arm))
    norm = math.sqrt(cosine * cosine + sine * sine)
    if norm < 1e-12:
        return
    cosine, sine = cosine / norm, sine / norm
    for i in range(residue, last + 1):
        for k in range(3):
            if i > residue or k > atom + 1:
                arm = _plus(_atom(chain, i, k), to_origin)
                along = _times(_dot(arm, axis), axis)
                across = _plus(arm, _times(-1.0, along))
                turned = _plus(_times(cosine, across), _times(sine, _cross(axis, arm)))
                _set_atom(chain, i, k, _plus(origin, _plus(along, turned)))
