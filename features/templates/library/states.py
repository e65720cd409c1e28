"""The states of residues in a structure: Foldseek's 3Di alphabet.

A state describes how a residue and its neighbours in the chain lie to those of its partner, the residue whose
virtual centre is nearest (van Kempen et al., Nat. Biotechnol. 42:243, 2024). Ten distances and angles pass
through a small network to a point in the plane; the state is the nearest of twenty centroids. The numbers of
the network are Foldseek's as published in mini3di under the BSD licence, which states.json contains.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from features.chemistry.residues import CA, CB
from features.templates.library.library import STATES, StructureLibrary
from msa.alphabet import PAD
from msa.base.atomic import atomic_write
from msa.base.cpu_kernels.jit import kernel
from msa.base.digests import json_sha256
from msa.base.residues import ATOM37
from msa.database.sequence_arrays import SequenceArrays

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
"""Letters of the states, in the order of their codes."""
NO_STATE = 20
"""Code of a residue without CA; others without a state have `_INVALID`, as in Foldseek."""
_INVALID = LETTERS.index("D")
_N, _C = ATOM37.index("N"), ATOM37.index("C")
_CHAINS_AT_ONCE = 256
_CA_CB = 1.5336  # Å, of a CB that is missing


@functools.cache
def _network() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Return weights and biases of the layers, and the centroids, float32."""
    content = json.loads(Path(__file__).with_name("states.json").read_text())
    layers = [
        (np.array(layer["weights"], np.float32), np.array(layer["bias"], np.float32))
        for layer in content["layers"]
    ]
    return layers, np.array(content["centroids"])


