"""Pages that have grown into diaries before keep to a number of words."""

from pathlib import Path

import pytest

WORDS = {
    "architecture.md": 1800,
    "performance.md": 1500,
    "search.md": 2500,
    "sensitivity.md": 2000,
    "training.md": 1800,
}


@pytest.mark.parametrize("name", WORDS)
def test_pages_keep_to_their_length(root: Path, name: str) -> None:
    words = len((root / "docs" / name).read_text().split())
    assert words <= WORDS[name], f"docs/{name} has {words} words"


def test_the_changelog_of_a_version_is_short(root: Path) -> None:
    assert len((root / "CHANGELOG.md").read_text().splitlines()) <= 60
