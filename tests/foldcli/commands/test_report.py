"""`foldcli report` as a user runs it, on results that are there already."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.foldcli.report.results import write_result


def report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foldcli", "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ)


def test_reports_of_a_run_are_made_and_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name, name)
    made = report(tmp_path)
    assert (made.returncode, made.stdout) == (0, "")
    for name in ("a", "b"):
        assert (tmp_path / name / f"{name}.html").is_file()
        assert len(list((tmp_path / name).glob("*.png"))) == 4
    assert (tmp_path / "index.html").is_file()

    (damaged,) = (tmp_path / "a").glob("*_scores_rank_001_*.json")
    damaged.write_text("{")
    (tmp_path / "b/b.html").unlink()
    made = report(tmp_path, "--no-plots")
    assert made.returncode == 5 and "1 of 2 reports could not be made" in made.stderr
    assert str(damaged) in made.stderr and "Traceback" not in made.stderr
    assert (tmp_path / "b/b.html").is_file()


def test_colabfolds_folder_has_a_report(tmp_path: Path) -> None:
    write_result(tmp_path, "its_name.custom")
    for suffix in (".m8", ".done.json"):
        (tmp_path / f"its_name.custom{suffix}").unlink()
    made = report("-q", tmp_path, "--no-plots")
    assert (made.returncode, made.stderr) == (0, "")
    assert "1.0E-20" in (tmp_path / "its_name.custom.html").read_text()
    assert not list(tmp_path.glob("*.png"))


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    empty = report(tmp_path)
    assert empty.returncode == 3 and f"{tmp_path}: no finished target here" in empty.stderr
    assert report(tmp_path / "absent").returncode == 2
    nothing = report(tmp_path, "--no-report", "--no-plots")
    assert nothing.returncode == 2 and "leave nothing to make" in nothing.stderr


def test_an_interrupted_report_does_not_lose_the_prediction(tmp_path: Path) -> None:
    environment = os.environ | {"FOLDCLI_CACHE": str(tmp_path / "cache")}
    (tmp_path / "t.a3m").write_text(">t\nMKVLAAGIIV\n>near\nMKVLSAGIIV\n")
    arguments = ["predict", tmp_path / "t.a3m", "--params", "demo", "--models", "3", "--num-recycle", "0"]
    arguments += ["--max-extra-seq", "8", "-o", tmp_path / "out"]
    # a signal that comes while a module is imported may be lost, so the interrupt is raised where it counts
    code = (
        "import foldcli.pipeline.run, foldcli.__main__\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        "foldcli.pipeline.run.try_report = interrupted\n"
        "foldcli.__main__.main()\n"
    )
    stopped = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True)
    assert stopped.returncode == 130, stopped.stderr
    done = json.loads((tmp_path / "out/t/t.done.json").read_text())
    assert "the report was interrupted; foldcli report makes it" in done["warnings"]
    command = [sys.executable, "-m", "foldcli", *arguments]
    again = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0 and "t: already done" in again.stderr
    assert report(tmp_path / "out").returncode == 0
    page = (tmp_path / "out/t/t.html").read_text()
    assert "this is not a prediction" in page and "alignment: coverage" in page.lower()
