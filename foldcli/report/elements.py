"""HTML from text that cannot be trusted: names and headers of databases go through here alone."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any


class Markup(str):
    """HTML that has been escaped, or made here."""


def text(value: object) -> Markup:
    """A value as text of a page; Markup stays as it is."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """An element; `_` ends attribute names that Python reserves, and stands for `-` inside others.

    Attributes that are None or False are left out, True gives one without a value.
    """
    parts = [tag]
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            parts.append(f'{name}="{html.escape(str(value))}"')
    opened = f"<{' '.join(parts)}>"
    return Markup(opened if tag in ("input", "meta", "img") else f"{opened}{joined(content)}</{tag}>")


def joined(parts: Iterable[object], between: str = "") -> Markup:
    return Markup(between.join(map(text, parts)))


def section(title: str, name: str, *content: object) -> Markup:
    return element(
        "section",
        element("h2", title, id=f"{name}-title"),
        *content,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], caption: str, **attributes: object
) -> Markup:
    """A table in a box that scrolls by itself, so that a narrow screen need not."""

    def row(cells: Sequence[object]) -> Markup:
        first, *rest = cells
        others = [element("td", cell, class_="number" if _is_number(cell) else None) for cell in rest]
        return element("tr", element("th", first, scope="row"), *others)

    heads = element(
        "tr", *(cell if isinstance(cell, Markup) else element("th", cell, scope="col") for cell in head)
    )
    whole = element(
        "table",
        element("caption", caption),
        element("thead", heads) if head else "",
        element("tbody", *map(row, rows)),
        **attributes,
    )
    return element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _is_number(cell: object) -> bool:
    # what begins with a digit and is short: a number, with its unit if it has one
    return isinstance(cell, str) and cell[:1].isdigit() and len(cell) < 16


def data_block(content: Any, name: str) -> Markup:
    """JSON that a script of the page reads; nothing in it can end the element."""
    plain = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{name}">{plain}</script>')


def asset(name: str) -> str:
    """A file of this package's own styles and scripts."""
    return files("foldcli.report").joinpath("assets", name).read_text(encoding="utf-8")


def document(
    title: str, body: Markup, styles: Sequence[str], scripts: Sequence[str], images: str = "data:"
) -> str:
    """A whole page that opens from disk and asks the network for nothing.

    The content security policy lets only these styles and scripts act, so that nothing else ever does.

    Args:
        title: of the page.
        body: what it holds.
        styles, scripts: inlined; they must not hold the end tag of their element.
        images: where pictures may come from, as the policy says it.
    """
    style, script = "\n".join(styles), [text_ for text_ in scripts if text_]
    for inlined in (style, *script):
        if "</style" in inlined.lower() or "</script" in inlined.lower():
            raise ValueError("a script or style that ends its element cannot be inlined")
    allowed = " ".join(map(_hash, script)) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src {images}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    inlined = Markup("".join(f"<script>{each}</script>" for each in script))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', body, inlined), lang='en')}\n"


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
