"""Where files lie: one folder a target, or flat, where one target's name may begin with another's."""

from pathlib import Path

from foldcli.outputs.layout import (
    MODEL_KINDS,
    STRUCTURE_KINDS,
    LayoutName,
    TargetFiles,
    partial_name,
    records_in,
    targets_in,
    unfinished_in,
)

TAG = "alphafold2_ptm_model_3_seed_000"


def test_the_default_layout_has_everything_in_the_targets_folder(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path)
    assert files.own == files.shown == tmp_path / "q"
    assert files.path("coverage") == tmp_path / "q/q_coverage.png"
    assert files.path("report") == tmp_path / "q/q.html"
    assert [files.model(kind, 1, TAG).name for kind in MODEL_KINDS] == [
        f"q_unrelaxed_rank_001_{TAG}.pdb",
        f"q_unrelaxed_rank_001_{TAG}.cif",
        f"q_scores_rank_001_{TAG}.json",
    ]
    assert {files.model(kind, 12, TAG).parent for kind in MODEL_KINDS} == {tmp_path / "q"}
    assert partial_name("pdb", TAG) == f"unrelaxed_{TAG}.pdb"


def test_the_flat_layout_keeps_what_colabfold_does_not_write_apart(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    flat = [files.path(kind) for kind in ("alignment", "coverage", "plddt", "pae", "finished_mark")]
    assert {path.parent for path in [*flat, files.model("pdb", 1, TAG), files.shown / "x"]} == {tmp_path}
    apart = [files.path(kind) for kind in ("hits", "report", "done")]
    assert {path.parent for path in [*apart, files.model("cif", 1, TAG)]} == {tmp_path / "foldcli/q"}


def test_only_the_targets_own_models_are_found_in_a_flat_folder(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    other = TargetFiles("q_unrelaxed_rank_001", tmp_path, "colabfold")
    mine = [files.model(kind, rank, TAG) for kind in MODEL_KINDS for rank in (1, 2)]
    for path in [*mine, *(other.model(kind, 1, TAG) for kind in MODEL_KINDS)]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert files.models() == sorted(mine)


def write(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_files_beside_each_other_have_one_folder(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "beside")
    assert files.own == files.shown == tmp_path
    of_a_run = TargetFiles(tmp_path.name, tmp_path.parent)
    itself = TargetFiles(tmp_path.name, tmp_path, "beside")
    assert itself.path("hits") == of_a_run.path("hits")
    for kind in (*MODEL_KINDS, *STRUCTURE_KINDS):
        assert itself.model(kind, 1, TAG) == of_a_run.model(kind, 1, TAG)


def test_the_layout_of_a_folder_is_found(tmp_path: Path) -> None:
    flat, others = TargetFiles("flat", tmp_path, "colabfold"), TargetFiles("others", tmp_path, "beside")
    own = TargetFiles("own", tmp_path)
    # of whatever a name and a tag are made
    for files, tag in ((flat, TAG), (others, "model_1"), (own, TAG), (own, "model_2_scores_rank")):
        write(files.model("scores", 1, tag), files.model("scores", 2, tag))
    assert targets_in(tmp_path) == [TargetFiles(name, tmp_path, "beside") for name in ("flat", "others")]
    write(flat.path("done"))
    assert targets_in(tmp_path) == [flat, others]
    (found,) = targets_in(own.shown)
    assert found == TargetFiles("own", tmp_path / "own", "beside")
    tags = [(rank, tag) for rank, tag, _ in found.scores()]
    assert tags == [(1, TAG), (1, "model_2_scores_rank"), (2, TAG), (2, "model_2_scores_rank")]
    assert found.scores()[0][2] == own.model("scores", 1, TAG)


def test_records_and_half_way_targets_are_found_in_every_layout(tmp_path: Path) -> None:
    layouts: tuple[LayoutName, ...] = ("default", "colabfold", "beside")
    each = [TargetFiles(f"of_{layout}", tmp_path, layout) for layout in layouts]
    write(*(files.path("done") for files in each), *(files.work / "search.json" for files in each))
    assert records_in(tmp_path) == sorted(files.path("done") for files in each)
    # a run's targets are half-way in folders of their own
    assert unfinished_in(tmp_path) == ["of_default", "of_colabfold"]


def test_what_others_relaxed_is_never_removed(tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    relaxed, unrelaxed = files.model("relaxed_pdb", 1, TAG), files.model("pdb", 1, TAG)
    assert relaxed == tmp_path / f"q_relaxed_rank_001_{TAG}.pdb"
    write(relaxed, unrelaxed)
    assert files.models() == [unrelaxed]
