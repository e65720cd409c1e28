"""Fixtures: structure files, and a library built from them."""

from pathlib import Path

import pytest

from features.templates.library.build import build_library
from features.templates.library.library import StructureLibrary
from features.templates.library.settings import LibrarySettings

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def structures() -> Path:
    """Return the folder of mmCIF files."""
    return DATA


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> StructureLibrary:
    """Return a library of the mmCIF files with all digits of their coordinates."""
    folder = tmp_path_factory.mktemp("library") / "lib"
    build_library([DATA], folder, LibrarySettings(units_per_angstrom=1000))
    return StructureLibrary.open(folder)
