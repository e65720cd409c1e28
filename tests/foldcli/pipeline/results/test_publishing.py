"""Tests of published files: those of other inputs and settings, and archives."""

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.pipeline.runs.dry_run import DONE, TO_DO
from tests.foldcli.pipeline.runs.runs import QUERY, UBIQUITIN, Runs, copy_of, make_intermediate_files

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT_QUERY = AlignmentTarget("q", ("-",), f">q\n{UBIQUITIN[:20]}\n".encode())


def test_intermediate_files_of_another_input_are_not_published(finished_two: Runs, tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    make_intermediate_files(runs, finished_two)
    runs.files.staged_path("templates").touch()
    (tmp_path / "q.a3m").write_text(f">q\n{QUERY.sequence}\n")
    runs.run(AlignmentTarget("q", (str(tmp_path / "q.a3m"),)))
    expected = ("q_scores", "q_unrelaxed", "q.cxc", "q.pml")
    assert not [name for name in runs.contents() if not name.startswith(expected)]


@pytest.mark.parametrize("in_output_folder", [False, True])
def test_overwrite_with_another_input_removes_the_alignment_of_the_earlier_search(
    finished_one: Runs, tmp_path: Path, in_output_folder: bool
) -> None:
    runs = copy_of(finished_one, tmp_path / "runs")
    runs.searcher = None
    path = (
        runs.files.path("alignment")
        if in_output_folder
        else Path(shutil.copy(runs.files.path("alignment"), tmp_path))
    )
    runs.run(AlignmentTarget("q", (str(path),)), overwrite=True)
    left = {
        name for name in runs.contents() if not name.startswith(("q_scores", "q_unrelaxed", "q.cxc", "q.pml"))
    }
    assert left == ({"q.a3m", "q.m8"} if in_output_folder else set())


def test_staged_templates_of_a_run_with_other_settings_are_not_published(
    finished_two: Runs, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, finished_two.searcher)
    make_intermediate_files(runs, finished_two)
    runs.files.staged_path("templates").touch()
    runs.run(models=(3, 4))
    assert runs.contents() == finished_two.contents()


class ArchivingRuns(Runs):
    """Runs into one folder with --zip."""

    def settings(self, **changes):  # type: ignore[no-untyped-def, override]
        settings = super().settings(**changes)
        return replace(settings, output=replace(settings.output, archive=True))


def names_and_contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_archive_has_the_files_and_follows_their_changes(tmp_path: Path) -> None:
    runs, archiving = Runs(tmp_path), ArchivingRuns(tmp_path)
    archive = runs.files.path("archive")
    runs.run(SHORT_QUERY)
    assert runs.action(SHORT_QUERY) == DONE and archiving.action(SHORT_QUERY) == TO_DO
    times = runs.times()
    archiving.run(SHORT_QUERY)
    assert archiving.action(SHORT_QUERY) == DONE
    # nothing was predicted again
    assert {name: time for name, time in runs.times().items() if name in times and "rank" in name} == {
        name: time for name, time in times.items() if "rank" in name
    }
    expected = {path.name: path.read_bytes() for path in runs.files.folder.iterdir() if path != archive}
    assert names_and_contents(archive) == expected and "q.done.json" in expected
    # a run that changes the files without --zip leaves no archive with the old ones
    runs.run(SHORT_QUERY, rank="ptm")
    assert not archive.exists()
