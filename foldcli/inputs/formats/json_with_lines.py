"""JSON and YAML parsed into mappings with line numbers, for error messages."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msa.base.errors import InputError

# Python refuses to convert longer numbers, whose conversion takes quadratic time
_MAX_DIGITS = 4300
_LONG_NUMBER = re.compile(f"[0-9]{{{_MAX_DIGITS + 1}}}")
_MAX_DEPTH = 100
_BRACKET = re.compile(r"[\[\]{}]")
# YAML's spellings of "no value", unless they are quoted
_YAML_NULL = ("", "~", "null", "Null", "NULL")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# the tokens of JSON needed to find the lines of objects and keys
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:\n]')


class MappingWithLines(dict[str, Any]):
    """A mapping read from a file.

    Args:
        content: keys and values.
        path: the file, for errors.
        line: 1-based line where the mapping begins.
        lines: 1-based line of each key.
        start: offset in the file's text where it begins.
    """

    def __init__(
        self, content: Iterable[tuple[str, Any]], path: str, line: int, lines: Mapping[str, int], start: int
    ) -> None:
        super().__init__(content)
        self.path, self.line, self._lines, self.start = path, line, lines, start

    def line_of(self, key: str) -> int:
        """Return the line of a key, or that of the mapping if it lacks the key."""
        return self._lines.get(key, self.line)

    def error(self, reason: str, key: str | None = None) -> InputError:
        """Return an error that names the file and the line of a key, or of the mapping."""
        return InputError(reason, self.path, self.line if key is None else self.line_of(key))

    def check_keys(self, known: Collection[str]) -> None:
        """Raise InputError for an unknown key, which is probably misspelt."""
        for key in self:
            if key not in known:
                raise self.error(f"unknown key {key!r}", key)

    def refuse(self, descriptions: Mapping[str, str]) -> None:
        """Raise InputError for a key with content that no network here supports; the error describes it."""
        for key, description in descriptions.items():
            if self.get(key) not in (None, [], {}, "", False):
                raise self.error(f"{description} ({key}) are not supported", key)

    def text(self, key: str) -> str:
        """Return the text of a key; raise InputError if it is missing, or its value is not text."""
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            reason = f"{key!r} is not text" if value not in (None, "") else f"no {key!r}"
            if isinstance(value, list):
                reason += "; in YAML, quote text that begins with a bracket"
            raise self.error(reason, key)
        return value

    def number(self, key: str, value: Any = ..., name: str | None = None) -> int:
        """Return a whole number, which YAML has as text; raise InputError for anything else.

        Args:
            key: its key, or the one whose line errors name.
            value: the number; by default the value of the key.
            name: its name in errors; by default the key.
        """
        value = self.get(key) if value is ... else value
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 12:
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f"{name or key!r} is {value!r:.40}: expected a whole number", key)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false, which YAML has as text; the default if the key is absent.

        Raises:
            InputError: the value is neither.
        """
        value = self.get(key)
        if value is None:
            return default
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).lower())
        if flag is None:
            raise self.error(f"{key!r} is {value!r:.40}: expected true or false", key)
        return flag

    def mapping(self, key: str, description: str | None = None) -> "MappingWithLines":
        """Return the mapping of a key; raise InputError if there is none."""
        return as_mapping(self.get(key), description or repr(key), self.path, self.line_of(key))

    def elements(self, key: str, content: str = "a list") -> list[Any]:
        """Return a list, empty if there is none; raise InputError for anything else."""
        values = self.get(key)
        if values is not None and not isinstance(values, list):
            raise self.error(f"{key!r} is not {content}", key)
        return values or []

    def mappings(
        self, key: str, description: str, known: Collection[str] | None = None
    ) -> Iterator["MappingWithLines"]:
        """Yield the mappings in a list; raise InputError for anything else, and for unknown keys."""
        for value in self.elements(key):
            item = as_mapping(value, description, self.path, self.line_of(key))
            if known is not None:
                item.check_keys(known)
            yield item


def as_mapping(value: Any, description: str, path: str, line: int = 1) -> MappingWithLines:
    """Return a value that must be a mapping; raise InputError if it is not."""
    if not isinstance(value, MappingWithLines):
        raise InputError(f"{description} is not a mapping", path, line)
    return value


