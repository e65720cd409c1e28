"""The page about the compact network has the results of its manifest."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from model.checkpoints.network_folder import HeldOutCase
from tests.networks import tiny_network, write_packaged_network


def test_page_is_up_to_date(root: Path) -> None:
    code = (
        "from generate_compact import PAGE, package_manifest, page; "
        "text = PAGE.read_text(); assert page(text, package_manifest()) == text"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=root / "docs", capture_output=True, text=True)
    assert result.returncode == 0, f"run python docs/generate_compact.py\n{result.stderr}"


def test_results_are_a_table(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(root / "docs")
    from generate_compact import END, START, page, results

    config = replace(tiny_network(), predicted_aligned_error=False)
    manifest = write_packaged_network(tmp_path / "network", config)
    case = HeldOutCase(True, 0.3, 0.4, 75, 0.66, 0.61, 0.70, 0.602, 0.071)
    text = results(replace(manifest, held_out=(case,)))
    assert "Not trained: PAE and pTM, side chains beyond CB." in text
    # 75 chains with this interval have a standard deviation of 0.199
    row = "| best template of 30 to 40 % identity | 75 | 66 (61 to 70) | 41 to 91 | 60 | 7 |"
    assert row in text.splitlines()
    case = replace(case, percentile_10=0.48, percentile_90=0.81)
    text = results(replace(manifest, held_out=(case,)))
    assert "| 66 (61 to 70) | 48 to 81 | 60 | 7 |" in text
    once = page(f"before\n{START}old\n{END}after\n", manifest)
    assert "old" not in once and once.startswith("before\n") and once.endswith("after\n")
    assert page(once, manifest) == once
