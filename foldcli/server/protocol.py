"""The messages between a search server and its clients; docs/serve.md describes them for other programs.

A message is its length in bytes, as an unsigned 32-bit big-endian integer, followed by UTF-8 JSON: an object
whose `type` names the kind of message. Everything that a peer sends is checked as untrusted data. Memory is
allocated only for bytes that have arrived, never for an announced length.
"""

import base64
import json
import re
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from foldcli.errors import describe, exit_code_of
from foldcli.version import VERSION
from msa.base.errors import InputError
from msa.engines.hits import OPERATIONS, Hit, LocalAlignment
from msa.engines.settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.profile.matrices import PROFILE_COLUMNS
from msa.profile.pssm import ProfileQuery
from msa.search.search import check_query

# version of the messages, sent in a server's first message and in every request
PROTOCOL = 1
# largest length that the prefix of a message can state
MAX_MESSAGE_BYTES = 2**32 - 1

_MAX_INTEGER = 2**31 - 1
_LENGTH = struct.Struct(">I")
_HITS_PER_MESSAGE = 500
_NOT_A_LETTER = re.compile(r"[^A-Z]")
_TYPE_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "an object",
}
_CIGAR_RUN = re.compile(r"([0-9]+)([MID])")
_ALIGNMENT_FIELDS = (
    "score", "query_start", "query_end", "target_start", "target_end", "identities", "columns",
)  # fmt: skip


