"""JSON files that foldcli wrote, and that may have been damaged since.

The types of the fields of a dataclass or a Struct say what a file must hold. Fields that are not declared are
ignored, except in a Struct with `forbid_unknown_fields`.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

import msgspec

from msa.base.atomic import atomic_write

Record = TypeVar("Record")
Count = Annotated[int, msgspec.Meta(ge=0)]
"""An integer that is not negative."""

_REASON = re.compile(r"(?P<reason>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?", re.DOTALL)


@overload
def read_json(path: Path) -> Any: ...
@overload
def read_json(path: Path, kind: type[Record]) -> Record: ...
def read_json(path: Path, kind: Any = Any) -> Any:
    """Return the content of a JSON file.

    Raises:
        ValueError: it is not JSON in UTF-8, contains NaN, an unpaired surrogate, a number out of range or too
            many levels of nesting, or a value is missing or of another type; names the field.
        OSError: it cannot be read.
    """
    return parse_json(path.read_bytes(), kind)


@overload
def parse_json(text: str | bytes) -> Any: ...
@overload
def parse_json(text: str | bytes, kind: type[Record]) -> Record: ...
def parse_json(text: str | bytes, kind: Any = Any) -> Any:
    """Return the value of a JSON text; raises ValueError as `read_json` does."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(_describe(error)) from None


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    """Write a JSON file, which appears when it is complete; see `atomic_write`."""
    with atomic_write(path) as stream:
        json.dump(value, stream, indent=indent)
        stream.write("\n")


def to_record(value: Any, kind: type[Record], strict: bool = True) -> Record:
    """Return a parsed JSON value as a dataclass or another type.

    Raises:
        ValueError: a value is missing or of another type; names the field.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ValueError(_describe(error)) from None


def _describe(error: msgspec.DecodeError) -> str:
    """Return the reason of an error, after the path of the field if it has one."""
    match = _REASON.fullmatch(str(error))
    assert match is not None
    reason = match["reason"].replace("`", "")
    reason = reason if reason.startswith("JSON") else reason[0].lower() + reason[1:]
    return f"{match['path']}: {reason}" if match["path"] else reason
