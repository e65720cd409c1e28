"""Test of the view of a structure in notebooks, in headless Chromium."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldcli.report.notebook import notebook_view
from tests.foldcli.report.results import SEQUENCE, helix, pdb

pytestmark = pytest.mark.browser


def test_view_draws_the_structure(tmp_path: Path, open_page: Any) -> None:
    text = pdb(SEQUENCE, helix(len(SEQUENCE), 0), np.full(len(SEQUENCE), 80.0))
    path = tmp_path / "view.html"
    path.write_text(f"<!doctype html>{notebook_view(text, 'pdb', '<b>target</b>', untrained=False)}")
    page = open_page(path)
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for(timeout=60_000)
    assert frame.locator("canvas").count() == 1
    assert page.locator("p").inner_text() == "<b>target</b>"
