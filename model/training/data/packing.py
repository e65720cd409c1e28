"""Writing of packed training data: the files that `model.training.data.prepare` reads."""

import io
import lzma
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model.training.data.data import CENTI, HELD_OUT
from model.training.data.prepare import ALIGNMENTS, BACKBONES, CHAINS, GROUPS, SAME_AS_QUERY

# CA atoms that are bonded through a peptide are between these distances, in Å
_CA_DISTANCES = (2.5, 4.3)
# largest distances that the stored integers are meant for, in Å
_MAX_FROM_CENTRE, _MAX_FROM_ALPHA = 320.0, 20.0


@dataclass(frozen=True, eq=False)
class TrainingChain:
    """A chain to train on, without residues that lack a part of the backbone.

    Args:
        id: name, unique among the chains, without white space.
        source: file or collection that the chain was read from.
        aatype: [L] uint8, 0 to 19 in AlphaFold2's order.
        atom14: [L, 14, 3], Å.
        mask: [L, 14] bool, atoms that are present; N, CA and C of all residues are.
    """

    id: str
    source: str
    aatype: np.ndarray = field(repr=False)
    atom14: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)

    @property
    def is_storable(self) -> bool:
        """True if no atom is too far from its CA, or from the chain's centre, for the stored integers."""
        alpha = self.atom14[:, 1]
        centre = (alpha.min(axis=0) + alpha.max(axis=0)) / 2
        atoms = np.where(self.mask[..., None], self.atom14, alpha[:, None])
        return bool(
            np.all(np.abs(atoms - centre) < _MAX_FROM_CENTRE)
            and np.all(np.abs(atoms - alpha[:, None]) < _MAX_FROM_ALPHA)
        )


def write_chains(folder: Path, chains: Sequence[TrainingChain], clusters: np.ndarray) -> None:
    """Write the full-atom chains, at least one, and an empty file of chains that have a backbone only.

    `clusters` int [chains] are the 30 % identity clusters.
    """
    lengths = np.array([len(chain.aatype) for chain in chains], np.int32)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    mask = np.concatenate([chain.mask for chain in chains])
    atoms = np.round(np.concatenate([chain.atom14 for chain in chains]) / CENTI).astype(np.int64)
    alpha = atoms[:, 1]
    steps = np.diff(alpha, axis=0, prepend=alpha[:1])
    steps[first] = 0
    distance = np.linalg.norm(steps * CENTI, axis=1)
    breaks = (distance < _CA_DISTANCES[0]) | (distance > _CA_DISTANCES[1])
    breaks[first] = False
    _write_archive(
        folder / CHAINS,
        {
            "ids": np.array([chain.id for chain in chains]),
            "source": np.array([chain.source for chain in chains]),
            "cluster30": clusters.astype(np.int32),
            "length": lengths,
            "aatype": np.concatenate([chain.aatype for chain in chains]).astype(np.uint8),
            "atom14_mask": np.packbits(mask, axis=1),
            "chain_break": breaks.astype(np.uint8),
            # a break may be longer than 16 bits allow
            "ca_delta_centi": steps.astype(np.int32),
            "atom_offset_centi": (atoms - alpha[:, None])[mask].astype(np.int16),
        },
    )
    empty = {"ids": np.empty(0, "U1"), "length": np.empty(0, np.int32), "aatype": np.empty(0, np.uint8)}
    _write_archive(folder / BACKBONES, empty | {"n_ca_c_centroid_centi": np.empty((0, 4, 3), np.int16)})


def write_alignments(folder: Path, alignments: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write the names and alignments of chains into an existing folder.

    An alignment is [rows, L] uint8: 0 to 19 amino acids, 20 unknown, 21 gap; the first row is the chain
    itself.
    """
    names, rows, lengths, tokens = [], [], [], []
    for name, alignment in alignments:
        names.append(name)
        rows.append(alignment.shape[0])
        lengths.append(alignment.shape[1])
        stored = np.where(alignment == alignment[0], SAME_AS_QUERY, alignment)
        # the query stays readable
        stored[0] = alignment[0]
        tokens.append(stored.T.astype(np.uint8).reshape(-1))
    counts = {"rows": np.array(rows, np.int32), "length": np.array(lengths, np.int32)}
    arrays = {"ids": np.array(names), **counts, "tokens": np.concatenate(tokens)}
    _write_archive(folder / ALIGNMENTS, arrays)


def write_groups(folder: Path, names: Sequence[str], groups: np.ndarray) -> None:
    """Write the homology groups of chains, int [chains], with the chains' names."""
    lines = [f"{name}\t{group}\n" for name, group in zip(names, groups.tolist(), strict=True)]
    (folder / GROUPS).write_text("".join(lines))


def write_held_out(folder: Path, chains_of_set: Mapping[str, Iterable[str]]) -> None:
    """Write the list of held-out chains; see `model.training.data.data.read_split`."""
    lines = [f"{name}\t{chain}\n" for name, chains in chains_of_set.items() for chain in chains]
    (folder / HELD_OUT).write_text("".join(lines))


def _write_archive(path: Path, arrays: dict[str, np.ndarray]) -> None:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    path.write_bytes(lzma.compress(stream.getvalue()))
