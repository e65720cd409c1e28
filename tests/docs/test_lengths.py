"""Limits on the length of pages and sentences of the documentation."""

import re
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
WORDS_OF_A_SENTENCE = 45


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


def sentences(text: str) -> list[str]:
    """Return the sentences of a page outside of code, headings and tables; list items are paragraphs."""
    text = re.sub(
        r"^```.*?^```$|<!--.*?-->|^(?: {4}|\t)(?! *-)[^\n]*$", "\n\n", text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"^(?:#|\|).*$", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text)]
    # abbreviations do not end a sentence
    ends = r"(?<=[.!?])(?<!al\.)(?<!e\.g\.)(?<!i\.e\.)[*)]*\s+(?=\S)"
    return [sentence for each in paragraphs for sentence in re.split(ends, each) if sentence]


def test_sentences_are_short(page: Path) -> None:
    if page.name == "cli.md":
        return
    long = [each for each in sentences(page.read_text()) if len(each.split()) > WORDS_OF_A_SENTENCE]
    assert not long, f"{page.name}: split these sentences, or make them lists: {long}"


def test_sentences_of_a_page() -> None:
    text = "# A title. Not one\n\nOne [two](x.md) three, et al. four.\nFive\n\n| a. | b |\n"
    text += "\n- six: seven. Eight\n- nine\n  ten\n\n    code. more\n\n```sh\ncode. more\n```\nend\n"
    expected = ["One [two] three, et al. four.", "Five", "six: seven.", "Eight", "nine ten", "end"]
    assert sentences(text) == expected
