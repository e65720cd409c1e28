"""Parametrization of tests by the pages of the documentation."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pages() -> list[Path]:
    """Return every Markdown page except the changelog."""
    return [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with a `page` argument once per page."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