def encode_states(chains: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Return the states of each chain, uint8 [residues].

    Residues without CA count as absent, so that their neighbours in the chain are neighbours.

    Args:
        chains: positions, [residues, 37, 3] in Å, and mask, bool [residues, 37], of each chain.
    """
    resolved = [mask[:, CA] for _, mask in chains]
    atoms = [
        np.where(mask[found][:, [_N, CA, _C, CB], None], positions[found][:, [_N, CA, _C, CB]], np.nan)
        for (positions, mask), found in zip(chains, resolved, strict=True)
    ]
    lengths = np.array([len(each) for each in atoms], np.int64)
    found_states = _states(np.concatenate([np.empty((0, 4, 3)), *atoms]), lengths)
    states = []
    # the last part, after all chains, is empty
    for found, part in zip(resolved, np.split(found_states, np.cumsum(lengths))[:-1], strict=True):
        states.append(np.full(len(found), NO_STATE, np.uint8))
        states[-1][found] = part
    return states


def state_letters(states: np.ndarray) -> str:
    """Return the letters of states, X for `NO_STATE`."""
    return np.frombuffer((LETTERS + "X").encode(), np.uint8)[states].tobytes().decode()


def decode_letters(letters: str) -> np.ndarray:
    """Return the codes of `state_letters`, uint8 [residues]."""
    return np.array([(LETTERS + "X").index(letter) for letter in letters], np.uint8)


def write_states(path: Path, sequences: SequenceArrays, states: Iterable[np.ndarray]) -> None:
    """Write the states of a library's chains to a file of as many bytes as its sequences have.

    Args:
        path: the file.
        sequences: the library's sequences.
        states: uint8 [residues] of each chain, in their order.
    """
    content = np.full(len(sequences.residues), PAD, np.uint8)
    for offset, chain in zip(sequences.offsets.tolist(), states, strict=True):
        content[offset : offset + len(chain)] = chain
    with atomic_write(path, "wb") as stream:
        stream.write(content.tobytes())


def library_states(library: StructureLibrary, cache: Path) -> SequenceArrays:
    """Return the states of a library's chains as sequences; libraries of old versions get them in the cache.

    Args:
        library: the library.
        cache: folder for the states of libraries without this part.

    Raises:
        InputError: the library is damaged.
    """
    sequences, path = library.database.arrays, library.path / STATES
    if STATES not in library.manifest.parts:
        key = json_sha256(library.checksums)
        path = cache / "states" / f"{key}.u8"
        if not path.is_file() or path.stat().st_size != len(sequences.residues):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_states(path, sequences, _library_chains(library))
    states = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    return SequenceArrays(states, sequences.offsets, sequences.lengths)


def _library_chains(library: StructureLibrary) -> Iterator[np.ndarray]:
    for first in range(0, len(library), _CHAINS_AT_ONCE):
        chains = [library.chain(k) for k in range(first, min(len(library), first + _CHAINS_AT_ONCE))]
        yield from encode_states([(chain.positions, chain.mask) for chain in chains])


def _states(atoms: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the states of residues with CA, uint8 [n].

    Args:
        atoms: float64 [n, 4, 3], N, CA, C and CB of all chains; NaN for absent atoms.
        lengths: int64 [chains].
    """
    alpha, centres = atoms[:, 1], _virtual_centres(atoms)
    complete = ~np.isnan(centres[:, 0])
    partners = np.full(len(atoms), -1)
    _find_partners(centres, lengths, partners)
    inner = np.flatnonzero(partners >= 0)
    partner = partners[inner]
    near = inner[:, None] + np.array([-1, 0, 1]), partner[:, None] + np.array([-1, 0, 1])
    is_valid = complete[near[0]].all(axis=1) & complete[near[1]].all(axis=1)
    inner, partner = inner[is_valid], partner[is_valid]
    states = np.full(len(atoms), _INVALID, np.uint8)
    values = _descriptors(alpha, inner, partner).astype(np.float32)
    layers, centroids = _network()
    for k, (weights, bias) in enumerate(layers):
        values = values @ weights + bias
        if k < len(layers) - 1:
            values = np.maximum(values, 0)
    distances = (centroids**2).sum(axis=1) - 2 * values @ centroids.T
    states[inner] = distances.argmin(axis=1)
    return states


def _virtual_centres(atoms: np.ndarray) -> np.ndarray:
    """Return the point of each residue, [n, 3], whose distances define partners; NaN without a backbone."""
    nitrogen, alpha, carbon, beta = atoms.transpose(1, 0, 2)
    to_carbon, to_nitrogen = _unit(carbon - alpha), _unit(nitrogen - alpha)
    side = _unit(to_nitrogen + to_carbon / 3)
    normal = _unit(np.cross(to_carbon, side))
    ideal = np.sqrt(8) / 3 * (-side / 2 - normal * np.sqrt(3) / 2) - to_carbon / 3
    arm = np.where(np.isnan(beta), ideal * _CA_CB, beta - alpha)
    # the arm turned by 270° in the plane of CB, CA and N, and twice as long
    axis = _unit(np.cross(arm, nitrogen - alpha))
    centres = alpha - 2 * np.cross(axis, arm)
    centres[np.isnan(carbon[:, 0])] = np.nan
    return centres


def _descriptors(alpha: np.ndarray, inner: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """Return the ten numbers that describe a residue and its partner, float64 [m, 10]."""
    before, after = _unit(alpha[inner] - alpha[inner - 1]), _unit(alpha[inner + 1] - alpha[inner])
    partner_before = _unit(alpha[partner] - alpha[partner - 1])
    partner_after = _unit(alpha[partner + 1] - alpha[partner])
    across = alpha[partner] - alpha[inner]
    direction, steps = _unit(across), partner - inner
    pairs = (
        (before, after), (partner_before, partner_after), (before, direction), (partner_before, direction),
        (before, partner_after), (after, partner_before), (before, partner_before),
    )  # fmt: skip
    return np.stack(
        [
            *((first * second).sum(axis=1) for first, second in pairs),
            np.linalg.norm(across, axis=1),
            np.clip(steps, -4, 4),
            np.copysign(np.log(np.abs(steps) + 1), steps),
        ],
        axis=1,
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors, [n, 3], divided by their length; zeros stay."""
    lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return vectors / np.where(lengths == 0, 1, lengths)


@kernel
def _find_partners(centres, lengths, partners):  # type: ignore[no-untyped-def]
    """Write the index of the residue with the nearest centre, without the ends of chains, which have none.

    Args:
        centres: float64 [n, 3], NaN where unknown.
        lengths: int64 [chains], residues.
        partners: int64 [n], written where there is one.
    """
    first = 0
    nearest = np.full(len(centres), np.inf)
    for length in lengths:
        end = first + length - 1
        for i in range(first + 1, end):
            x, y, z = centres[i]
            for j in range(i + 1, end):
                distance = (centres[j, 0] - x) ** 2 + (centres[j, 1] - y) ** 2 + (centres[j, 2] - z) ** 2
                if distance < nearest[i]:
                    nearest[i], partners[i] = distance, j
                if distance < nearest[j]:
                    nearest[j], partners[j] = distance, i
        first += length
