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
