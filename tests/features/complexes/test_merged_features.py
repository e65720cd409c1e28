"""Tests of merged features of complexes: blocks, order, modes, limits, and the A3M file written for them."""

import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.alphafold2.deterministic import make_features
from features.complexes.a3m import parse_chains, write_paired_a3m
from features.complexes.entities import group_chains
from features.complexes.features import complex_features, features_of_rows, in_input_order
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings, PairMode, PairStrategy
from features.complexes.rows import pair_chains, rows_of_file
from features.templates.template_features import no_templates
from msa.alignments.complex_a3m import is_complex_a3m, parse_complex_a3m
from msa.alignments.files import parse_alignment
from msa.base.network_inputs import COMPLEX
from msa.base.residues import GAP

SPECIES = ["", "OX=1", "OX=2", "TaxID=3", "RepID=A_9HYPO"]
MODES = ["unpaired_paired", "paired", "unpaired"]


@st.composite
def chain_alignments(draw: st.DrawFn) -> list[bytes]:
    """Draw the A3M files of a complex's chains, with copies, insertions and species."""
    distinct = []
    for query in draw(st.lists(st.text("ACDE", min_size=2, max_size=5), min_size=1, max_size=3, unique=True)):
        letters = st.text("ACDEF-X", min_size=len(query), max_size=len(query)).filter(
            lambda row: row.strip("-")
        )
        text = f">query\n{query}\n"
        for number, row in enumerate(draw(st.lists(letters, max_size=8))):
            species, inserted = draw(st.sampled_from(SPECIES)), draw(st.sampled_from(["", "", "a", "cde"]))
            position = draw(st.integers(0, len(query)))
            text += f">r{number} {species}\n{row[:position]}{inserted}{row[position:]}\n"
        distinct.append(text.encode())
    order = draw(st.lists(st.sampled_from(range(len(distinct))), max_size=2))
    return [*distinct, *(distinct[number] for number in order)]


def entries(chains: list[bytes]) -> list[dict[str, np.ndarray]]:
    return [make_features([parse_alignment(data)]) for data in chains]


def sizes(chains: list[dict[str, np.ndarray]]) -> list[tuple[dict[str, np.ndarray], int]]:
    """Return the entry and the number of copies of each entity."""
    groups = group_chains([chain["sequence"][0].decode() for chain in chains])
    return [(chains[group[0]], len(group)) for group in groups]


@given(chain_alignments(), st.sampled_from(MODES), st.integers(1, 40))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_merged_alignment_has_paired_rows_and_blocks(chains: list[bytes], mode: PairMode, rows: int) -> None:
    of_chains = entries(chains)
    features = complex_features(of_chains, PairingSettings(mode), rows)
    entities = sizes(of_chains)
    assert features.keys() == COMPLEX.keys()
    residues = sum(len(entry["aatype"]) * copies for entry, copies in entities)
    axes = {"N": residues, "S": max(rows, int(features["num_alignments"]))}
    for name, array in COMPLEX.items():
        assert features[name].dtype == array.dtype and features[name].shape == array.shape(axes), name

    count = int(features["num_alignments"])
    msa, in_block = features["msa"][:count], features["bert_mask"][:count] == 1
    assert features["msa_mask"][:count].all() and not features["msa_mask"][count:].any()
    assert not features["msa"][count:].any() and not features["deletion_matrix"][count:].any()
    assert features["cluster_bias_mask"].tolist() == [1] + [0] * (axes["S"] - 1)
    np.testing.assert_array_equal(msa[0], features["aatype"])
    # outside of its block a row has gaps without deletions
    assert (msa[~in_block] == GAP).all() and not features["deletion_matrix"][:count][~in_block].any()

    is_paired = in_block.all(axis=1)
    start = 0
    for number, (entry, copies) in enumerate(entities):
        length = len(entry["aatype"])
        columns = slice(start, start + length)
        for copy in range(copies):
            other = slice(start + copy * length, start + (copy + 1) * length)
            np.testing.assert_array_equal(msa[:, columns], msa[:, other])
            assert (features["entity_id"][other] == number + 1).all()
            assert (features["sym_id"][other] == copy + 1).all()
            assert features["residue_index"][other].tolist() == list(range(length))
        start += copies * length
        paired = Counter(map(bytes, msa[is_paired, columns].astype(np.int8)))
        blocks = [
            bytes(row) for row in msa[in_block[:, columns].all(axis=1) & ~is_paired, columns].astype(np.int8)
        ]
        entry_rows = list(map(bytes, entry["msa"]))
        # every row of every chain is present, as paired or once as unpaired, in its order
        present = entry_rows if mode != "paired" else entry_rows[:1]
        if len(entities) == 1:
            assert list(map(bytes, msa.astype(np.int8)[:, columns])) == present
        else:
            assert blocks == [row for row in present if row not in paired]
            assert paired.keys() <= {*entry_rows, bytes([GAP] * length)}
        if mode == "unpaired":
            assert len(entities) == 1 or is_paired.sum() == 1
    asym_id = features["asym_id"]
    assert (np.diff(asym_id) >= 0).all() and asym_id[-1] == len(chains) == features["assembly_num_chains"]


