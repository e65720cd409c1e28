"""Distinct ids and names of the queries of a run, and the warnings about them."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from foldcli.inputs.queries import name_single_chains
from foldcli.logs import TextFormatter, logger
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.profile.pssm import ProfileRecord


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.WARNING, logger.name)
    return caplog


def test_distinct_queries_are_unchanged(warnings: pytest.LogCaptureFixture) -> None:
    queries = [FastaRecord("a x", "MKV"), FastaRecord("sp|P1|B", "MKV"), FastaRecord("", "MKV")]
    assert name_single_chains(queries) == list(zip(["a", "sp_P1_B", "target"], queries, strict=True))
    assert not warnings.messages


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("β-lactamase", "beta-lactamase"),
        ("αβ", "alphabeta"),
        ("Δ9-é-ø", "Delta9-e-o"),
        ("ά", "alpha"),
        ("蛋白", "target"),
        ("-x", "x"),
        (".x", "x"),
        ("--", "target"),
        ("summary.tsv", "summary_tsv"),
        ("Summary.1-of-2.tsv", "Summary_1-of-2_tsv"),
        ("failures.jsonl", "failures_jsonl"),
        ("index.html", "index_html"),
        ("config.json", "config_json"),
        ("log.txt", "log_txt"),
        ("cite.bibtex", "cite_bibtex"),
        ("a.done.json", "a_done_json"),
        ("foldcli", "foldcli_target"),
        ("viewer", "viewer_target"),
        ("sp|P12345|A_HUMAN", "sp_P12345_A_HUMAN"),
        ("NP_000508.1", "NP_000508.1"),
        ("x.txt", "x.txt"),
    ],
)
def test_names_are_safe_for_files(
    identifier: str, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, logger.name)
    assert [each for each, _ in name_single_chains([FastaRecord(identifier, "MKV")])] == [name]
    is_obvious = identifier in (name, "sp|P12345|A_HUMAN", ".x")
    assert caplog.messages == ([] if is_obvious else [f"names of files: {identifier} → {name}"])


def test_repeated_ids_are_renamed_and_repeated_queries_left_out(warnings: pytest.LogCaptureFixture) -> None:
    profile = ProfileRecord("a", "MKV", np.zeros((3, 32), np.int16), "a test")
    pair = UnsupportedRecord("a", "MKV:MKV", "2 chains", "f", 1)
    sequences = [("a first", "MKV"), ("a", "MKV"), ("a second", "MK"), ("a_2", "M"), ("a|4", "M")]
    named = name_single_chains([*(FastaRecord(*pair) for pair in sequences), profile, pair])
    assert [(name, query.header) for name, query in named] == [
        ("a", "a first"), ("a_3", "a_3 second"), ("a_2", "a_2"),
        ("a_4", "a|4"), ("a_4_2", "a_4"), ("a_5", "a_5")
    ]  # fmt: skip
    assert [type(query) for _, query in named[-2:]] == [ProfileRecord, UnsupportedRecord]
    assert warnings.messages == [
        "1 query left out, because an earlier query has the same id and sequence: a",
        "3 queries renamed, because an earlier query has the same id: a → a_3, a → a_4, a → a_5",
    ]


def test_stop_codons_are_reported_in_one_line(warnings: pytest.LogCaptureFixture) -> None:
    queries = [FastaRecord(f"q{i}", "MXV", stop_codons=1) for i in range(7)]
    name_single_chains([FastaRecord("x", "MXV"), *queries])
    assert warnings.messages == ["7 queries with stop codons ('*') read as X: q0, q1, q2, q3, q4 and 2 more"]


def test_log_lines_have_no_control_characters() -> None:
    record = logging.LogRecord("foldcli", logging.ERROR, "", 0, "a\x1b[31mb\x9b\n\tc\r", (), None)
    assert TextFormatter().format(record) == "foldcli: error: a\\x1b[31mb\\x9b\n\tc\\r"


def test_stop_codons_do_not_distinguish_records() -> None:
    record = FastaRecord("a", "MXV")
    assert record == replace(record, stop_codons=1)
