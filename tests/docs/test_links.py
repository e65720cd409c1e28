"""Relative links of the documentation: their files and headings exist."""

import re
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t).*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """Return a page without its code, in which brackets are not links."""
    return CODE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub creates for a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_relative_links_resolve(root: Path, page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(root)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.relative_to(root)}: {link}"


def test_index_links_to_every_page(root: Path) -> None:
    index = root / "docs/README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose(index))}
    assert set((root / "docs").rglob("*.md")) - linked == {index}
