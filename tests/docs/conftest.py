"""The pages that people read."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pages() -> list[Path]:
    """Every Markdown page but the changelog."""
    return [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `page` is run for each."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
