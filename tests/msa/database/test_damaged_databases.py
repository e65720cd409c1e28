"""Damaged databases are refused or do no harm; `tests/fuzz/databases.py` runs more cases."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from msa.io.fasta import FastaRecord, read_fasta
from tests.fuzz.databases import Case, make_cases, make_databases, print_table, run_in_jobs


def _inputs(root: Path, folder: Path) -> tuple[list[Path], Sequence[FastaRecord]]:
    fasta = root / "examples" / "demo.fasta"
    return make_databases(fasta, folder), list(read_fasta(fasta))[::40]


@pytest.mark.slow
def test_no_damage_crashes_a_search_or_changes_its_result_unnoticed(root: Path, tmp_path: Path) -> None:
    databases, queries = _inputs(root, tmp_path)
    counts = run_in_jobs(make_cases(databases, 80, seed=7), queries, 7, jobs=1)
    assert print_table(counts) == 0
    assert sum(counts.values()) == 80
    assert sum(count for (*_, outcome), count in counts.items() if outcome == "refused") > 40


@pytest.mark.slow
def test_crashes_and_changed_results_are_detected(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("check_sequences", "check_small_files"):
        monkeypatch.setattr(f"msa.database.database.{name}", lambda *_: None)
    databases, queries = _inputs(root, tmp_path)
    cases = [Case(number, "checked", databases[0], "offsets.i64") for number in range(30)]
    counts = run_in_jobs(cases, queries, 7, jobs=1)
    outcomes = {outcome for *_, outcome in counts}
    assert outcomes >= {"crash", "other result"} and print_table(counts) > 5
