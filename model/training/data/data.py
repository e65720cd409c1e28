"""Training chains, alignments and template hits as memory-mapped arrays, and the held-out chains.

`data.prepare` writes the arrays. Every process maps them into memory, so that it starts within a
second, and all processes share one copy.
"""

import json
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import numpy as np

from model.errors import DataError

# incremented when the layout of the prepared folder changes
FORMAT_VERSION = 1
CENTI = 0.01  # Å per stored unit
# list of held-out chains, in this package and in folders of packed data
HELD_OUT = "heldout.tsv"


@dataclass(frozen=True)
class ChainSet:
    """All chains, their alignments and their template hits; memory-mapped, read-only.

    Chains are numbered from 0: first the full-atom chains, then those that have a backbone only. R is the
    number of residues of all chains.

    Args:
        ids: names of the chains.
        num_full_atom: number of full-atom chains.
        chain_offset: [chains + 1] int64, first residue of each chain.
        aatype: [R] uint8, 0 to 19.
        atom14: [R, 14, 3] int16, 0.01 Å; absent atoms are at the CA.
        atom_bits: [R] int16; bit k is set where atom k of the 14 is present.
        break_before: [R] uint8, 1 where the previous residue of the chain is not bonded to this one.
        group: [chains] int32, homology group; -1 for chains with a backbone only.
        cluster_size: [chains] int32, chains in the same 30 % identity cluster.
        row_offset, row_count: [chains] int64 and int32, start of each chain's alignment in `tokens`, and its
            number of rows; the first row is the chain itself.
        tokens: alignments, each [rows, length] uint8: 0 to 19 amino acids, 20 unknown, 21 gap.
        hit_offset: [chains + 1] int64, first hit of each chain in the next arrays.
        hit_target, hit_identity, hit_evalue: target chain, identity and E-value of each hit; int32, float32,
            float32.
        column_offset: [hits + 1] int64, first aligned column of each hit in `columns`.
        columns: [aligned columns, 2] int16, aligned residues of query and target, counted from 0.
    """

    ids: tuple[str, ...]
    num_full_atom: int
    chain_offset: np.ndarray
    aatype: np.ndarray
    atom14: np.ndarray
    atom_bits: np.ndarray
    break_before: np.ndarray
    group: np.ndarray
    cluster_size: np.ndarray
    row_offset: np.ndarray
    row_count: np.ndarray
    tokens: np.ndarray
    hit_offset: np.ndarray
    hit_target: np.ndarray
    hit_identity: np.ndarray
    hit_evalue: np.ndarray
    column_offset: np.ndarray
    columns: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of residues of each chain, [chains] int64."""
        return np.diff(self.chain_offset)

    def residues(self, chain: int) -> slice:
        """Return the residues of a chain as a slice of the arrays over residues."""
        return slice(int(self.chain_offset[chain]), int(self.chain_offset[chain + 1]))

    def alignment(self, chain: int) -> np.ndarray:
        """Return the alignment of a chain, [rows, length] uint8."""
        rows, length = int(self.row_count[chain]), int(self.lengths[chain])
        start = int(self.row_offset[chain])
        return self.tokens[start : start + rows * length].reshape(rows, length)

    def hits(self, chain: int) -> np.ndarray:
        """Return the indices of a chain's template hits, best E-value first."""
        return np.arange(int(self.hit_offset[chain]), int(self.hit_offset[chain + 1]))

    def hit_columns(self, hit: int) -> np.ndarray:
        """Return the aligned residues of a hit, [columns, 2] int16: query and target."""
        return self.columns[int(self.column_offset[hit]) : int(self.column_offset[hit + 1])]


def open_chains(folder: Path) -> ChainSet:
    """Map prepared arrays into memory.

    Raises:
        DataError: the folder does not hold arrays of this version.
    """
    manifest_path = folder / "manifest.json"
    try:
        manifest = json.loads(manifest_path.read_text())
    except FileNotFoundError as error:
        raise DataError(f"{folder}: holds no prepared training data") from error
    if manifest.get("format_version") != FORMAT_VERSION:
        raise DataError(f"{manifest_path}: written by another version; remove the folder to prepare it again")
    names = [item.name for item in fields(ChainSet) if item.type is np.ndarray]
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
    return ChainSet(ids=tuple(manifest["ids"]), num_full_atom=manifest["full_atom"], **arrays)


@dataclass(frozen=True)
class Split:
    """The division of the chains into training and held-out sets.

    Args:
        train: full-atom chains to train on.
        train_backbone: chains with a backbone only to train on.
        without_relative: held out; no training chain is related to them (set A).
        distant_template: held out; their best template among the training chains has under 40 % identity
            (set B).
    """

    train: np.ndarray
    train_backbone: np.ndarray
    without_relative: np.ndarray
    distant_template: np.ndarray


def _read_held_out(chains: ChainSet, own_list: Path | None) -> dict[str, list[int]]:
    """Return the chains of each set, given the list of the packed data, or None for that of this package."""
    chains_of_set: dict[str, list[int]] = {"A": [], "B": [], "X": []}
    index_of = {name: index for index, name in enumerate(chains.ids)}
    text = (own_list or files("model.training") / HELD_OUT).read_text()
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        set_name, _, name = line.partition("\t")
        if set_name in chains_of_set and name in index_of:
            chains_of_set[set_name].append(index_of[name])
        elif own_list is not None or set_name not in chains_of_set:
            # the package's list names chains that other data do not have
            raise DataError(
                f"{own_list or HELD_OUT}, line {number}: expected A, B or X, a tab, and a chain of the data"
            )
    return chains_of_set


def read_split(chains: ChainSet, source: Path | None = None) -> Split:
    """Read the list of held-out chains: that of the packed data or, if they have none, that of this package.

    Lines are `set<TAB>id`. The set is A, B, or X. Chains in X are related to chains in A or B, so they are
    used for neither training nor validation.

    Raises:
        DataError: a line of the packed data's list is not of this form or names an unknown chain, or no
            full-atom chain is left to train on.
    """
    own_list = None if source is None else source / HELD_OUT
    chains_of_set = _read_held_out(chains, own_list if own_list is not None and own_list.is_file() else None)
    held_out = {index for indices in chains_of_set.values() for index in indices}
    training_chains = [index for index in range(len(chains.ids)) if index not in held_out]
    train = np.array([index for index in training_chains if index < chains.num_full_atom], np.int64)
    if len(train) == 0:
        raise DataError(f"{source or 'training data'}: all chains are held out, so none is left to train on")
    return Split(
        train=train,
        train_backbone=np.array(
            [index for index in training_chains if index >= chains.num_full_atom], np.int64
        ),
        without_relative=np.array(chains_of_set["A"], np.int64),
        distant_template=np.array(chains_of_set["B"], np.int64),
    )
