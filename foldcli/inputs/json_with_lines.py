"""JSON and YAML whose mappings know their lines, so that what is wrong in them can be pointed at."""

import json
import re
from collections.abc import Iterable
from typing import Any

from msa.errors import InputError

# what of valid JSON tells where its objects and their keys are
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:\n]')


class Located(dict[str, Any]):
    """A mapping read from a file.

    Attributes:
        line: 1-based line at which it begins.
        lines: of each of its keys.
    """

    line: int
    lines: dict[str, int]

    @classmethod
    def at(cls, content: Iterable[tuple[str, Any]], line: int, lines: dict[str, int]) -> "Located":
        made = cls(content)
        made.line, made.lines = line, lines
        return made

    def line_of(self, key: str) -> int:
        """Where a key stands, or the mapping where there is no such key."""
        return self.lines.get(key, self.line)


def parse_json(data: bytes, path: str) -> Any:
    """The content of a JSON file, its objects as Located.

    Args:
        data: decompressed, in UTF-8.
        path: what errors call it.

    Raises:
        InputError: no JSON, one key twice in an object, or nested too deeply; names the line.
    """
    text = decode(data, path)
    try:
        # first as it is: what is found below is right for valid JSON alone
        json.loads(text)
        closed = iter(_closed_objects(text))

        def located(pairs: list[tuple[str, Any]]) -> Located:
            line, keys = next(closed)
            check_keys(keys, path)
            return Located.at(pairs, line, dict(keys))

        return json.loads(text, object_pairs_hook=located)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise InputError(reason, path, error.lineno, error.colno) from None
    except RecursionError:
        raise InputError("not read: nested too deeply", path) from None


def _closed_objects(text: str) -> list[tuple[int, list[tuple[str, int]]]]:
    """Line and keys with their lines of every object in valid JSON, in the order in which the objects end."""
    closed: list[tuple[int, list[tuple[str, int]]]] = []
    open_now: list[tuple[str, int, list[tuple[str, int]]]] = []
    line, last = 1, ("", 0)
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in "{[":
            open_now.append((token, line, []))
        elif token in "}]":
            kind, begun, keys = open_now.pop()
            if kind == "{":
                closed.append((begun, keys))
        elif token == ":":
            open_now[-1][2].append((json.loads(last[0]), last[1]))
        else:
            last = token, line
    return closed


def parse_yaml(data: bytes, path: str) -> Any:
    """The content of a YAML file with one document, its mappings as Located, all its scalars as text.

    Tags make no objects: nothing in the file is run.

    Args:
        data: decompressed, in UTF-8.
        path: what errors call it.

    Raises:
        InputError: no YAML, several documents, one key twice in a mapping, nested too deeply; names the line.
    """
    import yaml

    class Loader(yaml.BaseLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Located:
            keys = [(str(key.value), key.start_mark.line + 1) for key, _ in node.value]
            check_keys(keys, path)
            content = super().construct_mapping(node, deep=True)
            return Located.at(content.items(), node.start_mark.line + 1, dict(keys))

    text = decode(data, path)
    try:
        return yaml.load(text, Loader)  # a BaseLoader makes nothing but text, lists and mappings
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        reason = " ".join((error.problem or str(error)).split())
        raise InputError(f"not valid YAML: {reason}", path, *place) from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {' '.join(str(error).split())}", path) from None
    except RecursionError:
        raise InputError("not read: nested too deeply", path) from None


def check_keys(keys: list[tuple[str, int]], path: str) -> None:
    """Refuse a key that stands twice in one mapping, of which one would be lost.

    Raises:
        InputError: there is one; names the line of its second.
    """
    seen: set[str] = set()
    for key, line in keys:
        if key in seen:
            raise InputError(f"{key!r} stands twice in one mapping", path, line)
        seen.add(key)


def decode(data: bytes, path: str) -> str:
    """The text of UTF-8 data.

    Raises:
        InputError: it is none; names the line.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"byte {data[error.start]:#04x} is no UTF-8 text", path, line) from None
