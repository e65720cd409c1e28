"""JSON text that is edited in place: all but the inserted values stays as it was, byte for byte."""

import json
import re
from collections.abc import Mapping
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
Span = tuple[int, int]
"""The place of a value: offsets of its first character and of the one behind its last."""


class JsonText:
    """The text of a valid JSON file and the edits to make in it.

    Args:
        text: the text, which `foldcli.inputs.formats.json_with_lines.parse_json_with_lines` accepts.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._edits: dict[Span, str] = {}

    def set(self, start: int, values: Mapping[str, Any]) -> None:
        """Set values of the object that begins at an offset, which has at least one key.

        The value of a key that it has is replaced; other keys are added at its end, with the same space
        before them as its first key has.
        """
        members = self._members(start)
        last = max(end for _, end in members.values())
        space = self._text[start + 1 : self._skip(start + 1)]
        added = ""
        for key, value in values.items():
            text = json.dumps(value)
            if key in members:
                self._edits[members[key]] = text
            else:
                added += f",{space if chr(10) in space else ' '}{json.dumps(key)}: {text}"
        if added:
            self._edits[last, last] = added

    def edited(self) -> str:
        """Return the text with all edits."""
        parts, done = [], 0
        for (start, end), text in sorted(self._edits.items()):
            parts += [self._text[done:start], text]
            done = end
        return "".join([*parts, self._text[done:]])

    def _members(self, start: int) -> dict[str, Span]:
        """Return the values of the object that begins at an offset, by their keys."""
        spans = {}
        index = self._skip(start + 1)
        while self._text[index] != "}":
            key, index = _DECODER.raw_decode(self._text, index)
            begin = self._skip(self._skip(index) + 1)
            _, end = _DECODER.raw_decode(self._text, begin)
            spans[key] = begin, end
            index = self._skip(end)
            if self._text[index] == ",":
                index = self._skip(index + 1)
        return spans

    def _skip(self, index: int) -> int:
        """Return the offset of the next character that is not space."""
        match = _SPACE.match(self._text, index)
        assert match is not None
        return match.end()
