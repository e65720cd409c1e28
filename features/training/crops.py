"""Crops of complexes for training: contiguous, spatial, and spatial around interfaces.

Section 2.7 of the supplement of Abramson et al., Nature 630, 493 (2024), after algorithms 1 and 2 of section
7.2 of Evans et al. (2021).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

import numpy as np

from msa.base.network_inputs import ALL_ATOM

# tokens whose centres are closer are in contact, Å
INTERFACE_DISTANCE = 15.0


class CropKind(StrEnum):
    """The way a crop is chosen."""

    CONTIGUOUS = "contiguous"
    SPATIAL = "spatial"
    INTERFACE = "interface"


@dataclass(frozen=True)
class CropWeights:
    """Shares of the kinds of crops; they are AlphaFold 3's of initial training.

    Attributes:
        spatial: tokens around any one.
        interface: tokens around one that is in contact with another chain.
    """

    contiguous: float = 0.2
    spatial: float = 0.4
    interface: float = 0.4

    def draw(self, generator: np.random.Generator) -> CropKind:
        """Draw a kind of crop."""
        weights = np.array([getattr(self, item.name) for item in fields(self)])
        return list(CropKind)[generator.choice(len(weights), p=weights / weights.sum())]


@dataclass(frozen=True, eq=False)
class TokenCentres:
    """The central atoms of a complex's tokens.

    Attributes:
        chain: int [T], number of the chain.
        positions: [T, 3], Å, of the tokens' central atoms.
        resolved: bool [T], tokens whose central atom has a known position.
    """

    chain: np.ndarray = field(repr=False)
    positions: np.ndarray = field(repr=False)
    resolved: np.ndarray = field(repr=False)


def choose_tokens(
    centres: TokenCentres,
    size: int,
    kind: CropKind,
    generator: np.random.Generator,
    chains: tuple[int, ...] = (),
) -> np.ndarray:
    """Return the tokens of a crop, ascending, int [n] with n ≤ size.

    Args:
        centres: the central atoms of the tokens.
        size: largest number of tokens.
        kind: the way to choose; without a token at an interface, a spatial crop is made.
        generator: random numbers.
        chains: the chain, or the two chains, that the sample was drawn for; a spatial crop is around one of
            their tokens. Empty for any.
    """
    count = len(centres.chain)
    if count <= size:
        return np.arange(count)
    if kind == CropKind.CONTIGUOUS or not centres.resolved.any():
        return _contiguous(centres.chain, size, generator)
    candidates = centres.resolved & (np.isin(centres.chain, chains) if chains else True)
    if not candidates.any():
        candidates = centres.resolved
    if kind == CropKind.INTERFACE or len(chains) == 2:
        partners = candidates if len(chains) == 2 else centres.resolved
        at_interface = candidates & _in_contact(centres, candidates, partners)
        candidates = at_interface if at_interface.any() else candidates
    reference = generator.choice(np.flatnonzero(candidates))
    distances = np.linalg.norm(centres.positions - centres.positions[reference], axis=1)
    distances[~centres.resolved] = np.inf
    known = min(size, int(centres.resolved.sum()))
    return np.sort(np.argsort(distances, kind="stable")[:known])


def _contiguous(chain: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Return stretches of chains, in a random order of the chains."""
    chosen = []
    free, remaining = size, len(chain)
    for number in generator.permutation(np.unique(chain)):
        members = np.flatnonzero(chain == number)
        remaining -= len(members)
        most = min(free, len(members))
        least = min(len(members), max(0, free - remaining))
        length = int(generator.integers(least, most + 1))
        start = int(generator.integers(0, len(members) - length + 1))
        chosen.append(members[start : start + length])
        free -= length
    return np.sort(np.concatenate(chosen))


def _in_contact(centres: TokenCentres, tokens: np.ndarray, partners: np.ndarray) -> np.ndarray:
    """Return which tokens have a partner of another chain within INTERFACE_DISTANCE, bool [T]."""
    result = np.zeros(len(tokens), bool)
    others = np.flatnonzero(partners)
    for token in np.flatnonzero(tokens):
        different = others[centres.chain[others] != centres.chain[token]]
        offsets = centres.positions[different] - centres.positions[token]
        result[token] = bool((np.square(offsets).sum(axis=1) < INTERFACE_DISTANCE**2).any())
    return result


def crop_features(features: Mapping[str, np.ndarray], tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return the network's inputs for some tokens of a complex.

    Args:
        features: the inputs of the whole complex, as ALL_ATOM lists them.
        tokens: int [n], ascending.
    """
    atoms = np.flatnonzero(np.isin(features["atom_to_token_index"], tokens))
    chosen = {"N": tokens, "A": atoms}
    cropped = {}
    for name, array in features.items():
        for axis, size in enumerate(ALL_ATOM[name].axes.split()):
            if size in chosen:
                array = np.take(array, chosen[size], axis=axis)
        cropped[name] = array
    counts = cropped["num_atoms_per_token"]
    kind = cropped["start_atom_index"].dtype
    return cropped | {
        "start_atom_index": (np.cumsum(counts) - counts).astype(kind),
        "atom_to_token_index": np.repeat(np.arange(len(tokens)), counts).astype(kind),
    }
