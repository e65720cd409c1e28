"""What is begun before torch is imported: it helps, and where it fails nobody is told twice."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foldcli.pipeline.background import in_background, side_by_side
from foldcli.pipeline.preload import _ready_features, begin


def test_results_and_errors_of_background_threads() -> None:
    assert in_background(lambda: 5).result() == 5
    assert isinstance(in_background(lambda: 1 // 0).exception(), ZeroDivisionError)
    futures = side_by_side([lambda n=n: 6 // n for n in (1, 0, 2, 3)], 2)  # type: ignore[misc]
    assert isinstance(futures[1].exception(), ZeroDivisionError)
    assert [futures[k].result() for k in (0, 2, 3)] == [6, 3, 2]
    assert side_by_side([], 2) == []


def test_parameters_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "params.npz", x=np.arange(3.0))
    arrays = begin("cpu", tmp_path / "params.npz")
    assert arrays is not None
    assert arrays.result()["x"].tolist() == [0, 1, 2] and arrays.result()["x"].dtype == np.float32
    assert begin("cpu", None) is None
    missing = begin("cpu", tmp_path / "none.npz")
    assert missing is not None and isinstance(missing.exception(), FileNotFoundError)


def test_features_are_made() -> None:
    _ready_features()


@pytest.mark.parametrize("may_write", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_byte_code_is_kept_where_the_installation_has_none(
    tmp_path: Path, compiled: bool, may_write: bool
) -> None:
    (tmp_path / "torch.py").write_text("")
    if compiled:
        (tmp_path / "__pycache__").mkdir()
        (tmp_path / "__pycache__" / f"torch.{sys.implementation.cache_tag}.pyc").write_bytes(b"")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "FOLDCLI_CACHE": str(tmp_path / "own")}
    own |= {} if may_write else {"PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import sys; from foldcli.pipeline.preload import keep_byte_code as f; f(); print(sys.pycache_prefix)"
    )
    said = subprocess.run([sys.executable, "-c", code], env=own, text=True, capture_output=True, check=True)
    wanted = None if compiled or may_write else tmp_path / "own" / "bytecode"
    assert said.stdout.strip() == str(wanted)
