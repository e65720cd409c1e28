"""Source files and names that the pages mention exist."""

import re
from pathlib import Path

SOURCE_PATH = re.compile(r"`((?:foldcli|msa|features|model|cuda|tests|benchmarks)/[a-z0-9_/]+(?:\.py|/))`")
NAME_IN_FILE = re.compile(r"`(\w+)` in `([a-z0-9_/]+\.py)`")


def test_mentioned_source_files_exist(root: Path, page: Path) -> None:
    for path in SOURCE_PATH.findall(page.read_text()):
        # the namespace package cuda must not have one
        if path != "cuda/__init__.py":
            assert (root / path).exists(), f"{page.relative_to(root)}: {path}"


def test_mentioned_names_are_defined_in_their_file(root: Path, page: Path) -> None:
    for name, path in NAME_IN_FILE.findall(page.read_text()):
        source = (root / path).read_text()
        assert re.search(rf"^(?:class|def) {name}\b|^{name}\b.*=", source, re.MULTILINE), f"{path}: {name}"


def test_the_glossary_names_definitions(root: Path) -> None:
    glossary = (root / "docs/architecture.md").read_text().partition("## Glossary")[2]
    assert len(NAME_IN_FILE.findall(glossary)) >= 15
