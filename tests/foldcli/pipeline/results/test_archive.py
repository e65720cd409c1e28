"""Tests of --zip: the archive of a target, in the first and in later runs."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.pipeline.runs.dry_run import DONE, TO_DO
from tests.foldcli.pipeline.runs.runs import UBIQUITIN, Runs

pytestmark = pytest.mark.slow

QUERY = AlignmentTarget("q", ("-",), f">q\n{UBIQUITIN[:20]}\n".encode())


class ArchivingRuns(Runs):
    """Runs into one folder with --zip."""

    def settings(self, **changes):  # type: ignore[no-untyped-def, override]
        settings = super().settings(**changes)
        return replace(settings, output=replace(settings.output, archive=True))


def names_and_contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_archive_has_the_files_and_follows_their_changes(tmp_path: Path) -> None:
    runs, archiving = Runs(tmp_path), ArchivingRuns(tmp_path)
    archive = runs.files.path("archive")
    runs.run(QUERY)
    assert runs.action(QUERY) == DONE and archiving.action(QUERY) == TO_DO
    times = runs.times()
    archiving.run(QUERY)
    assert archiving.action(QUERY) == DONE
    # nothing was predicted again
    assert {name: time for name, time in runs.times().items() if name in times and "rank" in name} == {
        name: time for name, time in times.items() if "rank" in name
    }
    expected = {path.name: path.read_bytes() for path in runs.files.folder.iterdir() if path != archive}
    assert names_and_contents(archive) == expected and "q.done.json" in expected
    # a run that changes the files without --zip leaves no archive with the old ones
    runs.run(QUERY, rank="ptm")
    assert not archive.exists()
