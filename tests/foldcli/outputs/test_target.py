"""Tests of the state of a target during a run."""

from pathlib import Path

from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun, TargetStatus


def test_only_failures_remain(tmp_path: Path) -> None:
    target = TargetRun(TargetFiles("t", tmp_path), None)
    assert target.is_open
    for status in (TargetStatus.PREDICTED, TargetStatus.INTERRUPTED, TargetStatus.OPEN, TargetStatus.FAILED):
        assert target.set_status(status) and target.status is status
    # jobs of a target overlap: only the first failure is recorded, and none is taken back
    for status in (TargetStatus.FAILED, TargetStatus.OPEN):
        assert not target.set_status(status) and target.status is TargetStatus.FAILED


def test_missing_relaxation_and_report_are_one_failure(tmp_path: Path) -> None:
    target = TargetRun(TargetFiles("t", tmp_path), None)
    assert target.incompleteness(is_reported=True) is None
    assert "report" in str(target.incompleteness(is_reported=False))
    target.add_relax_failure("model_1", MemoryError())
    text = str(target.incompleteness(is_reported=False))
    assert text.startswith(
        "model_1 was not relaxed: not enough memory; the unrelaxed structure is kept; its report"
    )
