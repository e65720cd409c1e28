"""Mutated files of all kinds are read or refused in one line; `tests/fuzz/inputs.py` runs more cases."""

import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from msa.base.errors import InputError
from tests.fuzz import fuzzing
from tests.fuzz.fuzzing import Kind, run_cases
from tests.fuzz.inputs import all_kinds
from tests.fuzz.molecule_kinds import molecule_kinds


@pytest.mark.slow
def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    outcomes = run_cases(all_kinds(tmp_path), cases=8, workers=2)
    failed = [
        (kind, number, outcome)
        for kind, cases in outcomes.items()
        for number, outcome in cases.items()
        if outcome.failed
    ]
    assert not failed
    counts = Counter(outcome.result for cases in outcomes.values() for outcome in cases.values())
    assert min(counts["read"], counts["refused"]) > 30


@pytest.mark.parametrize("kind", molecule_kinds(), ids=lambda kind: kind.name)
def test_samples_of_jobs_are_read_and_a_few_mutated_ones(kind: Kind, tmp_path: Path) -> None:
    for sample in kind.samples:
        (tmp_path / kind.file_name).write_bytes(sample)
        assert kind.read(tmp_path / kind.file_name)
    outcomes = run_cases([kind], cases=20, workers=1)
    assert not [(number, case) for number, case in outcomes[kind.name].items() if case.failed]


@pytest.mark.slow
def test_mutated_jobs_are_read_or_refused() -> None:
    outcomes = run_cases(molecule_kinds(), cases=60, workers=2)
    assert not [
        (number, case) for cases in outcomes.values() for number, case in cases.items() if case.failed
    ]


def test_failures_of_readers_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SECONDS_PER_CASE", 2.0)

    def refuse(reason: str, path: Path | None = None) -> None:
        raise InputError(reason, path)

    readers = {
        "read": lambda path: None,
        "refused": lambda path: refuse("a reason", path),
        "message": lambda path: refuse("without its file"),
        "traceback": lambda path: [][0],
        "memory": lambda path: np.empty(1 << 42, np.uint8),
        "time": lambda path: signal.pause(),
        "crash": lambda path: os.kill(os.getpid(), signal.SIGSEGV),
    }
    outcomes = run_cases([Kind(name, "x.dat", [b"x"], read) for name, read in readers.items()], 2, workers=2)
    assert {kind: [case.result for case in cases.values()] for kind, cases in outcomes.items()} == {
        name: [name, name] for name in readers
    }
