"""The messages between a search server and its clients; docs/serve.md describes them for other programs.

A message is four bytes, its length as an unsigned big-endian number, and so many bytes of UTF-8 JSON: an
object whose `type` says what it is. What a peer sends is data to be checked: nothing of it is executed, and
memory is taken for what has arrived, never for what a length claims.
"""

import base64
import json
import re
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from foldcli.errors import describe, exit_code_of
from foldcli.version import VERSION
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.matrices import PROFILE_COLUMNS
from msa.profile.pssm import ProfileQuery
from msa.search.hits import OPERATIONS, Hit, LocalAlignment
from msa.search.search import check_query
from msa.search.settings import SearchSettings

if TYPE_CHECKING:
    import numpy as np

PROTOCOL = 1
"""Version of the messages: of a server's first one, and of every request."""

MAX_MESSAGE_BYTES = 2**32 - 1
"""That the length before a message can say."""

_LENGTH = struct.Struct(">I")
_HITS_A_MESSAGE = 500
_NOT_A_LETTER = re.compile(r"[^A-Z]")
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a string", dict: "an object"}
_RUN = re.compile(r"([0-9]+)([MID])")


def frame(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    payload = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(payload)) + payload


class Unframer:
    """Cuts a stream of bytes into messages.

    Args:
        limit: bytes that a message may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def empty(self) -> bool:
        """Whether no part of a message has arrived that is not complete."""
        return not self._buffer

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete with `data`.

        Raises:
            InputError: a message is longer than the limit, or is no JSON object with a `type`.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            check_size(length, self._limit)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _parse(payload)


def check_size(length: int, limit: int) -> None:
    """Refuse a message that is too long.

    Raises:
        InputError: it is; names its size and the limit.
    """
    if length > limit:
        raise InputError(f"a message of {length:,} bytes is more than the {limit:,} that are taken")


def _parse(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload.decode("utf-8"), parse_constant=_no_number)
    except RecursionError:
        raise InputError("not a message: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"not a message: no JSON ({error})") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InputError("not a message: no JSON object with a type")
    return message


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


@dataclass(frozen=True)
class Hello:
    """What a server says of itself to each client that connects.

    Args:
        database: path, as the server was given it.
        sequences, residues: how many the database has.
        checksums: SHA-256 of the database's parts: what tells its content from another's.
        device: cpu, cuda:0, …
        max_request_bytes: size of the largest message that it takes.
        max_query_residues: of the longest query.
        foldcli: its version.
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
        return {"type": "hello", **asdict(self)}

    def check_length(self, query: FastaRecord) -> None:
        """Refuse a query that is too long.

        Raises:
            InputError: it is.
        """
        if len(query.sequence) > self.max_query_residues:
            raise InputError(
                f"query {query.id!r} has {len(query.sequence):,} residues: the server takes up to "
                f"{self.max_query_residues:,}"
            )

    @classmethod
    def of(cls, message: dict[str, Any]) -> "Hello":
        """
        Raises:
            InputError: not a server's first message.
        """
        values = {key: value for key, value in message.items() if key != "type"}
        try:
            _check_types(values, cls.__annotations__ | {"checksums": dict})
            if message["type"] == "hello":
                return cls(**values)
        except (TypeError, InputError):
            pass
        raise InputError("what answers is no foldcli server")


@dataclass(frozen=True)
class SearchRequest:
    """What a client asks for.

    Args:
        queries: at least one; a ProfileQuery goes with its profile.
        settings: the threads apart, which are the server's business.
    """

    queries: Sequence[FastaRecord]
    settings: SearchSettings

    def message(self) -> dict[str, Any]:
        settings = asdict(self.settings)
        del settings["threads"]
        # JSON has no infinity; nothing is larger than this either
        settings["evalue"] = min(settings["evalue"], sys.float_info.max)
        queries = [query_message(query) for query in self.queries]
        return {"type": "search", "protocol": PROTOCOL, "settings": settings, "queries": queries}

    @classmethod
    def of(cls, message: dict[str, Any], threads: int) -> "SearchRequest":
        """Check a message and take it for a request.

        Args:
            message: from a client.
            threads: CPU threads of the server's.

        Raises:
            InputError: it is none; names what is wrong.
        """
        if message["type"] != "search":
            raise InputError(f"no request of type {_shown(message['type'])}")
        if message.get("protocol") != PROTOCOL:
            raise InputError(
                f"protocol {_shown(message.get('protocol'))}; this server is foldcli {VERSION} and "
                f"speaks protocol {PROTOCOL}"
            )
        _only(message, {"type", "protocol", "settings", "queries"}, "a request")
        queries = message.get("queries")
        if not isinstance(queries, list) or not queries:
            raise InputError("queries: expected a list of at least one")
        return cls([_query(value) for value in queries], _settings(message.get("settings", {}), threads))


def query_message(query: FastaRecord) -> dict[str, Any]:
    """A query as it is in a request."""
    message: dict[str, Any] = {"header": query.header, "sequence": query.sequence}
    if isinstance(query, ProfileQuery):
        message["of_family"] = query.of_family
        message["profile"] = base64.b64encode(query.profile.astype("<i2").tobytes()).decode()
    return message


