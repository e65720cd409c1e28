"""Tests of the layouts: paths of a target's files, and targets found in a folder."""

from pathlib import Path

import pytest

from foldcli.outputs.layout import (
    MODEL_KINDS,
    STRUCTURE_KINDS,
    LayoutName,
    TargetFiles,
    find_done_files,
    find_targets,
    find_unfinished_names,
    unranked_name,
)

TAG = "alphafold2_ptm_model_3_seed_000"


def test_default_layout_has_one_folder_per_target(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path)
    assert files.folder == files.structures_folder == tmp_path / "q"
    assert files.path("coverage") == tmp_path / "q/q_coverage.png"
    assert files.path("report") == tmp_path / "q/q.html"
    assert [files.model_path(kind, 1, TAG).name for kind in MODEL_KINDS] == [
        f"q_unrelaxed_rank_001_{TAG}.pdb",
        f"q_unrelaxed_rank_001_{TAG}.cif",
        f"q_scores_rank_001_{TAG}.json",
    ]
    assert {files.model_path(kind, 12, TAG).parent for kind in MODEL_KINDS} == {tmp_path / "q"}
    assert unranked_name("pdb", TAG) == f"unrelaxed_{TAG}.pdb"


def test_colabfold_layout_separates_files_that_colabfold_does_not_write(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    flat = [files.path(kind) for kind in ("alignment", "coverage", "plddt", "pae", "finished_mark")]
    assert {
        path.parent for path in [*flat, files.model_path("pdb", 1, TAG), files.structures_folder / "x"]
    } == {tmp_path}
    apart = [files.path(kind) for kind in ("hits", "report", "done")]
    assert {path.parent for path in [*apart, files.model_path("cif", 1, TAG)]} == {tmp_path / "foldcli/q"}


def test_models_of_a_target_with_a_longer_name_are_not_found(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    other = TargetFiles("q_unrelaxed_rank_001", tmp_path, "colabfold")
    mine = [files.model_path(kind, rank, TAG) for kind in MODEL_KINDS for rank in (1, 2)]
    for path in [*mine, *(other.model_path(kind, 1, TAG) for kind in MODEL_KINDS)]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert files.model_files() == sorted(mine)


@pytest.mark.parametrize("tag", [TAG, "compact_seed_000", "my_Net2_seed_1000", "template_copy"])
@pytest.mark.parametrize("layout", ["default", "colabfold"])
def test_models_of_every_network_are_found(tag: str, layout: LayoutName, tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, layout)
    mine = [files.model_path(kind, 2, tag) for kind in (*MODEL_KINDS, "contacts", "recycle_1")]
    touch(*mine)
    assert files.model_files() == sorted(mine)
    assert files.files_to_archive() == sorted(mine)


def test_files_of_targets_are_not_models(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    touch(TargetFiles("q_scores_rank_001_x", tmp_path, "colabfold").path("aligned_error"))
    assert files.model_files() == []


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_single_folder_layout_has_one_folder(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "single_folder")
    assert files.folder == files.structures_folder == tmp_path
    of_a_run = TargetFiles(tmp_path.name, tmp_path.parent)
    itself = TargetFiles(tmp_path.name, tmp_path, "single_folder")
    assert itself.path("hits") == of_a_run.path("hits")
    for kind in (*MODEL_KINDS, *STRUCTURE_KINDS):
        assert itself.model_path(kind, 1, TAG) == of_a_run.model_path(kind, 1, TAG)


def test_layout_of_a_folder_is_detected(tmp_path: Path) -> None:
    flat, others = (
        TargetFiles("flat", tmp_path, "colabfold"),
        TargetFiles("others", tmp_path, "single_folder"),
    )
    own = TargetFiles("own", tmp_path)
    # names and tags may contain anything
    for files, tag in ((flat, TAG), (others, "model_1"), (own, TAG), (own, "model_2_scores_rank")):
        touch(files.model_path("scores", 1, tag), files.model_path("scores", 2, tag))
    assert find_targets(tmp_path) == [
        TargetFiles(name, tmp_path, "single_folder") for name in ("flat", "others")
    ]
    touch(flat.path("done"))
    assert find_targets(tmp_path) == [flat, others]
    (found,) = find_targets(own.structures_folder)
    assert found == TargetFiles("own", tmp_path / "own", "single_folder")
    tags = [(rank, tag) for rank, tag, _ in found.score_files()]
    assert tags == [(1, TAG), (1, "model_2_scores_rank"), (2, TAG), (2, "model_2_scores_rank")]
    assert found.score_files()[0][2] == own.model_path("scores", 1, TAG)


def test_done_files_and_unfinished_targets_are_found_in_every_layout(tmp_path: Path) -> None:
    layouts: tuple[LayoutName, ...] = ("default", "colabfold", "single_folder")
    each = [TargetFiles(f"of_{layout}", tmp_path, layout) for layout in layouts]
    touch(*(files.path("done") for files in each), *(files.work_folder / "search.json" for files in each))
    assert find_done_files(tmp_path) == sorted(files.path("done") for files in each)
    # a run has no unfinished targets in the layout single_folder
    assert find_unfinished_names(tmp_path) == ["of_default", "of_colabfold"]


def test_relaxed_structures_belong_to_their_models(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    relaxed, unrelaxed = files.model_path("relaxed_pdb", 1, TAG), files.model_path("pdb", 1, TAG)
    assert relaxed == tmp_path / f"q_relaxed_rank_001_{TAG}.pdb"
    touch(relaxed, unrelaxed)
    assert files.model_files() == [relaxed, unrelaxed]
