"""Messages of the server: exact round trips, and refusal of everything invalid."""

import base64
import json
import struct
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldcli.errors import ExitCode
from foldcli.server.protocol import (
    PROTOCOL,
    Hello,
    MessageDecoder,
    SearchRequest,
    encode_message,
    error_message,
    hits_messages,
    parse_hits,
)
from msa.base.errors import InputError, MissingError
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hit
from msa.hits.local_alignments import LocalAlignment
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord

QUERY = FastaRecord("q1 a query", "MQIFVKTLTGK")
HELLO = Hello("db", 3, 208, {"residues.u8": "ab"}, "cpu", 1 << 20, 100)
counts = st.integers(0, 2**31 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
runs = st.lists(st.tuples(st.integers(1, 2**20), st.integers(0, 2)), max_size=5)
hits = st.builds(
    Hit,
    target=st.integers(0, 2**40),
    header=st.text(st.characters(codec="utf-8")),
    sequence=st.text("ACDEFGHIKLMNPQRSTVWY", max_size=50),
    query_length=st.just(len(QUERY.sequence)),
    bits=finite,
    evalue=finite,
    alignment=st.builds(
        LocalAlignment, counts, counts, counts, counts, counts, counts, counts,
        runs.map(lambda pairs: np.array([n << 2 | kind for n, kind in pairs], np.int32)),
    ),
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def as_values(hit: Hit) -> dict[str, Any]:
    """Return a hit as values that compare bit for bit."""
    content = {name: getattr(hit, name) for name in ("target", "header", "sequence", "query_length")}
    numbers = [hit.bits.hex(), hit.evalue.hex()]  # distinguishes 0.0 from -0.0
    alignment = hit.alignment._asdict() | {"runs": hit.alignment.runs.tolist()}
    return content | {"numbers": numbers, "alignment": alignment, "dtype": str(hit.alignment.runs.dtype)}


def decode(data: bytes, limit: int = 1 << 30) -> list[dict[str, Any]]:
    return list(MessageDecoder(limit).feed(data))


@given(st.lists(hits, max_size=4), st.integers(1, 3), st.data())
def test_hits_round_trip_in_any_fragments(sent_hits: list[Hit], repeats: int, data: st.DataObject) -> None:
    sent = b"".join(map(encode_message, hits_messages(7, sent_hits * repeats)))
    decoder, messages, start = MessageDecoder(1 << 30), [], 0
    while start < len(sent):
        end = data.draw(st.integers(start + 1, len(sent)), "end of the fragment")
        messages += list(decoder.feed(sent[start:end]))
        start = end
    assert not decoder._buffer
    assert [(message["query"], message["more"]) for message in messages] == [(7, False)]
    received = [hit for message in messages for hit in parse_hits(message, QUERY)]
    assert list(map(as_values, received)) == list(map(as_values, sent_hits * repeats))


def test_many_hits_are_sent_in_several_messages() -> None:
    hit = Hit(
        1, "t", "MK", len(QUERY.sequence), 1.5, 1e-300, LocalAlignment(*[1] * 7, np.array([8], np.int32))
    )
    messages = list(hits_messages(0, [hit] * 1001))
    assert [len(message["hits"]) for message in messages] == [500, 500, 1]
    assert [message["more"] for message in messages] == [True, True, False]
    assert [message["more"] for message in hits_messages(0, [])] == [False]


@given(
    st.floats(0), st.integers(1, 1000), st.floats(0, 1), st.integers(0, 2), st.booleans(),
    st.lists(st.tuples(st.text(), st.text("ACDE", min_size=2)), min_size=1, max_size=3),
)  # fmt: skip
def test_request_round_trip(
    evalue: float, most: int, part: float, mode: int, corrected: bool, queries: list[tuple[str, str]]
) -> None:
    settings = SearchSettings(
        evalue, most, 12, "BLOSUM62", 11, 2, 10, corrected, part, 1 - part, mode, threads=1
    )
    request = SearchRequest([FastaRecord(*query) for query in queries], settings)
    (message,) = decode(encode_message(request.message()))
    received = SearchRequest.parse(message, threads=9)
    assert list(received.queries) == list(request.queries)
    expected = asdict(settings) | {"threads": 9, "evalue": min(evalue, 1.7976931348623157e308)}
    assert asdict(received.settings) == expected


def test_profile_round_trip() -> None:
    profile = np.random.default_rng(1).integers(-1000, 1000, (3, 32)).astype(np.int16)
    request = SearchRequest([ProfileRecord("q x", "MKV", profile, "a test"), QUERY], SearchSettings())
    (message,) = decode(encode_message(request.message()))
    first, second = SearchRequest.parse(message, threads=1).queries
    assert isinstance(first, ProfileRecord) and (first.header, first.sequence) == ("q x", "MKV")
    np.testing.assert_array_equal(first.profile, profile)
    assert second == QUERY
    message["queries"][0]["profile"] = base64.b64encode(np.full(96, 1001, "<i2").tobytes()).decode()
    with pytest.raises(InputError, match="query 'q': its profile has scores beyond 1000 half-bits"):
        SearchRequest.parse(message, threads=1)


def test_hello_round_trip_and_refusal_of_anything_else() -> None:
    (message,) = decode(encode_message(HELLO.message()))
    assert Hello.parse(message) == HELLO
    for wrong in ({"type": "hi"}, {"sequences": "3"}, {"more": 1}, {"checksums": None}):
        with pytest.raises(InputError, match="not a foldcli server"):
            Hello.parse(message | wrong)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not a message: input data was truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe", "not a message: JSON is malformed"),
        ('{"type": "search"}'.encode("utf-16"), "JSON is malformed"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"type":' * 100_000, "nested too deeply"),
        (b'{"type": "search", "evalue": NaN}', "malformed: invalid character"),
        (b'{"type": "search", "evalue": -Infinity}', "malformed: invalid character"),
        (b"1" * 5000, "out of range"),
        (b"[]", "not a JSON object with a type"),
        (b'{"type": 1}', "not a JSON object with a type"),
    ],
)
def test_invalid_messages_are_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        decode(struct.pack(">I", len(payload)) + payload)


def test_length_over_the_limit_is_refused_before_the_message_arrives() -> None:
    assert decode(struct.pack(">I", 1000), limit=1000) == []
    with pytest.raises(InputError, match=r"4,294,967,295 bytes exceeds the limit of 1,000"):
        decode(b"\xff" * 4, limit=1000)


REQUEST = SearchRequest([QUERY], SearchSettings()).message()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"type": "fold"}, "unknown request type 'fold'"),
        ({"protocol": 99}, f"protocol 99; this server is .* speaks protocol {PROTOCOL}"),
        ({"protocol": None}, "protocol None"),
        ({"db": "x"}, "not a request: object contains unknown field db"),
        ({"queries": []}, "queries: expected array of length >= 1"),
        ({"queries": {"header": "q"}}, "queries: expected array, got object"),
        ({"queries": ["MKV"]}, r"queries\[0\]: expected object, got str"),
        ({"queries": [{"header": "q"}]}, r"queries\[0\]: object missing required field sequence"),
        ({"queries": [{"header": 1, "sequence": "MK"}]}, r"queries\[0\].header: expected str, got int"),
        (
            {"queries": [{"header": "q", "sequence": "MK", "pssm": []}]},
            "unknown field pssm",
        ),
        (
            {"queries": [{"header": "q", "sequence": "MK", "profile": 1}]},
            "profile: expected bytes, got int",
        ),
        (
            {"queries": [{"header": "q", "sequence": "MK", "profile": "é"}]},
            r"queries\[0\].profile: invalid base64",
        ),
        (
            {"queries": [{"header": "q", "sequence": "MK", "profile": "AAAA"}]},
            "profile of 3 bytes, expected 64 per residue",
        ),
        ({"queries": [{"header": "q x", "sequence": "MkV"}]}, "query 'q': 'k' is not a residue letter"),
        ({"queries": [{"header": "q x", "sequence": "M"}]}, "query 'q' has 1 residue"),
        ({"settings": []}, "settings: expected object, got array"),
        ({"settings": {"threads": 4}}, "settings: object contains unknown field threads"),
        ({"settings": {"max_seqs": True}}, "settings.max_seqs: expected int, got bool"),
        ({"settings": {"max_seqs": 1.5}}, "settings.max_seqs: expected int, got float"),
        ({"settings": {"max_seqs": 0}}, "max_seqs is 0: expected 1 to"),
        ({"settings": {"max_seqs": 10**40}}, "settings.max_seqs: expected int <= 2147483647"),
        ({"settings": {"evalue": "1"}}, "settings.evalue: expected float, got str"),
        ({"settings": {"evalue": 10**400}}, "settings.evalue: "),
        (
            {"settings": {"min_ungapped_score": -(10**30)}},
            "ungapped_score: expected int >= -214748364",
        ),
        ({"settings": {"evalue": -1}}, r"evalue is -1\.0: expected 0"),
        ({"settings": {"coverage": 1.1}}, "coverage is 1.1: expected 0 to 1"),
        ({"settings": {"cov_mode": 3}}, "cov_mode is 3: expected 0 to 2"),
        ({"settings": {"gap_open": 5}}, "no E-value statistics for CONTEXT with gap costs 5/1"),
        ({"settings": {"comp_bias_corr": 1}}, "settings.comp_bias_corr: expected bool, got int"),
    ],
)
def test_error_names_the_problem_of_a_request(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        SearchRequest.parse(REQUEST | wrong, threads=1)


def test_omitted_settings_have_their_defaults() -> None:
    (message,) = decode(encode_message({key: value for key, value in REQUEST.items() if key != "settings"}))
    assert SearchRequest.parse(message, threads=1).settings == SearchSettings()
    assert set(REQUEST["settings"]) == {field.name for field in fields(SearchSettings)} - {"threads"}


@given(st.binary(max_size=200))
def test_random_bytes_are_incomplete_or_refused(data: bytes) -> None:
    try:
        messages = decode(data, limit=100)
    except InputError:
        return
    for message in messages:
        with pytest.raises(InputError):
            SearchRequest.parse(message, threads=1)


@given(json_values, st.sampled_from([*REQUEST, *REQUEST["settings"], "header", "sequence"]))
def test_any_value_under_any_name_is_accepted_or_refused(value: Any, name: str) -> None:
    message = json.loads(json.dumps(REQUEST))
    inner = next(part for part in (message, message["settings"], message["queries"][0]) if name in part)
    inner[name] = value
    try:
        (received,) = decode(struct.pack(">I", len(data := json.dumps(message).encode())) + data)
        request = SearchRequest.parse(received, threads=1)
    except InputError:
        return
    assert all(len(query.sequence) >= 2 for query in request.queries)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("bad"), ExitCode.BAD_INPUT),
        (MissingError("no memory", "buy some"), ExitCode.MISSING),
        (MemoryError(), ExitCode.UNEXPECTED),
        (ZeroDivisionError("a bug"), ExitCode.UNEXPECTED),
    ],
)
def test_errors_carry_their_exit_code(error: Exception, code: ExitCode) -> None:
    message = error_message(error)
    assert (message["type"], message["code"]) == ("error", code) and message["reason"]
    assert type(message["code"]) is int