def _query(value: Any) -> FastaRecord:
    if not isinstance(value, dict):
        raise InputError(f"a query: expected an object, got {_shown(value)}")
    _only(value, {"header", "sequence", "profile", "of_family"}, "a query")
    own = {name: kind for name, kind in {"profile": str, "of_family": bool}.items() if name in value}
    _check_types(value, {"header": str, "sequence": str} | own)
    query = FastaRecord(value["header"], value["sequence"])
    if found := _NOT_A_LETTER.search(query.sequence):
        raise InputError(f"query {query.id!r}: {found[0]!r} is not a residue letter (A-Z)")
    check_query(query)
    if "profile" in value:
        profile = _profile(value["profile"], query)
        return ProfileQuery(query.header, query.sequence, profile, "a client's", value.get("of_family", True))
    return query


def _profile(text: str, query: FastaRecord) -> "np.ndarray":
    """
    Raises:
        InputError: not base64 of 32 numbers of two bytes for each residue.
    """
    import numpy as np

    try:
        content = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(f"query {query.id!r}: the profile is no base64 ({error})") from None
    if len(content) != 2 * PROFILE_COLUMNS * len(query.sequence):
        raise InputError(
            f"query {query.id!r}: profile of {len(content)} bytes, expected {2 * PROFILE_COLUMNS} per residue"
        )
    return np.frombuffer(content, "<i2").reshape(-1, PROFILE_COLUMNS).astype(np.int16)


def _settings(value: Any, threads: int) -> SearchSettings:
    if not isinstance(value, dict):
        raise InputError(f"settings: expected an object, got {_shown(value)}")
    kinds = {field.name: field.type for field in fields(SearchSettings) if field.name != "threads"}
    _only(value, kinds, "settings")
    _check_types(value, {name: kinds[name] for name in value})
    return SearchSettings(threads=threads, **value)


def _only(value: dict[str, Any], known: Collection[str], what: str) -> None:
    for name in value:
        if name not in known:
            raise InputError(f"{what}: there is no {_shown(name)}; there are {', '.join(sorted(known))}")


def _check_types(values: dict[str, Any], kinds: Mapping[str, Any]) -> None:
    """Each of `kinds` must be there, and of its type; a float may be written as an integer."""
    for name, kind in kinds.items():
        if name not in values:
            raise InputError(f"{name} is missing")
        value = values[name]
        # not isinstance: True is no number here
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(f"{name}: expected {_KINDS[kind]}, got {_shown(value)}")


def _shown(value: Any) -> str:
    """A value in a message for people, cut where it is long."""
    text = ascii(value) if not isinstance(value, list | dict) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def hits_messages(query: int, hits: Sequence[Hit]) -> Iterator[dict[str, Any]]:
    """The hits of one query, many at a time; the last message says that there are no more.

    Args:
        query: the query's place in its request, from 0.
        hits: see Hit.
    """
    for first in range(0, max(len(hits), 1), _HITS_A_MESSAGE):
        end = first + _HITS_A_MESSAGE
        some = [_plain(hit) for hit in hits[first:end]]
        yield {"type": "hits", "query": query, "hits": some, "more": end < len(hits)}


def hits_of(message: dict[str, Any], query: FastaRecord) -> list[Hit]:
    """The hits in a message; `hits_messages` the other way round.

    Raises:
        InputError: there are none in it.
    """
    try:
        return [_hit(plain, len(query.sequence)) for plain in message["hits"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"not hits: {type(error).__name__}: {error}") from error


def _plain(hit: Hit) -> dict[str, Any]:
    alignment = hit.alignment
    return {
        "target": hit.target,
        "header": hit.header,
        "sequence": hit.sequence,
        "bits": hit.bits,
        "evalue": hit.evalue,
        "score": alignment.score,
        "query_start": alignment.query_start,
        "query_end": alignment.query_end,
        "target_start": alignment.target_start,
        "target_end": alignment.target_end,
        "identities": alignment.identities,
        "columns": alignment.columns,
        "cigar": alignment.cigar,
    }


_OF_ALIGNMENT = (
    "score", "query_start", "query_end", "target_start", "target_end", "identities", "columns",
)  # fmt: skip


def _hit(plain: dict[str, Any], query_length: int) -> Hit:
    import numpy as np

    runs = [int(length) << 2 | OPERATIONS.index(kind) for length, kind in _RUN.findall(plain["cigar"])]
    return Hit(
        target=plain["target"],
        header=plain["header"],
        sequence=plain["sequence"],
        query_length=query_length,
        bits=plain["bits"],
        evalue=plain["evalue"],
        alignment=LocalAlignment(
            **{name: plain[name] for name in _OF_ALIGNMENT}, runs=np.array(runs, np.int32)
        ),
    )


def end_message(seconds: float) -> dict[str, Any]:
    """All hits of a request have been sent.

    Args:
        seconds: that the search took, waiting for other clients' turns apart.
    """
    return {"type": "end", "seconds": seconds}


def error_message(error: BaseException, last: bool = False) -> dict[str, Any]:
    """The request has failed.

    Args:
        error: why; its exit code goes along.
        last: whether the server says no more on this connection.
    """
    return {"type": "error", "code": int(exit_code_of(error)), "reason": describe(error), "last": last}
