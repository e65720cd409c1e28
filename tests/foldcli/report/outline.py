"""An HTML parser for tests: texts, ids, attributes and scripts of a page."""

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "input", "img"}


class Outline(HTMLParser):
    """The parsed content of a page whose elements are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self._attributes: dict[str, str | None] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._attributes = dict(attributes)
        self.attributes += [(tag, name, value) for name, value in attributes]
        self.ids += [value or "" for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw.append((self.open[-1], self._attributes, text))
        else:
            self.texts.append(text)

    @property
    def text(self) -> str:
        """All text outside scripts and styles."""
        return " ".join(self.texts)

    def data(self) -> dict[str, Any]:
        """Return the page's data block."""
        (block,) = [text for tag, attributes, text in self.raw if attributes.get("id") == "data"]
        return json.loads(block)
