"""Packed training data: what is written is read back; groups, clusters and held-out chains."""

import lzma
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from model.errors import DataError
from model.training.data.data import CENTI, ChainSet, Split, read_split
from model.training.data.homology import ChainHits, choose_held_out
from model.training.data.packing import (
    TrainingChain,
    write_alignments,
    write_chains,
    write_groups,
    write_held_out,
)
from model.training.data.prepare import HITS, SAME_AS_QUERY, prepare
from msa.base.residues import ATOM14_NAMES, RESTYPE_NAMES
from tests.model.training.helices import helix_atoms

LENGTHS = {"1abc_A": 41, "model": 60, "model.2": 40}


def make_chains() -> list[TrainingChain]:
    """Return three helices far from the origin; the second has a break of 400 Å, and lacks a side chain."""
    random = np.random.default_rng(2)
    chains = []
    for name, length in LENGTHS.items():
        aatype = random.integers(0, 20, length).astype(np.uint8)
        present = np.array([len(ATOM14_NAMES[RESTYPE_NAMES[code]]) for code in aatype])
        atoms = helix_atoms(aatype) + random.normal(scale=300, size=3)
        chains.append(TrainingChain(name, "a file", aatype, atoms, np.arange(14) < present[:, None]))
    chains[1].atom14[30:] += [400.0, 0.0, 0.0]
    chains[1].mask[7, 4:] = False
    return chains


