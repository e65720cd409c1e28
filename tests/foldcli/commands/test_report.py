"""`foldcli report` as a user runs it, on existing results."""

import json
import subprocess
from pathlib import Path
from zipfile import ZipFile

from tests.command_process import run_foldcli
from tests.foldcli.report.results import write_result


def report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_foldcli(["report", *arguments])


def test_reports_are_regenerated_and_failures_reported(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name, name)
    archive = tmp_path / "a/a.result.zip"
    archive.touch()
    result = report(tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    with ZipFile(archive) as renewed:
        assert renewed.read("a.html") == (tmp_path / "a/a.html").read_bytes()
    for name in ("a", "b"):
        assert (tmp_path / name / f"{name}.html").is_file()
        assert len(list((tmp_path / name).glob("*.png"))) == 4
    assert (tmp_path / "index.html").is_file()

    (damaged,) = (tmp_path / "a").glob("*_scores_rank_001_*.json")
    damaged.write_text("{")
    (tmp_path / "b/b.html").unlink()
    write_result(tmp_path / "c", "c")
    (tmp_path / "c/.work").mkdir()
    result = report(tmp_path, "--no-plots")
    assert "c: no report, because its run has not ended or was interrupted" in result.stderr
    assert not list(tmp_path.glob("c/*.html"))
    assert result.returncode == 5 and "1 of 2 reports could not be made" in result.stderr
    assert str(damaged) in result.stderr and "Traceback" not in result.stderr
    assert (tmp_path / "b/b.html").is_file()


def test_tables_of_array_jobs_are_merged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name, name)
    for shard in (1, 2):
        failure = {"target": f"t{shard}", "error": "no", "type": "InputError", "exit_code": 3}
        (tmp_path / f"failures.{shard}-of-2.jsonl").write_text(json.dumps(failure) + "\n")
    result = report(tmp_path, "--tables-only")
    assert result.returncode == 0 and "2 failed targets" in result.stderr, result.stderr
    assert len((tmp_path / "summary.tsv").read_text().splitlines()) == 5
    assert len((tmp_path / "failures.jsonl").read_text().splitlines()) == 2
    index = (tmp_path / "index.html").read_text()
    assert "4 targets" in index and "2 failed" in index
    assert not list(tmp_path.glob("*/*.html")) and not list(tmp_path.glob("*/*.png"))


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


def test_models_are_compared_with_references(tmp_path: Path) -> None:
    out, references = tmp_path / "out", tmp_path / "references"
    references.mkdir()
    for name in ("a", "b"):
        write_result(out / name, name)
    (model,) = (out / "a").glob("a_unrelaxed_rank_001_*.pdb")
    (references / "a.pdb").write_bytes(model.read_bytes())
    result = report(out, "--reference", references, "--no-plots")
    assert result.returncode == 0, result.stderr
    assert "b: not compared: no structure of this name" in result.stderr
    header, *rows = (line.split("\t") for line in (out / "comparison.tsv").read_text().splitlines())
    assert [row[:2] for row in rows] == [["a", "1"], ["a", "2"]] and rows[0][header.index("lddt")] == "1"
    for name, shown in (("a", True), ("b", False)):
        assert ("Comparison with the reference" in (out / name / f"{name}.html").read_text()) == shown
    (references / "b.cif").write_text("nothing\n")
    result = report(out, "--reference", references, "--no-plots")
    assert result.returncode == 5 and "b.cif: neither an mmCIF nor a PDB file" in result.stderr
    assert len((out / "comparison.tsv").read_text().splitlines()) == 3
