"""`foldcli report` as a user runs it, on existing results."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.foldcli.report.results import write_result


def report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foldcli", "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ)


def test_reports_are_regenerated_and_failures_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name, name)
    result = report(tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    for name in ("a", "b"):
        assert (tmp_path / name / f"{name}.html").is_file()
        assert len(list((tmp_path / name).glob("*.png"))) == 4
    assert (tmp_path / "index.html").is_file()

    (damaged,) = (tmp_path / "a").glob("*_scores_rank_001_*.json")
    damaged.write_text("{")
    (tmp_path / "b/b.html").unlink()
    result = report(tmp_path, "--no-plots")
    assert result.returncode == 5 and "1 of 2 reports could not be made" in result.stderr
    assert str(damaged) in result.stderr and "Traceback" not in result.stderr
    assert (tmp_path / "b/b.html").is_file()


def test_report_of_colabfold_results(tmp_path: Path) -> None:
    write_result(tmp_path, "its_name.custom")
    for suffix in (".m8", ".done.json"):
        (tmp_path / f"its_name.custom{suffix}").unlink()
    result = report("-q", tmp_path, "--no-plots")
    assert (result.returncode, result.stderr) == (0, "")
    assert "1.0E-20" in (tmp_path / "its_name.custom.html").read_text()
    assert not list(tmp_path.glob("*.png"))


def test_missing_input_and_conflicting_options(tmp_path: Path) -> None:
    empty = report(tmp_path)
    assert empty.returncode == 3 and f"{tmp_path}: no finished target here" in empty.stderr
    assert report(tmp_path / "absent").returncode == 2
    conflicting = report(tmp_path, "--no-report", "--no-plots")
    assert conflicting.returncode == 2 and "leave nothing to write" in conflicting.stderr


def test_interrupted_report_does_not_lose_the_prediction(tmp_path: Path) -> None:
    environment = os.environ | {"FOLDCLI_CACHE": str(tmp_path / "cache")}
    (tmp_path / "t.a3m").write_text(">t\nMKVLAAGIIV\n>near\nMKVLSAGIIV\n")
    arguments = ["predict", tmp_path / "t.a3m", "--params", "demo", "--models", "3", "--num-recycle", "0"]
    arguments += ["--max-extra-seq", "8", "-o", tmp_path / "out"]
    # raise the interrupt inside the report: a signal during an import may be lost
    code = (
        "import foldcli.pipeline.run, foldcli.__main__\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        "foldcli.pipeline.run.try_report = interrupted\n"
        "foldcli.__main__.main()\n"
    )
    stopped = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True)
    assert stopped.returncode == 130, stopped.stderr
    done = json.loads((tmp_path / "out/t/t.done.json").read_text())
    assert "the report was interrupted; run `foldcli report` to create it" in done["warnings"]
    command = [sys.executable, "-m", "foldcli", *arguments]
    again = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0 and "t: already done" in again.stderr
    assert report(tmp_path / "out").returncode == 0
    page = (tmp_path / "out/t/t.html").read_text()
    assert "this is not a prediction" in page and "alignment: coverage" in page.lower()
