"""Relative links of the documentation: their files and headings exist."""

import re
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t)[^\n]*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def links(text: str) -> list[str]:
    """Return the targets of a page's links, outside of code, in which brackets are not links."""
    return LINK.findall(CODE.sub("", text))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub creates for a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_relative_links_resolve(root: Path, page: Path) -> None:
    for link in links(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(root)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.relative_to(root)}: {link}"


def test_index_links_to_every_page(root: Path) -> None:
    index = root / "docs/README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index.read_text())}
    assert set((root / "docs").rglob("*.md")) - linked == {index}


def test_links_after_code_are_found() -> None:
    text = "[a](a.md)\n\n    code[1](x)\n\n[b](b.md)\n\n```sh\n[no](y)\n```\n`[no](z)`\n[c](c.md#d)\n"
    assert links(text) == ["a.md", "b.md", "c.md#d"]