def parse_json_with_lines(data: bytes, path: str) -> Any:
    """Parse a JSON file; objects become MappingWithLines.

    Raises:
        InputError: invalid JSON, a repeated key in an object, half of a surrogate pair, a number of more than
            4300 digits, or nesting that is too deep; names the line.
    """
    text = decode_utf8(data, path)
    if (number := _LONG_NUMBER.search(text)) is not None:
        line = text.count("\n", 0, number.start()) + 1
        raise InputError(f"a number of more than {_MAX_DIGITS} digits", path, line)
    try:
        json.loads(text)  # _object_lines is only correct for valid JSON
        object_lines = iter(_object_lines(text, path))

        def create(pairs: list[tuple[str, Any]]) -> MappingWithLines:
            start, line, keys = next(object_lines)
            _check_repeated_keys(keys, path)
            return MappingWithLines(pairs, path, line, dict(keys), start)

        return json.loads(text, object_pairs_hook=create)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise InputError(reason, path, error.lineno, error.colno) from None
    except RecursionError:
        raise InputError("nested too deeply", path) from None


def _object_lines(text: str, path: str) -> list[tuple[int, int, list[tuple[str, int]]]]:
    """Return offset, line and (key, line) pairs of every object in valid JSON, ordered by their ends."""
    objects: list[tuple[int, int, list[tuple[str, int]]]] = []
    open_brackets: list[tuple[int, int, list[tuple[str, int]]]] = []
    line, last_string = 1, ("", 0)
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in "{[":
            open_brackets.append((match.start(), line, []))
        elif token in "}]":
            opened = open_brackets.pop()
            if token == "}":
                objects.append(opened)
        elif token == ":":
            open_brackets[-1][2].append((json.loads(last_string[0]), last_string[1]))
        else:
            last_string = token, line
            if "\\u" in token:
                _check_surrogates(json.loads(token), path, line)
    return objects


def _check_surrogates(text: str, path: str, line: int) -> None:
    """Raise InputError for half of a surrogate pair, which cannot be written to a file in UTF-8."""
    if (half := _SURROGATE.search(text)) is not None:
        raise InputError(f"\\u{ord(half[0]):04x} is half of a surrogate pair", path, line)


def parse_yaml_with_lines(data: bytes, path: str) -> Any:
    """Parse a YAML file with one document; mappings become MappingWithLines, scalars text or None (null).

    Tags do not create objects, so nothing in the file is executed.

    Raises:
        InputError: invalid YAML, several documents, a repeated key in a mapping, half of a surrogate pair, or
            nesting that is too deep; names the line.
    """
    import yaml  # takes longer to import than a search with one query, and few jobs are YAML files

    class Loader(yaml.BaseLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> MappingWithLines:
            keys = [(str(key.value), key.start_mark.line + 1) for key, _ in node.value]
            _check_repeated_keys(keys, path)
            content, mark = super().construct_mapping(node, deep=True), node.start_mark
            return MappingWithLines(content.items(), path, mark.line + 1, dict(keys), mark.index)

        def construct_scalar(self, node: Any) -> str | None:
            if node.style is None and node.value in _YAML_NULL:
                return None
            value = str(super().construct_scalar(node))
            _check_surrogates(value, path, node.start_mark.line + 1)
            return value

    text = decode_utf8(data, path)
    _check_depth(text, path)
    try:
        return yaml.load(text, Loader)  # a BaseLoader creates only text, lists and mappings
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        reason = " ".join((error.problem or str(error)).split())
        if "'\\t'" in reason:
            reason = "lines are indented with spaces, not with tabs"
        raise InputError(f"not valid YAML: {reason}", path, *location) from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {' '.join(str(error).split())}", path) from None
    except RecursionError:
        raise InputError("nested too deeply", path) from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        # an escape of a character that does not exist
        raise InputError(f"not valid YAML: {error}", path) from None


def _check_depth(text: str, path: str) -> None:
    """Raise InputError for deeply nested brackets, which PyYAML reads in quadratic time."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in "[{" else -min(depth, 1)
        if depth > _MAX_DEPTH:
            raise InputError("nested too deeply", path, text.count("\n", 0, match.start()) + 1)


def _check_repeated_keys(keys: list[tuple[str, int]], path: str) -> None:
    """Raise InputError for a key that occurs twice in one mapping; names the line of the second."""
    seen: set[str] = set()
    for key, line in keys:
        if key in seen:
            raise InputError(f"the key {key!r} occurs twice in one mapping", path, line)
        seen.add(key)


def decode_utf8(data: bytes, path: str) -> str:
    """Decode UTF-8 text, with or without a byte order mark.

    Raises:
        InputError: the data is not valid UTF-8; names the line.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"byte {data[error.start]:#04x} is not valid UTF-8", path, line) from None
