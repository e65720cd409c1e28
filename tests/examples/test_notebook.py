"""Test of the notebook: its cells run, as a person would run them."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("demo.fasta").write_bytes((EXAMPLES / "demo.fasta").read_bytes())
    cells = json.loads((EXAMPLES / "python.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        for cell in cells:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                exec("".join(cell["source"]), names)
    assert [prediction.target for prediction in names["predictions"]] == ["gb1"]
    assert names["best"].plddt.mean() > 60
    assert "1/1" in output.getvalue()
