"""Tests of deterministic features: duplicate rows, profile, atom maps, errors, memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.alphafold2.deterministic import make_features
from features.alphafold2.schema import CACHED_FEATURES
from features.chemistry.residues import atom_maps
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError
from msa.base.residues import ATOM37, RESTYPES
from tests.msa.alignments.alignment_builders import single_sequence

ROWS = st.lists(st.text("ARNDX-", min_size=4, max_size=4), max_size=12)


def alignment(rows: list[str], deletions: np.ndarray | None = None) -> Alignment:
    letters = np.array([list(row.encode()) for row in rows], np.uint8)
    counts = np.zeros(letters.shape, np.uint8) if deletions is None else deletions
    return Alignment(tuple(f"s{i}" for i in range(len(rows))), letters, counts)


@given(st.lists(ROWS, min_size=1, max_size=3), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_only_the_first_of_equal_rows_is_kept(groups: list[list[str]], random) -> None:
    groups = [["ARND", *rows] for rows in groups]
    counts = [
        np.array([[random.randrange(300) for _ in range(4)] for _ in rows], np.uint16) for rows in groups
    ]
    features = make_features([alignment(*pair) for pair in zip(groups, counts, strict=True)])
    first: dict[str, list[int]] = {}
    for rows, count in zip(groups, counts, strict=True):
        for row, numbers in zip(rows, count.tolist(), strict=True):
            first.setdefault(row, numbers)
    order = RESTYPES + "X-"
    assert features["msa"].tolist() == [[order.index(letter) for letter in row] for row in first]
    assert features["deletion_matrix"].tolist() == list(first.values())
    assert features["num_alignments"] == len(first)
    largest = max(map(max, first.values()))
    assert features["deletion_matrix"].dtype == (np.uint8 if largest < 256 else np.uint16)
    one_hot = np.eye(22)[features["msa"]]
    np.testing.assert_allclose(features["hhblits_profile"], one_hot.mean(axis=0), atol=1e-6)


def test_dtypes_and_shapes_match_the_schema() -> None:
    sizes = {"N": 5, "M": 2, "P": 1, "T": 0}
    features = make_features([parse_alignment(b">q\nMKVLG\n>a OX=9606\nMK-LG\n")])
    assert features.keys() == CACHED_FEATURES.keys()
    for name, (dtype, shape) in CACHED_FEATURES.items():
        kind = {"bytes": "S", "uint*": "u"}.get(dtype)
        assert features[name].dtype.kind == kind if kind else features[name].dtype == dtype, name
        assert features[name].shape == tuple(
            sizes.get(axis) or int(axis.replace("T", "0")) for axis in shape.split()
        ), name


def test_ambiguous_letters_are_x_in_the_query_and_follow_hhblits_in_the_msa() -> None:
    features = make_features([single_sequence("rare", "BZUOJX")])
    assert features["aatype"].tolist() == [20] * 6
    assert features["msa"].tolist() == [[RESTYPES.index(letter) for letter in "DEC"] + [20] * 3]
    assert features["sequence"] == b"BZUOJX"
    assert features["domain_name"] == b"rare"


def test_rows_of_known_species() -> None:
    first = parse_alignment(b">q OX=1\nMKV\n>a\nMKA\n>b OX=2\nMAV\n>c OX=3\nMAV\n>d OX=3\nMAV\n")
    second = parse_alignment(b">q OX=1\nMKV\n>e OX=1\nMKV\n>tr|A0A000|A0A000_HUMAN/1-3\nM-V\n>f OX=2\nMAV\n")
    features = make_features([first, second])
    pairs = zip(features["species_row"].tolist(), features["species"].tolist(), strict=True)
    # equal rows of several species are listed for each; the queries' own species is not used
    assert list(pairs) == [(2, b"2"), (2, b"3"), (0, b"1"), (3, b"HUMAN")]
    assert len(features["msa"]) == 4
    without = make_features([parse_alignment(b">q OX=1\nMKV\n>a\nMKA\n")])
    assert without["species_row"].shape == without["species"].shape == (0,)


def test_atom_maps_are_inverses() -> None:
    maps = atom_maps(np.arange(21))
    for code, letter in enumerate(RESTYPES):
        atoms = np.flatnonzero(maps["atom37_atom_exists"][code])
        slots = maps["residx_atom37_to_atom14"][code, atoms]
        assert sorted(slots) == list(range(len(atoms))), letter
        np.testing.assert_array_equal(maps["residx_atom14_to_atom37"][code, slots], atoms)
        assert maps["atom14_atom_exists"][code].sum() == len(atoms)
        assert (ATOM37.index("CB") in atoms) == (letter != "G")
    # number of heavy atoms of each residue within a chain, from its chemical formula
    expected = dict(
        zip(
            "ARNDCQEGHILKMFPSTWYV",
            [5, 11, 8, 8, 6, 9, 9, 4, 10, 8, 8, 9, 8, 11, 7, 6, 7, 14, 12, 7],
            strict=True,
        )
    )
    counts = maps["atom37_atom_exists"].sum(axis=1)
    assert {letter: counts[code] for code, letter in enumerate(RESTYPES)} == expected
    assert counts[20] == 0


def test_alignments_of_different_queries_are_an_error() -> None:
    with pytest.raises(InputError, match=r"b\.a3m: its query differs from that of a\.a3m"):
        make_features([parse_alignment(b">q\nMK\n", "a.a3m"), parse_alignment(b">q\nMV\n", "b.a3m")])
    with pytest.raises(InputError, match="no alignment"):
        make_features([])


def test_peak_memory_is_below_four_times_the_file() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(21, size=(20000, 400), dtype=np.uint8)
    codes[0] %= 20
    rows = map(bytes, np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY-", np.uint8)[codes])
    # a header in the format of MMseqs2, with identity, E-value and positions
    header = b">UniRef100_A0A%06d\t310\t0.412\t1.3E-71\t0\t399\t400\t12\t411\t436\n"
    data = b"".join(header % k + b"%sac%s\n" % (row[:7], row[7:]) for k, row in enumerate(rows))
    data = data.replace(b"ac", b"", 1)
    parse_alignment(data[:20000].rsplit(b">", 1)[0])  # fill caches
    tracemalloc.start()
    try:
        features = make_features([parse_alignment(data)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert features["deletion_matrix"].sum() == 2 * 19999
    # the file's content is freed before features are computed
    assert peak < 4 * len(data)
