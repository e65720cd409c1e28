"""Limits on the length of the documentation."""

from pathlib import Path

import pytest

WORDS = {
    "architecture.md": 1800,
    "performance.md": 1500,
    "search.md": 2500,
    "sensitivity.md": 2000,
    "training.md": 1800,
}
WORDS_OF_ALL_PAGES = 30_000


@pytest.mark.parametrize("name", WORDS)
def test_pages_keep_to_their_length(root: Path, name: str) -> None:
    words = len((root / "docs" / name).read_text().split())
    assert words <= WORDS[name], f"docs/{name} has {words} words"


def test_all_pages_together_are_short(root: Path) -> None:
    pages = [page for page in (root / "docs").rglob("*.md") if page.name != "cli.md"]
    words = sum(len(page.read_text().split()) for page in pages)
    assert words <= WORDS_OF_ALL_PAGES, f"docs/ without cli.md has {words:,} words"


def test_the_changelog_of_a_version_is_short(root: Path) -> None:
    assert len((root / "CHANGELOG.md").read_text().splitlines()) <= 60