def encode_message(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message, with its length."""
    payload = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(payload)) + payload


class MessageDecoder:
    """A decoder that splits a stream of bytes into messages.

    Args:
        limit: maximum size of a message in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        """True if no message has been received in part."""
        return not self._buffer

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Add bytes, and yield the messages that are now complete.

        Raises:
            InputError: a message is too long, or is not a JSON object with a `type`.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            check_message_size(length, self._limit)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _parse_payload(payload)


def check_message_size(length: int, limit: int) -> None:
    """Check the size of a message.

    Raises:
        InputError: it exceeds the limit; names both.
    """
    if length > limit:
        raise InputError(f"a message of {length:,} bytes exceeds the limit of {limit:,}")


def _parse_payload(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError("not a message: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"not a message: not JSON ({error})") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InputError("not a message: not a JSON object with a type")
    return message


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


@dataclass(frozen=True)
class Hello:
    """A server's first message to each client.

    Args:
        database: path of the database, as given to the server.
        sequences: number of sequences in the database.
        residues: number of residues in the database.
        checksums: SHA-256 of each part of the database, which identify its content.
        device: cpu, cuda:0, …
        max_request_bytes: maximum size of a request.
        max_query_residues: maximum length of a query.
        foldcli: version of foldcli.
        protocol: see PROTOCOL.
    """

    database: str
    sequences: int
    residues: int
    checksums: dict[str, str]
    device: str
    max_request_bytes: int
    max_query_residues: int
    foldcli: str = VERSION
    protocol: int = PROTOCOL

    def message(self) -> dict[str, Any]:
        """Return the message."""
        return {"type": "hello", **asdict(self)}

    def check_query_length(self, query: FastaRecord) -> None:
        """Check the length of a query.

        Raises:
            InputError: the query is too long for the server.
        """
        if len(query.sequence) > self.max_query_residues:
            raise InputError(
                f"query {query.id!r} has {len(query.sequence):,} residues: the server takes up to "
                f"{self.max_query_residues:,}"
            )

    @classmethod
    def parse(cls, message: dict[str, Any]) -> "Hello":
        """Parse a message.

        Raises:
            InputError: the message is not a server's first message.
        """
        values = {key: value for key, value in message.items() if key != "type"}
        try:
            _check_types(values, cls.__annotations__ | {"checksums": dict})
            if message["type"] == "hello":
                return cls(**values)
        except (TypeError, InputError):
            pass
        raise InputError("the peer is not a foldcli server")


@dataclass(frozen=True)
class SearchRequest:
    """A client's request for searches.

    Args:
        queries: at least one; the profile of a ProfileQuery is sent too.
        settings: search settings. The number of threads is not sent, since the server decides on it.
    """

    queries: Sequence[FastaRecord]
    settings: SearchSettings

    def message(self) -> dict[str, Any]:
        """Return the message."""
        settings = asdict(self.settings)
        del settings["threads"]
        # JSON has no infinity; no E-value exceeds this number
        settings["evalue"] = min(settings["evalue"], sys.float_info.max)
        queries = [query_message(query) for query in self.queries]
        return {"type": "search", "protocol": PROTOCOL, "settings": settings, "queries": queries}

    @classmethod
    def parse(cls, message: dict[str, Any], threads: int) -> "SearchRequest":
        """Parse and check a client's message.

        Args:
            message: from a client.
            threads: number of CPU threads for the search.

        Raises:
            InputError: it is not a valid request; names the problem.
        """
        if message["type"] != "search":
            raise InputError(f"unknown request type {_shorten(message['type'])}")
        if message.get("protocol") != PROTOCOL:
            raise InputError(
                f"protocol {_shorten(message.get('protocol'))}; this server is foldcli {VERSION} and "
                f"speaks protocol {PROTOCOL}"
            )
        _check_names(message, {"type", "protocol", "settings", "queries"}, "a request")
        queries = message.get("queries")
        if not isinstance(queries, list) or not queries:
            raise InputError("queries: expected a list of at least one")
        settings = _parse_settings(message.get("settings", {}), threads)
        return cls([_parse_query(value) for value in queries], settings)


def query_message(query: FastaRecord) -> dict[str, Any]:
    """Return a query as part of a request."""
    message: dict[str, Any] = {"header": query.header, "sequence": query.sequence}
    if isinstance(query, ProfileQuery):
        message["of_family"] = query.of_family
        message["profile"] = base64.b64encode(query.profile.astype("<i2").tobytes()).decode()
    return message


def _parse_query(value: Any) -> FastaRecord:
    if not isinstance(value, dict):
        raise InputError(f"a query: expected an object, got {_shorten(value)}")
    _check_names(value, {"header", "sequence", "profile", "of_family"}, "a query")
    optional = {name: kind for name, kind in {"profile": str, "of_family": bool}.items() if name in value}
    _check_types(value, {"header": str, "sequence": str} | optional)
    query = FastaRecord(value["header"], value["sequence"])
    if match := _NOT_A_LETTER.search(query.sequence):
        raise InputError(f"query {query.id!r}: {match[0]!r} is not a residue letter (A-Z)")
    check_query(query)
    if "profile" in value:
        profile = _parse_profile(value["profile"], query)
        return ProfileQuery(query.header, query.sequence, profile, "a client", value.get("of_family", True))
    return query


def _parse_profile(text: str, query: FastaRecord) -> np.ndarray:
    """Return the profile of a query, int16 [N, PROFILE_COLUMNS].

    Raises:
        InputError: the text is not base64 of two bytes for each score.
    """
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(f"query {query.id!r}: the profile is not base64 ({error})") from None
    if len(content) != 2 * PROFILE_COLUMNS * len(query.sequence):
        raise InputError(
            f"query {query.id!r}: profile of {len(content)} bytes, expected {2 * PROFILE_COLUMNS} per residue"
        )
    return np.frombuffer(content, "<i2").reshape(-1, PROFILE_COLUMNS).astype(np.int16)


def _parse_settings(value: Any, threads: int) -> SearchSettings:
    if not isinstance(value, dict):
        raise InputError(f"settings: expected an object, got {_shorten(value)}")
    types = {field.name: field.type for field in fields(SearchSettings) if field.name != "threads"}
    _check_names(value, types, "settings")
    _check_types(value, {name: types[name] for name in value})
    for name, number in value.items():
        # larger integers would overflow arrays, and the largest ones floats
        if isinstance(number, int) and abs(number) > _MAX_INTEGER:
            raise InputError(f"{name} is {_shorten(number)}: expected at most {_MAX_INTEGER:,}")
    return SearchSettings(threads=threads, **value)


def _check_names(value: dict[str, Any], known: Collection[str], description: str) -> None:
    for name in value:
        if name not in known:
            raise InputError(
                f"{description}: unknown name {_shorten(name)}; known are {', '.join(sorted(known))}"
            )


def _check_types(values: dict[str, Any], types: Mapping[str, Any]) -> None:
    """Check that every name of `types` is present with its type; floats may be written as integers."""
    for name, kind in types.items():
        if name not in values:
            raise InputError(f"{name} is missing")
        value = values[name]
        # isinstance would accept True as an integer
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(f"{name}: expected {_TYPE_NAMES[kind]}, got {_shorten(value)}")


def _shorten(value: Any) -> str:
    """Return a value as short text for an error message."""
    text = ascii(value) if not isinstance(value, list | dict) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def hits_messages(query_index: int, hits: Sequence[Hit], capped: bool = False) -> Iterator[dict[str, Any]]:
    """Yield messages with the hits of one query; `more` is false in the last.

    Args:
        query_index: index of the query in its request.
        hits: hits of the query.
        capped: see Hits.
    """
    for start in range(0, max(len(hits), 1), _HITS_PER_MESSAGE):
        end = start + _HITS_PER_MESSAGE
        batch = [_hit_message(hit) for hit in hits[start:end]]
        more = end < len(hits)
        yield {"type": "hits", "query": query_index, "hits": batch, "more": more, "capped": capped}


def parse_hits(message: dict[str, Any], query: FastaRecord) -> list[Hit]:
    """Parse a message of `hits_messages`.

    Raises:
        InputError: the message has no valid hits.
    """
    try:
        return [_parse_hit(values, len(query.sequence)) for values in message["hits"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"not hits: {type(error).__name__}: {error}") from error


def _hit_message(hit: Hit) -> dict[str, Any]:
    alignment = hit.alignment
    return {
        "target": hit.target,
        "header": hit.header,
        "sequence": hit.sequence,
        "bits": hit.bits,
        "evalue": hit.evalue,
        **{name: getattr(alignment, name) for name in _ALIGNMENT_FIELDS},
        "cigar": alignment.cigar,
    }


def _parse_hit(values: dict[str, Any], query_length: int) -> Hit:
    runs = [int(length) << 2 | OPERATIONS.index(kind) for length, kind in _CIGAR_RUN.findall(values["cigar"])]
    return Hit(
        target=values["target"],
        header=values["header"],
        sequence=values["sequence"],
        query_length=query_length,
        bits=values["bits"],
        evalue=values["evalue"],
        alignment=LocalAlignment(
            **{name: values[name] for name in _ALIGNMENT_FIELDS}, runs=np.array(runs, np.int32)
        ),
    )


def end_message(seconds: float) -> dict[str, Any]:
    """Return the message that follows all hits of a request.

    Args:
        seconds: time spent searching, without the time spent waiting for other clients.
    """
    return {"type": "end", "seconds": seconds}


def error_message(error: BaseException, last: bool = False) -> dict[str, Any]:
    """Return the message about a failed request.

    Args:
        error: the error; its exit code is sent too.
        last: True if the server closes the connection.
    """
    return {"type": "error", "code": int(exit_code_of(error)), "reason": describe(error), "last": last}
