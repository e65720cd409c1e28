"""Every relative link leads somewhere: the file is there, and so is the heading."""

import re
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t).*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its code, in which brackets are no links."""
    return CODE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
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


def test_the_index_names_every_page(root: Path) -> None:
    index = root / "docs/README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose(index))}
    assert set((root / "docs").rglob("*.md")) - linked == {index}
