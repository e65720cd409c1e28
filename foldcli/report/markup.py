"""HTML built from untrusted text, such as names of targets and headers of databases."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any


class Markup(str):
    """Text that is valid HTML: escaped, or built by the functions of this module."""


def escape(value: object) -> Markup:
    """Return a value as escaped text; Markup is returned unchanged."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return an HTML element.

    Args:
        tag: name of the element.
        content: children; anything that is not Markup is escaped.
        attributes: a trailing `_` avoids Python's keywords, other `_` become `-`. None and False omit the
            attribute; True gives one without a value.
    """
    parts = [tag]
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            parts.append(f'{name}="{html.escape(str(value))}"')
    start_tag = f"<{' '.join(parts)}>"
    if tag in ("input", "meta", "img"):
        return Markup(start_tag)
    return Markup(f"{start_tag}{join(content)}</{tag}>")


def join(parts: Iterable[object]) -> Markup:
    """Return the concatenation of parts; anything that is not Markup is escaped."""
    return Markup("".join(map(escape, parts)))


def section(title: str, name: str, *content: object) -> Markup:
    """Return a section with a heading; `name` is its id."""
    return element(
        "section",
        element("h2", title, id=f"{name}-title"),
        *content,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def note(text: str) -> Markup:
    """Return a paragraph of secondary text."""
    return element("p", text, class_="note")


def table(
    header: Sequence[object], rows: Iterable[Sequence[object]], caption: str, **attributes: object
) -> Markup:
    """Return a table in a scrollable box, so that narrow screens need not scroll the whole page."""

    def row(cells: Sequence[object]) -> Markup:
        first, *rest = cells
        others = [element("td", cell, class_="number" if _is_number(cell) else None) for cell in rest]
        return element("tr", element("th", first, scope="row"), *others)

    header_row = element(
        "tr", *(cell if isinstance(cell, Markup) else element("th", cell, scope="col") for cell in header)
    )
    whole = element(
        "table",
        element("caption", caption),
        element("thead", header_row) if header else "",
        element("tbody", *map(row, rows)),
        **attributes,
    )
    return element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _is_number(cell: object) -> bool:
    # short text that starts with a digit is a number, maybe with a unit
    return isinstance(cell, str) and cell[:1].isdigit() and len(cell) < 16


def data_block(content: Any, name: str) -> Markup:
    """Return a script element with JSON data; nothing in the data can end the element."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{name}">{text}</script>')


def read_asset(name: str) -> str:
    """Return the text of one of this package's styles or scripts."""
    return files("foldcli.report").joinpath("assets", name).read_text(encoding="utf-8")


def document(
    title: str, body: Markup, styles: Sequence[str], scripts: Sequence[str], image_sources: str = "data:"
) -> str:
    """Return a complete page that opens from disk and makes no network requests.

    Its content security policy allows these styles and scripts only.

    Args:
        title: title of the page.
        body: content of the page.
        styles: CSS to inline.
        scripts: JavaScript to inline; empty ones are left out.
        image_sources: allowed sources of images, in the syntax of the policy.

    Raises:
        ValueError: a style or script contains the end tag of its element.
    """
    style, nonempty = "\n".join(styles), [script for script in scripts if script]
    for text in (style, *nonempty):
        if "</style" in text.lower() or "</script" in text.lower():
            raise ValueError("a script or style that ends its element cannot be inlined")
    script_sources = " ".join(map(_hash_source, nonempty)) or "'none'"
    policy = (
        f"default-src 'none'; script-src {script_sources}; style-src {_hash_source(style)}; "
        f"img-src {image_sources}; base-uri 'none'; form-action 'none'"
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
    inlined = Markup("".join(f"<script>{script}</script>" for script in nonempty))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', body, inlined), lang='en')}\n"


def _hash_source(content: str) -> str:
    """Return the source expression of a content security policy that allows exactly this content."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def format_duration(seconds: float) -> str:
    """Return a duration such as 0.4 s, 36 s, 12 min 5 s or 3 h 20 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_gib(count: float) -> str:
    """Return a number of bytes in GiB."""
    return f"{count / 2**30:.2f} GiB"