@given(chain_alignments(), st.sampled_from(["greedy", "complete"]), st.sampled_from(MODES))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_features_of_the_written_a3m_are_those_of_the_chains(
    chains: list[bytes], strategy: PairStrategy, mode: PairMode
) -> None:
    chosen = PairingSettings(mode, strategy)
    stream = io.StringIO()
    write_paired_a3m(stream, parse_chains(chains), chosen)
    data = stream.getvalue().encode()
    if len(chains) == 1:
        assert not is_complex_a3m(data)
        assert parse_alignment(data).query == parse_alignment(chains[0]).query
        return
    assert is_complex_a3m(data)
    alignment = parse_complex_a3m(data)
    read = features_of_rows(rows_of_file(alignment), min_rows=1)
    for name, value in complex_features(entries(chains), chosen, min_rows=1).items():
        np.testing.assert_array_equal(read[name], value, err_msg=name)
    assert rows_of_file(alignment).chains == [parse_alignment(chain).query for chain in chains]


def test_chains_of_an_entity_come_one_after_the_other() -> None:
    assert group_chains(["MK", "WV", "MK", "A", "WV"]) == [[0, 2], [1, 4], [3]]
    a, b = (make_features([parse_alignment(f">q\n{query}\n".encode())]) for query in ("MK", "WVA"))
    features = complex_features([a, b, a], min_rows=1)
    assert features["asym_id"].tolist() == [1, 1, 2, 2, 3, 3, 3]
    assert features["entity_id"].tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert features["sym_id"].tolist() == [1, 1, 2, 2, 1, 1, 1]


def test_templates_of_chains_share_slots() -> None:
    rng = np.random.default_rng(0)
    chains = entries([b">q\nMKV\n", b">q\nWA\n"])
    for chain, count in zip(chains, (6, 1), strict=True):
        shape = count, len(chain["aatype"])
        chain |= no_templates(shape[1])
        chain["template_aatype"] = rng.integers(20, size=shape)
        chain["template_all_atom_positions"] = rng.random((*shape, 37, 3))
        chain["template_all_atom_masks"] = np.ones((*shape, 37))
        chain["template_sum_probs"] = np.ones((count, 1))
    features = complex_features([chains[0], chains[1], chains[0]], min_rows=1)
    aatype = features["template_aatype"]
    np.testing.assert_array_equal(aatype[:, :3], chains[0]["template_aatype"][:4])
    np.testing.assert_array_equal(aatype[:, 3:6], aatype[:, :3])
    assert aatype[0, 6:].tolist() == chains[1]["template_aatype"][0].tolist()
    assert not aatype[1:, 6:].any() and not features["template_all_atom_mask"][1:, 6:].any()
    assert features["num_templates"] == 4


def test_thirty_copies_of_a_chain() -> None:
    (chain,) = entries([b">q\nMKV\n>a\nM-V\n"])
    features = complex_features([chain] * 30, min_rows=4)
    assert features["msa"].shape == (4, 90) and features["asym_id"].max() == 30
    np.testing.assert_array_equal(features["msa"][1].reshape(30, 3), np.tile(chain["msa"][1], (30, 1)))


@pytest.mark.parametrize("mode", MODES)
def test_paired_rows_by_mode(mode: PairMode) -> None:
    chains = entries([b">q\nMKV\n>a OX=1\nM-V\n>b\nMAA\n", b">q\nWA\n>c OX=1\nW-\n"])
    features = complex_features(chains, PairingSettings(mode), min_rows=1)
    letters = np.array(list("ARNDCQEGHILKMFPSTWYVX-"))[features["msa"]]
    rows = {
        "unpaired_paired": "MKVWA M-VW- MAA--",
        "paired": "MKVWA M-VW-",
        "unpaired": "MKVWA M-V-- MAA-- ---W-",
    }
    assert " ".join(map("".join, letters)) == rows[mode]


def test_chains_are_put_into_the_order_of_the_input() -> None:
    sequences = ["ACDE", "FGH", "ACDE", "KL"]
    chains = [make_features([parse_alignment(f">q\n{x}\n>r\n{x[:-1]}-\n".encode())]) for x in sequences]
    by_entity = complex_features(chains, min_rows=1)
    ordered = in_input_order(by_entity, pair_chains(chains, DEFAULT_PAIRING))
    names = np.array(list("ARNDCQEGHILKMFPSTWYVX"))
    assert "".join(names[ordered["aatype"]]) == "".join(sequences)
    assert "".join(map(str, ordered["asym_id"].astype(int))) == "1111222333344"
    assert "".join(map(str, ordered["entity_id"].astype(int))) == "1111222111133"
    assert "".join(map(str, ordered["sym_id"].astype(int))) == "1111111222211"
    assert np.array_equal(ordered["msa"][:, :4], by_entity["msa"][:, :4])
    assert np.array_equal(ordered["msa"][:, 4:7], by_entity["msa"][:, 8:11])
    assert ordered["residue_index"].tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0, 1]
