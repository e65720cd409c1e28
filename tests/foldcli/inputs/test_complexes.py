"""Complexes in all formats, in tables of pairs and all against all, and their refusal."""

import json
from pathlib import Path

import pytest

from foldcli.inputs.complexes import Complex, pair_all, read_pairs
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import name_single_chains, read_queries
from foldcli.inputs.shard import Shard
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.profile.pssm import ProfileRecord

A, B = "MTYKLILNGKTLKGETT", "MQIFVKTLTGK"
CHAINS = {name: FastaRecord(name, sequence) for name, sequence in (("one", A), ("two", B), ("three", A + B))}


def read(path: Path, text: str) -> Complex:
    path.write_text(text)
    (query,) = read_queries(path)
    assert isinstance(query, Complex)
    return query


def chains_of(query: Complex) -> list[tuple[str, str]]:
    return [(chain.header, chain.sequence) for chain in query.chains]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("x.fasta", f">pair of two\n{A}:{A}\n:{B}\n", 1),
        ("x.csv", f"id,sequence\npair,{A}:{A.lower()}:{B}*\n", 2),
        (
            "x.json",
            json.dumps(
                {
                    "name": "pair",
                    "sequences": [
                        {"protein": {"id": ["X", "Y"], "sequence": A, "pairedMsa": ""}},
                        {"protein": {"id": "Z", "sequence": B}},
                    ],
                }
            ),
            1,
        ),
        (
            "server.json",
            json.dumps(
                [
                    {
                        "name": "pair",
                        "sequences": [
                            {"proteinChain": {"sequence": A, "count": 2}},
                            {"proteinChain": {"sequence": B, "count": 1}},
                        ],
                    }
                ]
            ),
            1,
        ),
        (
            "pair.yaml",
            f"sequences:\n- protein: {{id: [X, Y], sequence: {A}}}\n- protein: {{sequence: {B}}}\n",
            1,
        ),
    ],
)
def test_all_formats_give_the_same_complex(tmp_path: Path, name: str, text: str, line: int) -> None:
    query = read(tmp_path / name, text)
    assert query == Complex("pair", tuple(FastaRecord(*pair) for pair in chains_of(query)))
    assert chains_of(query) == [("pair_A", A), ("pair_A", A), ("pair_C", B)]
    assert query.chains[0] is query.chains[1]
    assert query.path == str(tmp_path / name) and query.line == line


def test_thirty_copies(tmp_path: Path) -> None:
    joined = read(tmp_path / "x.fasta", f">many\n{':'.join([A] * 30)}\n")
    count = {"name": "many", "sequences": [{"proteinChain": {"sequence": A, "count": 30}}]}
    assert joined == read(tmp_path / "x.json", json.dumps([count]))
    assert len(joined.chains) == 30 and set(chains_of(joined)) == {("many_A", A)}


def test_stop_codons_end_each_chain(tmp_path: Path) -> None:
    query = read(tmp_path / "x.fasta", ">pair\nMKV*:M*V*\n")
    assert query.sequence == "MKV:MXV" and query.stop_codons == 1


def test_each_chain_has_its_own_alignment(tmp_path: Path) -> None:
    alignment = f">q\n{A}\n>h\n{A.replace('K', 'R').replace('T', 'S')}\n"
    chain = {"id": ["A", "B"], "sequence": A, "unpairedMsa": alignment}
    job = {"name": "pair", "sequences": [{"protein": chain}, {"protein": {"id": "C", "sequence": A}}]}
    query = read(tmp_path / "x.json", json.dumps(job))
    assert [type(chain) for chain in query.chains] == [ProfileRecord, ProfileRecord, FastaRecord]
    assert query.chains[0] is query.chains[1] and query.chains[2].header == "pair_C"


@pytest.mark.parametrize("sequence", [f":{A}", f"{A}:", f"{A}::{B}", ":", "*:*"])
def test_empty_chain_is_refused_with_its_line(tmp_path: Path, sequence: str) -> None:
    (tmp_path / "x.fasta").write_text(f">one\n{A}\n>pair\n{sequence}\n>two\n{B}\n")
    one, pair, two = read_queries(tmp_path / "x.fasta")
    assert [one.id, two.id] == ["one", "two"]
    assert isinstance(pair, UnsupportedRecord)
    assert str(pair.error()).startswith(f"{tmp_path / 'x.fasta'}:3: 'pair' has an empty chain")


def test_complexes_are_named_and_refused() -> None:
    pair = (FastaRecord("one", A), FastaRecord("two", B))
    first, second = Complex("p|1", pair, path="x", line=3), Complex("p|1", (pair[0], pair[0]))
    named = name_single_chains([first, FastaRecord("p|1", A), second, replace_path(first)])
    assert [(name, type(query), query.id, query.sequence) for name, query in named] == [
        ("p_1", UnsupportedRecord, "p|1", f"{A}:{B}"),
        ("p_1_2", FastaRecord, "p|1_2", A),
        ("p_1_3", UnsupportedRecord, "p|1_3", f"{A}:{A}"),
    ]
    refused = named[0][1]
    assert isinstance(refused, UnsupportedRecord)
    assert str(refused.error()).startswith(
        "x:3: 'p|1' has 2 protein chains: a search of a part of a database"
    )


def replace_path(query: Complex) -> Complex:
    return Complex(query.name, query.chains, path="other")


def test_all_pairs_are_made_once() -> None:
    one, two, three = CHAINS.values()
    pairs = pair_all([one, two], [two, one, three])
    assert [pair.name for pair in pairs] == [
        "one_and_two", "one_and_one", "one_and_three", "two_and_two", "two_and_three",
    ]  # fmt: skip
    assert pairs[1].chains == (one, one)
    # chains of the same name that differ are different pairs
    assert len(pair_all([one], [FastaRecord("one", B), one])) == 2


def test_table_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("# a comment\none\ttwo\n\ntwo, two,three \n")
    failures = Failures(tmp_path, Shard())
    pairs = read_pairs(path, CHAINS, failures)
    assert [(pair.name, pair.line) for pair in pairs] == [("one_and_two", 2), ("two_and_two_and_three", 4)]
    assert pairs[1].chains == (CHAINS["two"], CHAINS["two"], CHAINS["three"])
    assert not failures.failed


def test_invalid_row_of_a_table_of_pairs_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("one,tow\none\none,,two\none,two\n\u2603,one\n")
    failures = Failures(tmp_path, Shard())
    assert [pair.name for pair in read_pairs(path, CHAINS, failures)] == ["one_and_two"]
    assert [str(error) for _, error in failures.failed] == [
        f"{path}:1: no sequence has the id 'tow'; did you mean two?",
        f"{path}:2: expected the names of two or more chains, separated by tabs or commas",
        f"{path}:3: expected the names of two or more chains, separated by tabs or commas",
        f"{path}:5: no sequence has the id '\u2603'",
    ]
    for content in (b"", b"# only a comment\n", b"one,\xff\n"):
        path.write_bytes(content)
        with pytest.raises(InputError):
            read_pairs(path, CHAINS, failures)
