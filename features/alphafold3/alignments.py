"""Features of alignments: rows, their deletions, the profile.

The first row is the query, followed by the paired rows, followed by rows of each chain's own alignment in no
relation to the other chains' rows. DNA, ligands and chains without alignment have gaps in all rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from features.alphafold2.deterministic import column_counts
from features.alphafold3.tokens import one_hot
from features.assembly.atoms import Atoms, MoleculeChain
from features.assembly.job import Polymer
from features.assembly.tokens import Tokens
from features.chemistry.residue_classes import CLASSES, GAP, MoleculeKind, alignment_classes
from msa.alignments.files import Alignment, join_alignments
from msa.base.errors import InputError

_ALIGNED_KINDS = (MoleculeKind.PROTEIN, MoleculeKind.RNA)


@dataclass(frozen=True)
class AlignmentLimits:
    """Numbers of alignment rows."""

    rows: int = 16384
    paired_rows: int = 8191
    paired_read: int = 8192
    unpaired_read: int = 16384


def draw_rows(atoms: Atoms, limits: AlignmentLimits, source: np.random.RandomState) -> dict[str, np.ndarray]:
    """Return a random choice of the rows of each chain's own alignment, by chain id.

    A number of rows is drawn first, then that many rows; they keep their order. Repeated rows, and those
    among the paired rows, are not counted.
    """
    limit = max(0, limits.rows - _paired_count(atoms, limits) - 1)
    result = {}
    for chain, polymer in _aligned_chains(atoms):
        count = len(_unpaired(polymer, atoms, limits)[1])
        if count == 0 or limit == 0:
            result[chain.name] = np.zeros(0, np.int64)
            continue
        size = source.randint(1, count + 1)
        result[chain.name] = np.sort(source.choice(count, size=size, replace=False))[:limit]
    return result


def alignment_features(
    atoms: Atoms, tokens: Tokens, rows: Mapping[str, np.ndarray], limits: AlignmentLimits
) -> dict[str, np.ndarray]:
    """Return the features of a job's alignments; see `msa.base.network_inputs.ALL_ATOM`."""
    chains = _aligned_chains(atoms)
    paired_count = _paired_count(atoms, limits)
    depth = 1 + paired_count + max((len(rows[chain.name]) for chain, _ in chains), default=0)
    classes = np.full((depth, len(tokens)), GAP, np.int16)
    deletions = np.zeros((depth, len(tokens)), np.int64)
    profile = np.zeros((len(tokens), CLASSES))
    deletion_mean = np.zeros(len(tokens))
    token_chain = atoms.chain[tokens.start]
    for chain, polymer in chains:
        columns = np.flatnonzero(token_chain == atoms.chains.index(chain))
        residues = atoms.residue[tokens.start[columns]] - 1
        table = alignment_classes(chain.kind)
        everything, unpaired = _unpaired(polymer, atoms, limits)
        stack = _stack(polymer, atoms, limits, unpaired.take(rows[chain.name]))
        classes[: len(stack), columns] = table[stack.letters][:, residues]
        deletions[: len(stack), columns] = stack.deletions[:, residues]
        counts = column_counts(table[everything.letters], CLASSES)
        profile[columns] = counts[residues] / len(everything)
        deletion_mean[columns] = everything.deletions.mean(0)[residues]
    return deletion_features(deletions) | {
        "msa": one_hot(classes, CLASSES),
        "deletion_mean": deletion_mean.astype(np.float32),
        "profile": profile.astype(np.float32),
        "num_paired_seqs": np.array([1 + paired_count], np.int32),
        "msa_mask": np.ones((depth, len(tokens)), np.float32),
    }


def deletion_features(deletions: np.ndarray) -> dict[str, np.ndarray]:
    """Return the features of numbers of deletions, integers [S, T]."""
    angle = np.arctan(deletions.astype(np.float32) / np.float32(3))
    return {
        "has_deletion": (deletions != 0).astype(np.float32),
        "deletion_value": angle * np.float32(2 / np.pi),
    }


def _aligned_chains(atoms: Atoms) -> list[tuple[MoleculeChain, Polymer]]:
    """Return the chains that have an alignment."""
    return [
        (chain, chain.entity)
        for chain in atoms.chains
        if isinstance(chain.entity, Polymer) and chain.kind in _ALIGNED_KINDS and chain.entity.has_rows
    ]


def _paired_alignments(atoms: Atoms) -> list[Alignment]:
    """Return the paired alignments of a job's chains."""
    return [polymer.paired for _, polymer in _aligned_chains(atoms) if polymer.paired is not None]


def _paired_count(atoms: Atoms, limits: AlignmentLimits) -> int:
    """Return the number of paired rows, each chain's query included."""
    limit = min(limits.paired_rows, limits.paired_read)
    counts = {min(len(alignment), limit) for alignment in _paired_alignments(atoms)}
    if len(counts) > 1:
        numbers = " and ".join(f"{count:,}" for count in sorted(counts))
        raise InputError(f"paired alignments of different chains have {numbers} rows")
    return counts.pop() if counts else 0


def _rows(alignment: Alignment, polymer: Polymer, limit: int) -> Alignment:
    """Return the first rows of a chain's alignment; raise InputError if it belongs to another sequence."""
    if alignment.query != polymer.sequence:
        reason = f"chain {polymer.chains[0]}: the first row of its alignment differs from its sequence"
        if len(alignment.query) != len(polymer.sequence):
            reason += f" ({len(alignment.query):,} residues instead of {len(polymer.sequence):,})"
        raise InputError(reason, alignment.source)
    return alignment.take(slice(limit))


def _paired(polymer: Polymer, atoms: Atoms, limits: AlignmentLimits) -> Alignment:
    """Return a chain's part of the paired rows: gaps for a chain without paired alignment."""
    count = _paired_count(atoms, limits)
    if polymer.paired is not None:
        return _rows(polymer.paired, polymer, count)
    shape = (count, len(polymer.sequence))
    return Alignment(("",) * count, np.full(shape, ord("-"), np.uint8), np.zeros(shape, np.int64))


def _unpaired(polymer: Polymer, atoms: Atoms, limits: AlignmentLimits) -> tuple[Alignment, Alignment]:
    """Return the distinct rows of a chain's own alignment, and those of them that are not paired rows.

    A chain with a paired alignment only has its query as own alignment.
    """
    if polymer.alignment is None:
        assert polymer.paired is not None
        everything = _rows(polymer.paired, polymer, 1)
    else:
        everything = _rows(polymer.alignment, polymer, limits.unpaired_read)
    first: dict[bytes, int] = {}
    for index, letters in enumerate(everything.letters):
        first.setdefault(letters.tobytes(), index)
    everything = everything.take(np.array(list(first.values()), np.int64))
    if not _paired_alignments(atoms):
        return everything, everything
    paired = {letters.tobytes() for letters in _paired(polymer, atoms, limits).letters}
    kept = [index for index, letters in enumerate(first) if letters not in paired]
    return everything, everything.take(np.array(kept, np.int64))


def _stack(polymer: Polymer, atoms: Atoms, limits: AlignmentLimits, unpaired: Alignment) -> Alignment:
    """Return a chain's query, paired rows and own rows, one below the other."""
    letters = np.frombuffer(polymer.sequence.encode(), np.uint8)[None]
    query = Alignment(("",), letters, np.zeros(letters.shape, np.int64))
    return join_alignments([query, _paired(polymer, atoms, limits), unpaired])
