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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

import msgspec
import numpy as np

from foldcli.errors import describe, exit_code_of
from foldcli.version import VERSION
from msa.base.errors import InputError
from msa.base.json_files import parse_json, to_record
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hit
from msa.hits.local_alignments import OPERATIONS, LocalAlignment
from msa.io.fasta import FastaRecord
from msa.profile.matrices import PROFILE_COLUMNS
from msa.profile.pssm import ProfileRecord
from msa.search.database_search import check_query

# version of the messages, sent in a server's first message and in every request
PROTOCOL = 1
# largest length that the prefix of a message can state
MAX_MESSAGE_BYTES = 2**32 - 1

_MAX_INTEGER = 2**31 - 1
_LENGTH = struct.Struct(">I")
_HITS_PER_MESSAGE = 500
_NOT_A_LETTER = re.compile(r"[^A-Z]")
_CIGAR_RUN = re.compile(r"([0-9]+)([MID])")
_ALIGNMENT_FIELDS = (
    "score", "query_start", "query_end", "target_start", "target_end", "identities", "columns",
)  # fmt: skip


def encode_message(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message, with its length."""
    payload = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(payload)) + payload


class MessageDecoder:
    """A decoder that splits a stream of bytes into messages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

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
        message = parse_json(payload)
    except ValueError as error:
        raise InputError(f"not a message: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InputError("not a message: not a JSON object with a type")
    return message


class Hello(msgspec.Struct, frozen=True, tag_field="type", tag="hello", forbid_unknown_fields=True):
    """A server's first message to each client.

    Args:
        checksums: SHA-256 of each part of the database, which identify its content.
        max_request_bytes: maximum size of a request.
        max_query_residues: maximum length of a query.
        foldcli: version of foldcli.
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
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content

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
        try:
            return to_record(message, cls)
        except ValueError:
            raise InputError("the peer is not a foldcli server") from None


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    """A query in a request."""

    header: str
    sequence: str
    profile: bytes | msgspec.UnsetType = msgspec.UNSET
    of_family: bool = True


# larger integers would overflow arrays
_Integer = Annotated[int, msgspec.Meta(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]
_Settings = msgspec.defstruct(
    "_Settings",
    [
        (field.name, _Integer if field.type is int else field.type, field.default)
        for field in fields(SearchSettings)
        if field.name != "threads"
    ],
    forbid_unknown_fields=True,
)


class _Request(msgspec.Struct, tag_field="type", tag="search", forbid_unknown_fields=True):
    """The message of a SearchRequest."""

    protocol: int
    queries: Annotated[list[_Query], msgspec.Meta(min_length=1)]
    settings: _Settings = msgspec.field(default_factory=_Settings)  # type: ignore[valid-type]


@dataclass(frozen=True)
class SearchRequest:
    """A client's request for searches.

    Args:
        queries: at least one; the profile of a ProfileRecord is sent too.
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
        try:
            request = to_record(message, _Request)
        except ValueError as error:
            raise InputError(f"not a request: {error!s:.200}") from None
        settings = SearchSettings(threads=threads, **msgspec.structs.asdict(request.settings))
        return cls([_parse_query(query) for query in request.queries], settings)


def query_message(query: FastaRecord) -> dict[str, Any]:
    """Return a query as part of a request."""
    message: dict[str, Any] = {"header": query.header, "sequence": query.sequence}
    if isinstance(query, ProfileRecord):
        message["of_family"] = query.of_family
        message["profile"] = base64.b64encode(query.profile.astype("<i2").tobytes()).decode()
    return message


def _parse_query(record: _Query) -> FastaRecord:
    query = FastaRecord(record.header, record.sequence)
    if match := _NOT_A_LETTER.search(query.sequence):
        raise InputError(f"query {query.id!r}: {match[0]!r} is not a residue letter (A-Z)")
    check_query(query)
    if not isinstance(record.profile, bytes):
        return query
    if len(record.profile) != 2 * PROFILE_COLUMNS * len(query.sequence):
        raise InputError(
            f"query {query.id!r}: profile of {len(record.profile)} bytes, expected {2 * PROFILE_COLUMNS} per "
            "residue"
        )
    profile = np.frombuffer(record.profile, "<i2").reshape(-1, PROFILE_COLUMNS).astype(np.int16)
    return ProfileRecord(query.header, query.sequence, profile, "a client", record.of_family)


def _shorten(value: Any) -> str:
    """Return a value as short text for an error message."""
    text = ascii(value) if not isinstance(value, list | dict) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def hits_messages(query_index: int, hits: Sequence[Hit], capped: bool = False) -> Iterator[dict[str, Any]]:
    """Yield messages with the hits of one query; `more` is false in the last."""
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
