"""Fixture of tests of GPU processes."""

import pytest

from tests.msa.gpu.tiny_search import TinySearch


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinySearch:
    """Return a search in a tiny database."""
    return TinySearch(tmp_path_factory.mktemp("tiny"))