def make_alignments(chains: list[TrainingChain]) -> list[np.ndarray]:
    """Return alignments with 5, 1 and 2 rows, with gaps and unknown residues."""
    random = np.random.default_rng(3)
    alignments = []
    for chain, rows in zip(chains, (5, 1, 2), strict=True):
        alignment = random.integers(0, 22, (rows, len(chain.aatype))).astype(np.uint8)
        alignment[:, ::3] = chain.aatype[::3]
        alignment[0] = chain.aatype
        alignments.append(alignment)
    return alignments


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Return a folder with packed data of three chains."""
    folder = tmp_path / "packed"
    folder.mkdir()
    chains = make_chains()
    names = [chain.id for chain in chains]
    write_chains(folder, chains, np.array([4, 1, 4]))
    write_alignments(folder, zip(names, make_alignments(chains), strict=True))
    write_groups(folder, names, np.array([0, 1, 0]))
    hits = ["1abc_A\t1abc_A\t1.000\t1\t41\t1\t41\t1.0E-30\t90\t41M", hit_line()]
    with lzma.open(folder / HITS, "wt") as stream:
        stream.writelines(f"{line}\n" for line in hits)
    return folder


def hit_line() -> str:
    return "model.2\t1abc_A\t0.500\t3\t32\t5\t33\t2.0E-05\t40\t10M2I8M1D10M"


def test_prepared_data_equal_the_packed_chains(packed: Path, tmp_path: Path) -> None:
    chains, data = make_chains(), prepare(packed, tmp_path / "prepared")
    assert data.ids == tuple(LENGTHS) and data.num_full_atom == 3
    assert data.group.tolist() == [0, 1, 0]
    assert data.cluster_size.tolist() == [2, 1, 2]
    for index, (chain, alignment) in enumerate(zip(chains, make_alignments(chains), strict=True)):
        residues = data.residues(index)
        assert (data.aatype[residues] == chain.aatype).all()
        bits = data.atom_bits[residues]
        assert (((bits[:, None] >> np.arange(14)) & 1) == chain.mask).all()
        atoms = data.atom14[residues].astype(float) * CENTI
        # coordinates are relative to the chain's centre, so distances are compared
        shift = (atoms - chain.atom14)[chain.mask]
        assert np.abs(shift - shift[0]).max() <= 0.0101
        assert (data.alignment(index) == alignment).all()
        breaks = np.flatnonzero(data.break_before[residues]).tolist()
        assert breaks == ([30] if chain.id == "model" else [])


def test_prepared_hits_equal_the_packed_hits(packed: Path, tmp_path: Path) -> None:
    data = prepare(packed, tmp_path / "prepared")
    # the hit of a chain with itself is no template
    assert data.hit_offset.tolist() == [0, 0, 0, 1]
    assert (data.hit_target[0], data.hit_identity[0]) == (0, 0.5)
    columns = [(2 + k, 4 + k) for k in range(10)] + [(14 + k, 14 + k) for k in range(8)]
    columns += [(22 + k, 23 + k) for k in range(10)]
    assert data.hit_columns(0).tolist() == [list(pair) for pair in columns]


def test_data_without_hits_can_be_prepared(packed: Path, tmp_path: Path) -> None:
    (packed / HITS).write_bytes(lzma.compress(b""))
    data = prepare(packed, tmp_path / "prepared")
    assert data.hit_offset.tolist() == [0, 0, 0, 0]
    assert data.columns.shape == (0, 2) and data.columns.dtype == np.int16


def test_names_without_a_chain_are_refused(packed: Path, tmp_path: Path) -> None:
    (packed / HITS).write_bytes(lzma.compress(hit_line().replace("1abc_A", "2abc_A").encode()))
    with pytest.raises(DataError, match=r"chain_vs_chain_hits\.m8\.xz: 2abc_A is not one of the chains"):
        prepare(packed, tmp_path / "prepared")
    write_alignments(packed, [("3abc_A", make_alignments(make_chains())[0])])
    with pytest.raises(DataError, match=r"msas\.npz\.xz: 3abc_A is not one of the chains"):
        prepare(packed, tmp_path / "prepared")
    assert not (tmp_path / "prepared").exists()


def read_packed(path: Path) -> Mapping[str, np.ndarray]:
    with np.load(BytesIO(lzma.decompress(path.read_bytes()))) as archive:
        return dict(archive)


def test_arrays_are_those_of_the_format(packed: Path) -> None:
    chains, alignments = read_packed(packed / "chains.npz.xz"), read_packed(packed / "msas.npz.xz")
    first = np.cumsum([0, *LENGTHS.values()])[:-1]
    assert (chains["ca_delta_centi"][first] == 0).all()
    assert (np.abs(chains["ca_delta_centi"]).sum(axis=1) > 0).sum() == sum(LENGTHS.values()) - 3
    # column by column; residues that equal the query's are not repeated
    tokens = alignments["tokens"][: 41 * 5].reshape(41, 5)
    assert (tokens[:, 0] == make_chains()[0].aatype).all()
    assert (tokens[::3, 1:] == SAME_AS_QUERY).all()


@pytest.mark.parametrize(("atom", "distance"), [(1, 700.0), (3, 25.0)])
def test_atoms_that_do_not_fit_into_the_stored_integers_are_found(atom: int, distance: float) -> None:
    chain = make_chains()[0]
    assert chain.is_storable
    chain.atom14[20 if atom == 3 else slice(20, None), atom if atom == 3 else slice(None), 0] += distance
    assert not chain.is_storable


def make_hits(*hits: tuple[int, int, float, float, float, float], chains: int) -> ChainHits:
    """Return hits given as query, target, identity, E-value and coverages; those with itself are added."""
    rows = [*hits, *((chain, chain, 1.0, 0.0, 1.0, 1.0) for chain in range(chains))]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return ChainHits(chains, *columns)


def test_groups_and_clusters_are_joined_by_single_linkage() -> None:
    hits = make_hits(
        (3, 0, 0.2, 1e-9, 0.4, 0.1),  # covers enough of the query
        (3, 4, 0.35, 1e-4, 0.8, 0.8),
        (1, 4, 0.9, 2e-3, 1.0, 1.0),  # not significant
        (1, 2, 0.3, 1e-5, 0.9, 0.79),  # covers too little of the target for a cluster
        (5, 1, 0.9, 1e-9, 0.39, 0.9),  # covers too little of the query
        chains=6,
    )
    assert hits.groups().tolist() == [0, 1, 1, 0, 0, 2]
    assert hits.clusters().tolist() == [0, 1, 2, 3, 3, 4]


def families() -> ChainHits:
    """Return ten groups of three chains: a close relative and a distant template of the first one."""
    hits = []
    for first in range(0, 30, 3):
        # close relatives count in either direction
        close = (first, first + 1) if first % 2 else (first + 1, first)
        hits += [(*close, 0.6, 1e-20, 1.0, 0.6), (first, first + 2, 0.3, 1e-5, 0.75, 0.6)]
    return make_hits(*hits, chains=30)


@pytest.mark.parametrize("seed", range(5))
def test_held_out_chains_have_no_close_relatives_in_training(seed: int) -> None:
    hits = families()
    sets = choose_held_out(hits, 0.3, seed)
    assert sets == choose_held_out(hits, 0.3, seed)
    held_out = sets["A"] + sets["B"] + sets["X"]
    assert len(set(held_out)) == len(held_out)
    training = set(range(30)) - set(held_out)
    groups = hits.groups()
    assert len(sets["A"]) == len({groups[chain] for chain in sets["A"]}) == 3
    assert not {groups[chain] for chain in sets["A"]} & {groups[chain] for chain in training}
    assert len(sets["B"]) == 3
    for chain in sets["B"]:
        # only the first of each group has a distant template
        assert chain % 3 == 0 and chain + 1 not in training and chain + 2 in training


@pytest.mark.parametrize(
    ("share", "chains", "held_out"), [(0.0, 4, 0), (0.01, 4, 1), (0.99, 4, 3), (0.5, 1, 0)]
)
def test_one_group_at_least_is_trained_on(share: float, chains: int, held_out: int) -> None:
    sets = choose_held_out(make_hits(chains=chains), share, seed=0)
    assert len(sets["A"]) == held_out and sets["B"] == sets["X"] == []


def as_lists(split: Split) -> list[list[int]]:
    return [
        part.tolist()
        for part in (split.train, split.train_backbone, split.without_relative, split.distant_template)
    ]


def test_list_of_the_data_replaces_that_of_the_package(chains: ChainSet, tmp_path: Path) -> None:
    # chains.ids[1] stands for a chain that the package's list holds out
    chains = replace(chains, ids=("chain_0", "1ad1A_A", *chains.ids[2:]))
    assert as_lists(read_split(chains, tmp_path)) == [[0, 2, 3, 4, 5], [], [1], []]
    write_held_out(tmp_path, {"A": ["chain_3"], "B": [], "X": ["chain_0", "chain_5"]})
    assert as_lists(read_split(chains, tmp_path)) == [[1, 2, 4], [], [3], []]
    write_held_out(tmp_path, {})
    assert as_lists(read_split(chains, tmp_path))[0] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("line", ["A\tunknown", "C\tchain_0", "chain_0"])
def test_wrong_line_of_the_list_is_named(chains: ChainSet, tmp_path: Path, line: str) -> None:
    (tmp_path / "heldout.tsv").write_text(f"# comment\nA\tchain_1\n{line}\n")
    with pytest.raises(DataError, match=r"heldout\.tsv, line 3: expected A, B or X"):
        read_split(chains, tmp_path)


def test_holding_out_everything_is_refused(chains: ChainSet, tmp_path: Path) -> None:
    write_held_out(tmp_path, {"X": chains.ids})
    with pytest.raises(DataError, match="none is left to train on"):
        read_split(chains, tmp_path)
