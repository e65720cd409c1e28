"""Where files lie: one folder a target, or flat, where one target's name may begin with another's."""

from pathlib import Path

from foldcli.layout import MODEL_KINDS, TargetFiles, partial_name

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
